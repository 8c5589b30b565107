#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Intercepted TLS from outside: third-party TLS (OpenSSL, by Python and curl) on both sides of the broker, its CA as `wbctl ca` gives it,
and every request inside decided. The internet is services behind unix sockets. Needs WB_BIN.
"""
import hashlib
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from broker_process import BIN, until    # noqa: E402
from wire_world import World, read_all, read_head    # noqa: E402

HOST = "web.example.org"
POLICY = """isolation: trusted
network: allowlist_domain
egress_rules:
  - {pattern: "*.example.org", ports: [443], http_methods: [GET, POST, HEAD], http_paths: ["/ok/*"]}
"""


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def receive_answer(s, method="GET"):
    """The text of an answer's head, the bytes of its body if that has a length."""
    head = read_head(s).decode()
    fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    body = b""
    if "content-length" in fields and method != "HEAD":
        while len(body) < int(fields["content-length"]):
            more = s.recv(65536)
            if not more:
                break
            body += more
    return head, body


class Interception(World):
    def setUp(self):
        super().setUp()
        self.certificates()
        self.requests = []
        self.handshakes = 0
        self.ending = threading.Event()

    def tearDown(self):
        self.ending.set()
        super().tearDown()

    # ---- the internet

    def certificates(self):
        d = self.dir
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        for ca in ("ca", "otherca"):
            openssl("req", "-x509", *key, "-days", "7", "-subj", "/CN=" + ca, "-addext", "keyUsage=critical,keyCertSign",
                    "-keyout", "%s/%s.key" % (d, ca), "-out", "%s/%s.pem" % (d, ca))
        for name, ca, host, days in (("good", "ca", "*.example.org", "7"), ("stranger", "otherca", "*.example.org", "7"),
                                     ("misnamed", "ca", "www.example.net", "7"), ("old", "ca", "*.example.org", "0")):
            p = "%s/%s" % (d, name)
            openssl("req", *key, "-subj", "/CN=" + name, "-keyout", p + ".key", "-out", p + ".csr")
            with open(p + ".ext", "w") as f:
                f.write("subjectAltName=DNS:%s\n" % host)
            openssl("x509", "-req", "-in", p + ".csr", "-CA", "%s/%s.pem" % (d, ca), "-CAkey", "%s/%s.key" % (d, ca), "-CAcreateserial",
                    "-days", days, "-extfile", p + ".ext", "-out", p + ".crt")

    def tls_server(self, certificate, handler, alpn=("http/1.1",)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain("%s/%s.crt" % (self.dir, certificate), "%s/%s.key" % (self.dir, certificate))
        context.set_alpn_protocols(list(alpn))

        def run(connection):
            with context.wrap_socket(connection, server_side=True) as s:
                self.handshakes += 1
                self.upstream_alpn = s.selected_alpn_protocol()
                handler(s)
        return run

    def origin(self, s):
        """Small HTTP: answers by the path; what came is in self.requests."""
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = s.recv(65536)
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            method, path, _ = head.decode().split("\r\n")[0].split()
            self.requests.append("%s %s" % (method, path))
            length = [int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")]
            if b"\nexpect: 100-continue" in head.lower():
                s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            while length and len(data) < length[0]:
                more = s.recv(65536)
                if not more:
                    return
                data += more
            body, data = (data[:length[0]], data[length[0]:]) if length else (b"", data)
            if path == "/ok/digest":
                reply = hashlib.sha256(body).hexdigest().encode()
            elif path.startswith("/ok/bytes/"):
                reply = bytes(i * 131 & 255 for i in range(65536)) * (int(path.split("/")[3]) // 65536)
            elif path == "/ok/cut":
                s.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
                s.unwrap = None
                os.close(s.detach())    # no close_notify
                return
            elif path == "/ok/until-close":
                s.sendall(b"HTTP/1.1 200 OK\r\n\r\nwhole")
                s.unwrap()
                return
            elif path == "/ok/ws":
                s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                while True:
                    data = s.recv(65536)
                    if not data:
                        return
                    s.sendall(data.upper())
            else:
                reply = ("%s %s" % (method, path)).encode()
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(reply) + (b"" if method == "HEAD" else reply))

    @staticmethod
    def clear(connection):
        """HTTP without TLS, as it is found on a port of its neighbour."""
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def silent_inside(self, s):
        """Reads a request, and says nothing."""
        data = b""
        while True:
            more = s.recv(65536)
            if not more:
                return
            data += more
            if b"\r\n\r\n" in data:
                self.requests.append(" ".join(data.decode().split()[:2]))
                data = b""

    def silent(self, connection):
        self.ending.wait(20)

    def begin(self, policy=POLICY, more_services=(), vms=("a",), **config):
        def https(name, certificate, handler=self.origin):
            return {"name": name, "ports": [443], "connect": self.serve(name, self.tls_server(certificate, handler))}
        services = [https(HOST, "good"), https("stranger.example.org", "stranger"), https("misnamed.example.org", "misnamed"),
                    https("old.example.org", "old"), https("silent-inside.example.org", "good", self.silent_inside),
                    {"name": "clear.example.org", "ports": [443], "connect": self.serve("clear", self.clear)},
                    {"name": "silent.example.org", "ports": [443], "connect": self.serve("silent", self.silent)},
                    {"name": "web.plain.test", "ports": [80], "connect": self.serve("plain", self.web)}] + list(more_services)
        self.write("p.yaml", policy)
        settings = {"inspect": {"enabled": True, "upstream_ca": self.dir + "/ca.pem"},
                    "timeouts": {"connect_ms": 1000, "client_hello_ms": 1500, "request_head_ms": 3000, "idle_ms": 60000}}
        settings.update(config)
        self.settings = dict(workers=1, services=services, audit={"dir": self.audit_dir, "sync": "batch", "required": True}, **settings)
        self.config([self.vm(name, "p.yaml") for name in vms], **self.settings)
        self.start()
        self.write("wb.pem", self.wbctl("ca", "export"))

    def wbctl(self, *arguments, expect=0):
        r = subprocess.run([BIN + "/wbctl", *arguments, "--socket", self.dir + "/run/control.sock"], capture_output=True, text=True,
                           timeout=30)
        self.assertEqual(r.returncode, expect, r.stderr)
        return r.stdout

    # ---- clients

    def context(self, ca="wb.pem"):
        context = ssl.create_default_context(cafile="%s/%s" % (self.dir, ca))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    def tls(self, host=HOST, context=None, vm="a", **more):
        status, s = self.tunnel(vm, host + ":443")
        self.assertEqual(status, [b"200"])
        return (context or self.context()).wrap_socket(s, server_hostname=host, **more)

    def ask(self, s, path="/ok/1", method="GET", host=HOST, more="", body=b""):
        s.sendall(("%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (method, path, host, more)).encode() + body)
        return receive_answer(s, method)

    def curl(self, *arguments, expect=0):
        """Through SOCKS5, as no curl speaks HTTP to a proxy at a unix socket."""
        r = subprocess.run(["curl", "-sS", "--noproxy", "", "--proxy", "socks5h://localhost%s/vm/a/1025" % self.dir, "--cacert",
                            self.dir + "/wb.pem", "-w", "%{http_code}", *arguments], capture_output=True, text=True, timeout=60,
                           env={"PATH": os.environ["PATH"]})
        self.assertEqual(r.returncode, expect, r.stderr)
        return r.stdout

    def of(self, event):
        return [r for r in self.records() if r["event"] == event]

    def await_record(self, event, **fields):
        return until(lambda: [r for r in self.of(event) if all(r.get(k) == v for k, v in fields.items())], 5)[0]


class Requests(Interception):
    def test_curl(self):
        self.begin()
        self.assertEqual(self.curl("https://%s/ok/1" % HOST), "GET /ok/1200")
        out = self.curl("https://%s/secret" % HOST)
        self.assertTrue(out.endswith("403") and "path_not_allowed" in out, out)
        out = self.curl("-X", "DELETE", "https://%s/ok/1" % HOST)
        self.assertTrue(out.endswith("403") and "method_not_allowed" in out, out)
        self.assertEqual(self.curl("-d", "x" * 3000, "https://%s/ok/digest" % HOST), hashlib.sha256(b"x" * 3000).hexdigest() + "200")
        self.assertEqual(self.requests, ["GET /ok/1", "POST /ok/digest"])
        self.assertEqual(self.upstream_alpn, "http/1.1")
        self.assertEqual(self.handshakes, 2)     # nothing at all of what is refused goes there
        denied = self.await_record("request", decision="deny", path="/secret")
        self.assertEqual([denied[k] for k in ("reason", "via", "method", "host", "port", "status")],
                         ["path_not_allowed", "inspect", "GET", HOST, 443, 403])
        self.assertEqual(self.await_record("request", decision="allow", path="/ok/1")["status"], 200)
        self.assertEqual(len(self.of("egress_deny")), 0)
        self.assert_gapless()

    def test_a_kept_connection_decides_each(self):
        self.begin()
        with self.tls() as s:
            for path, status in (("/ok/1", 200), ("/no", 403), ("/ok/../no", 400)):
                head, body = self.ask(s, path)
                self.assertEqual(int(head.split()[1]), status, head)
            self.assertEqual(read_all(s), b"")   # after malformed_request it is closed
        with self.tls() as s:
            for path, status in (("/no", 403), ("/ok/1", 200), ("/no", 403), ("/ok/2", 200)):
                head, body = self.ask(s, path)
                self.assertEqual(int(head.split()[1]), status, head)
                if status == 403:
                    self.assertIn("Proxy-Status: wbbroker; error=http_request_denied", head)
            head, body = self.ask(s, "/ok/3", more="Connection: close\r\n")
            self.assertEqual(body, b"GET /ok/3")
            self.assertEqual(read_all(s), b"")
        self.assertEqual(self.requests, ["GET /ok/1", "GET /ok/1", "GET /ok/2", "GET /ok/3"])
        self.assertEqual(self.handshakes, 2)
        until(lambda: len(self.of("request")) == 8)
        closed = until(lambda: [r for r in self.of("egress_close") if r["bytes_down"]])
        self.assertEqual([(r["via"], r["rule"]) for r in closed], [("connect", 0)] * 2)

    def test_pipelined_with_the_handshake(self):
        self.begin()
        with self.tls() as s:
            s.sendall(("GET /ok/1 HTTP/1.1\r\nHost: %s\r\n\r\nGET /no HTTP/1.1\r\nHost: %s\r\n\r\nGET /ok/2 HTTP/1.1\r\nHost: %s\r\n\r\n"
                       % (HOST, HOST, HOST)).encode())
            self.assertEqual([receive_answer(s)[0].split()[1] for _ in range(3)], ["200", "403", "200"])

    def test_large_bodies(self):
        self.begin()
        body = bytes(i * 7 & 255 for i in range(65536)) * 48
        with self.tls() as s:
            for more in ("Content-Length: %d\r\n" % len(body), "Content-Length: %d\r\nExpect: 100-continue\r\n" % len(body)):
                head, got = self.ask(s, "/ok/digest", "POST", more=more, body=b"" if "Expect" in more else body)
                if "Expect" in more:
                    self.assertIn(" 100 ", head)
                    s.sendall(body)
                    head, got = receive_answer(s)
                self.assertEqual(got.decode(), hashlib.sha256(body).hexdigest())
            s.sendall(("GET /ok/bytes/8388608 HTTP/1.1\r\nHost: %s\r\n\r\n" % HOST).encode())
            time.sleep(0.5)     # what is not read waits
            head, got = receive_answer(s)
            self.assertEqual(got, bytes(i * 131 & 255 for i in range(65536)) * 128)
            head, got = self.ask(s, "/ok/1", "HEAD")
            self.assertIn(" 200 ", head)
        record = self.await_record("request", path="/ok/bytes/8388608")
        self.assertGreaterEqual(record["bytes_down"], 8388608)

    def test_upgrade_to_websocket_is_opaque(self):
        self.begin()
        with self.tls() as s:
            s.sendall(("GET /ok/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" % HOST).encode())
            self.assertIn(" 101 ", read_head(s).decode())
            for n in (3, 5000, 60000, 60000, 60000):
                s.sendall(b"a" * n)
                got = b""
                while len(got) < n:
                    got += s.recv(65536)
                self.assertEqual(got, b"A" * n)

    def test_http10_and_hosts(self):
        self.begin()
        with self.tls() as s:
            s.sendall(("GET /ok/1 HTTP/1.0\r\nHost: %s:443\r\n\r\n" % HOST).encode())
            self.assertTrue(read_all(s).endswith(b"GET /ok/1"))
        with self.tls() as s:
            head, _ = self.ask(s, host="stranger.example.org")
            self.assertIn(" 400 ", head)
            self.assertIn("host_mismatch", head)
            self.assertEqual(read_all(s), b"")
        with self.tls() as s:
            s.sendall(b"\x00\x01\x02 this is no HTTP\r\n\r\n")
            self.assertEqual(read_all(s), b"")   # closed, with a close_notify
        self.await_record("egress_deny", reason="protocol_not_allowed")
        self.assertEqual(self.requests, ["GET /ok/1"])

    def test_the_servers_end_is_passed_on_as_it_was(self):
        self.begin()
        with self.tls() as s:
            s.sendall(("GET /ok/until-close HTTP/1.1\r\nHost: %s\r\n\r\n" % HOST).encode())
            self.assertTrue(read_all(s).endswith(b"5\r\nwhole\r\n0\r\n\r\n"))
        with self.tls() as s:
            s.sendall(("GET /ok/cut HTTP/1.1\r\nHost: %s\r\n\r\n" % HOST).encode())
            got = read_all(s)
            self.assertIn(b"half", got)
            self.assertFalse(got.endswith(b"0\r\n\r\n"))     # cut short, and told so

    def test_what_was_forwarded_stands_though_nobody_waits_for_the_answer(self):
        self.begin()
        for n, body in ((50000, b"S" * 50000), (100000, b"S" * 50000)):     # whole, and cut short
            with self.tls("silent-inside.example.org") as s:
                s.sendall(("POST /ok/%d HTTP/1.1\r\nHost: silent-inside.example.org\r\nContent-Length: %d\r\n\r\n" % (n, n)).encode() + body)
                until(lambda: "POST /ok/%d" % n in self.requests)
                time.sleep(0.2)
            record = self.await_record("request", path="/ok/%d" % n)
            self.assertEqual([record.get(k) for k in ("decision", "reason", "rule", "via", "method", "status")],
                             ["allow", "allowed", 0, "inspect", "POST", None])
            self.assertGreater(record["bytes_up"], 50000)
            self.assertEqual(record["bytes_down"], 0)
        self.assertEqual(len(self.of("request")), 2)
        self.assert_gapless()

    def test_limits_hold_inside(self):
        self.begin(POLICY.replace("}\n", ", requests_per_s: 2, max_connections: 2}\n"))
        with self.tls() as s:
            answers = [self.ask(s)[0] for _ in range(8)]
            limited = [a for a in answers if " 429 " in a]
            self.assertTrue(limited)
            self.assertIn("Retry-After: 1", limited[0])
            time.sleep(1.1)
            self.assertIn(" 200 ", self.ask(s)[0])       # it was kept
            _, second = self.tunnel("a", HOST + ":443")
            status, third = self.tunnel("a", HOST + ":443")
            self.assertEqual(status, [b"429"])
            second.close()
            third.close()


class Servers(Interception):
    def test_who_is_not_trusted(self):
        self.begin()
        time.sleep(1.1)     # in which the one for zero days has expired
        for host, why in (("stranger", "nobody that the broker trusts"), ("misnamed", "another name"), ("old", "expired"), ("clear", "")):
            host += ".example.org"
            with self.tls(host) as s:
                self.assertIn(" 403 ", self.ask(s, "/no", host=host)[0])     # denied is denied, whoever is there
                head, body = self.ask(s, host=host)
                self.assertIn(" 502 ", head)
                self.assertIn('Proxy-Status: wbbroker; error=tls_certificate_error; details="upstream_tls"', head)
                self.assertIn(why, body.decode())
                self.assertEqual(read_all(s), b"")
            self.await_record("egress_deny", reason="upstream_tls", host=host)
        self.assertEqual(self.requests, [])

    def test_who_says_nothing(self):
        self.begin()
        with self.tls("silent.example.org") as s:
            head, _ = self.ask(s, host="silent.example.org")
            self.assertIn(" 504 ", head)
            self.assertIn("upstream_timeout", head)

    def test_a_bundle_that_is_none(self):
        self.write("empty.pem", "nothing\n")
        for bundle in ("/empty.pem", "/absent.pem"):
            self.begin(inspect={"enabled": True, "upstream_ca": self.dir + bundle})
            self.assertIn("no certificates can be read from inspect.upstream_ca", self.log_text())
            status, s = self.tunnel("a", HOST + ":443")      # it may yet be plain HTTP
            self.assertEqual(status, [b"200"])
            with self.assertRaises(ssl.SSLError):
                self.context().wrap_socket(s, server_hostname=HOST)
            self.await_record("egress_deny", reason="inspection_required")
            self.stop()
            for listener in self.listeners:
                os.unlink(listener.getsockname())
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()
            self.listeners = []

    def test_switched_off_while_it_runs(self):
        self.begin()
        with self.tls() as s:
            self.assertIn(" 200 ", self.ask(s)[0])
            self.settings["inspect"] = {"enabled": False}
            self.config([self.vm("a", "p.yaml")], **self.settings)
            self.reload()
            self.assertEqual(read_all(s), b"")
        _, s = self.tunnel("a", HOST + ":443")
        with self.assertRaises(ssl.SSLError):
            self.context().wrap_socket(s, server_hostname=HOST)
        self.settings["inspect"] = {"enabled": True, "upstream_ca": self.dir + "/ca.pem"}
        self.config([self.vm("a", "p.yaml")], **self.settings)
        self.reload()
        with self.tls() as s:
            self.assertIn(" 200 ", self.ask(s)[0])


class Clients(Interception):
    def test_names_are_judged_before(self):
        self.begin()
        for name in ("other.example.org", None):
            _, s = self.tunnel("a", HOST + ":443")
            context = self.context()
            context.check_hostname = False
            with self.assertRaisesRegex(ssl.SSLError, "unrecognized|UNRECOGNIZED"):
                context.wrap_socket(s, server_hostname=name)
        self.await_record("egress_deny", reason="sni_mismatch")
        self.await_record("egress_deny", reason="sni_missing")

    def test_protocols_inside(self):
        self.begin()
        context = self.context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with self.tls(context=context) as s:
            self.assertEqual(s.selected_alpn_protocol(), "http/1.1")
        context.set_alpn_protocols(["h2"])
        with self.assertRaises(ssl.SSLError):
            self.tls(context=context)

    def test_a_client_that_does_not_trust(self):
        self.begin()
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.tls(context=self.context("ca.pem"))
        until(lambda: "does it trust the interception CA?" in self.log_text())

    def hello(self):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.context().wrap_bio(incoming, outgoing, server_hostname=HOST)
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            pass
        return client, incoming, outgoing, outgoing.read()

    def test_a_hello_in_many_records(self):
        self.begin()
        for size in (1, 7, 100):
            client, incoming, outgoing, hello = self.hello()
            message = hello[5:]
            _, s = self.tunnel("a", HOST + ":443")
            s.sendall(b"".join(hello[:3] + len(part).to_bytes(2, "big") + part
                               for part in (message[i:i + size] for i in range(0, len(message), size))))
            done = False
            while not done:
                try:
                    client.do_handshake()
                    done = True
                except ssl.SSLWantReadError:
                    pass
                s.sendall(outgoing.read())
                if not done:
                    data = s.recv(65536)
                    self.assertTrue(data, "closed in the handshake")
                    incoming.write(data)
            client.write(("GET /ok/%d HTTP/1.1\r\nHost: %s\r\n\r\n" % (size, HOST)).encode())
            s.sendall(outgoing.read())
            until(lambda: self.requests and self.requests[-1] == "GET /ok/%d" % size)
            s.close()

    def test_a_handshake_that_does_not_go_on(self):
        self.begin()
        began = time.monotonic()
        _, _, _, hello = self.hello()
        _, s = self.tunnel("a", HOST + ":443")
        s.sendall(hello)
        read_all(s)
        self.assertLess(time.monotonic() - began, 6)
        _, s = self.tunnel("a", HOST + ":443")
        s.sendall(hello + b"\x17\x03\x03\x00\x05hello" * 100)    # no handshake at all
        read_all(s)
        s.close()

    def test_nothing_is_left(self):
        self.begin()
        self.write("p2.yaml", "isolation: trusted\nnetwork: allowlist_domain\negress_rules:\n  - {pattern: web.plain.test}\n")
        with self.tls() as s:
            self.ask(s)
            fds = self.fds_n() - 2      # this one's
        _, _, _, hello = self.hello()
        for i in range(60):
            if i % 3 == 0:
                s = self.tls()
                s.sendall(b"GET /ok/bytes/1048576 HTTP/1.1\r\nHost: %s\r\n\r\n" % HOST.encode())
                s.recv(10)
            elif i % 3 == 1:
                _, s = self.tunnel("a", HOST + ":443")
                s.sendall(hello[:100])
            else:
                s = self.tls()
                self.ask(s)
            s.close()
        until(lambda: self.fds_n() <= fds, 10)

    def test_alerts_without_end_do_not_hold_the_worker(self):
        """Warnings are nothing that ends a handshake, and a guest has as many as it likes."""
        self.begin()
        _, _, _, hello = self.hello()
        _, s = self.tunnel("a", HOST + ":443")
        s.sendall(hello)
        sent = [0]

        def flood():
            try:
                while True:
                    sent[0] += s.send(b"\x15\x03\x03\x00\x02\x01\x5a" * 10000)
            except OSError:
                pass
        thread = threading.Thread(target=flood)
        thread.start()
        until(lambda: sent[0] > 1000000)
        for _ in range(3):
            with self.tls() as other:
                self.assertIn(" 200 ", self.ask(other)[0])
        self.assertTrue(thread.is_alive())      # it went on all the time
        thread.join(10)                         # and its handshake has run out of time
        self.assertFalse(thread.is_alive())


    def test_one_vm_does_not_have_the_worker_alone(self):
        """Handshakes are dear: so many a second, whatever a guest does."""
        self.begin(vms=("a", "b"))
        done, ends = [], time.monotonic() + 6
        context = self.context()

        def flood():
            while time.monotonic() < ends:
                try:
                    with self.tls(context=context) as s:
                        self.ask(s)
                        done.append(time.monotonic())
                except OSError:     # it waited for too long
                    pass
        threads = [threading.Thread(target=flood) for _ in range(12)]
        for t in threads:
            t.start()
        time.sleep(3)
        began = time.monotonic()
        with self.tls(vm="b", context=context) as s:
            self.assertIn(" 200 ", self.ask(s)[0])
        self.assertLess(time.monotonic() - began, 5)
        for t in threads:
            t.join()
        self.assertLess(len(done), 100 + 20 * 8)
        self.assertGreater(len(done), 20)       # a slow machine does not come to the limit


class Changes(Interception):
    def test_a_policy_that_allows_less(self):
        self.begin()
        kept, cut = self.tls(), None
        self.assertIn(" 200 ", self.ask(kept)[0])
        self.control(op="vm_policy", name="a", policy=POLICY.replace("/ok/*", "/other/*"))
        self.assertIn(" 403 ", self.ask(kept)[0])
        self.control(op="vm_policy", name="a", policy="isolation: trusted\nnetwork: allowlist_domain\negress_rules:\n  - {pattern: x.org}\n")
        self.assertEqual(read_all(kept), b"")
        self.control(op="vm_policy", name="a", policy=POLICY.replace(", http_methods: [GET, POST, HEAD], http_paths: [\"/ok/*\"]", ""))
        cut = self.tls(context=self.context("ca.pem"))      # opaque: the origin's own certificate
        self.assertIn(" 200 ", self.ask(cut, "/anything")[0])
        self.control(op="vm_policy", name="a", policy=POLICY)
        self.assertEqual(read_all(cut), b"")
        self.await_record("egress_deny", reason="inspection_required", detail="a live connection was cut")
        kept.close()

    def test_revoked(self):
        self.begin()
        with self.tls() as s:
            self.assertIn(" 200 ", self.ask(s)[0])
            self.control(op="vm_revoke", name="a")
            self.assertEqual(read_all(s), b"")

    def test_rotation(self):
        self.begin()
        shown = self.wbctl("ca", "show")
        digest = subprocess.run(["openssl", "x509", "-in", self.dir + "/wb.pem", "-noout", "-fingerprint", "-sha256"], capture_output=True,
                                text=True, check=True).stdout.strip().split("=")[1].replace(":", "").lower()
        self.assertIn(digest, shown)
        self.assertIn("intercepts  yes", shown)
        self.assertNotIn(digest, self.wbctl("ca", "rotate"))
        self.write("new.pem", self.wbctl("ca", "export"))
        with self.tls() as s:       # the VM has the CA that it was added under
            self.assertIn(" 200 ", self.ask(s)[0])
        self.assertTrue(self.control(op="vm_rm", name="a")["ok"])
        self.reload()               # which adds it again
        with self.tls(context=self.context("new.pem")) as s:
            self.assertIn(" 200 ", self.ask(s)[0])
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.tls()
        self.stop()
        self.start()
        with self.tls(context=self.context("new.pem")) as s:
            self.assertIn(" 200 ", self.ask(s)[0])

    def test_the_file(self):
        self.begin()
        path = self.dir + "/state/ca.pem"
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path) as f:
            self.assertIn("PRIVATE KEY", f.read())
        self.assertNotIn("PRIVATE", self.wbctl("ca", "export") + self.wbctl("ca", "show", "--json"))
        self.stop()
        for damage in (lambda: os.chmod(path, 0o644), lambda: (os.chmod(path, 0o600), self.write("state/ca.pem", "garbage"))):
            damage()
            self.start()            # all else goes on
            _, s = self.tunnel("a", HOST + ":443")
            with self.assertRaises(ssl.SSLError):
                self.context().wrap_socket(s, server_hostname=HOST)
            self.wbctl("ca", "show", expect=125)
            self.assertIn("the interception CA " + path, self.log_text())
            self.stop()
        self.wbctl("ca", "show", expect=125)


del World
if __name__ == "__main__":
    unittest.main()
