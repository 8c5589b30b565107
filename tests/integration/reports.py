#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The forty ways in which other egress brokers were reported to fail, and for each the tests that fail if ours has that fault. Most of them are
wire cases and unit tests that are there anyway; those that no other place had are below the table. The table cannot rot: every test that it
names must exist. Needs WB_BIN, WB_SOURCE and root (the names of a silent DNS server).
"""
import ctypes
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from broker_process import BIN, ROOT, until    # noqa: E402
from wire_world import POLICY, World, read_all    # noqa: E402

SOURCE = pathlib.Path(os.environ["WB_SOURCE"])

# What is named: `FILE:ID` a case of tests/cases/FILE.json, `test_X.c:NAME` a function of tests/unit, `X.py:NAME` a test of tests/integration.
REPORTS = {
    1: ("a trailing dot or upper case passes", [
        "http_requests:connect-case-and-trailing-dot", "http_requests:absolute-host-case-and-dot", "socks5:socks-upper-case-and-dot",
        "client_hello:hello-canonical-target"]),
    2: ("brackets around a name pass", ["http_requests:connect-brackets-around-name", "socks5:socks-domain-brackets"]),
    3: ("100.64/10 is allowed", ["floor:v4-100.64-first", "test_address.c:test_floor_of_the_contract"]),
    4: ("NAT64, 6to4, Teredo carry a private address", [
        "http_requests:connect-ipv6-floor-3", "http_requests:connect-ipv6-floor-4", "test_address.c:test_floor_texts_are_their_ranges"]),
    5: ("a rule for ::ffff:0:0/96 matches all IPv4", ["test_address.c:test_families_are_apart", "test_pattern.c:test_patterns_of_the_contract"]),
    6: ("the proxy dials itself", [
        "http_requests:connect-own-address-literal", "http_requests:connect-resolves-to-own-address", "socks5:socks-floor-own-ipv6",
        "reports.py:test_19_a_service_that_is_the_broker_itself"]),
    7: ("requests in an intercepted tunnel are not judged again", [
        "inspect_requests:inspect-path-denied", "interception.py:test_a_kept_connection_decides_each",
        "http_requests:keepalive-second-denied", "http_requests:tunnel-second-request-mismatch"]),
    8: ("407 without a challenge", ["reports.py:test_08_17_27_refusals_are_prompt_and_plain", "test_reply.c:test_every_reason"]),
    9: ("a SOCKS5 name with NUL", ["socks5:socks-domain-nul"]),
    10: ("the decision depends on the way in", [
        "http_requests:tunnel-method-not-allowed", "http_requests:tunnel-path-not-allowed", "socks5:socks-http-host-mismatch",
        "test_policy.c:test_decisions_of_the_contract"]),
    11: ("plain HTTP is not filtered", ["http_requests:absolute-no-rule", "http_requests:absolute-method-not-allowed"]),
    12: ("the origin's FIN truncates the body", [
        "http_requests:connect-origin-closes-first", "http_requests:answer-until-close-large", "test_relay.c:test_end_after_any_amount"]),
    13: ("a killed client leaks a descriptor and spins", [
        "reports.py:test_13_a_killed_client_leaves_nothing", "http_requests:tunnel-client-goes-away", "test_relay.c:test_client_that_goes_ends_it"]),
    14: ("a bad edit of the settings opens everything", ["broker_process.py:test_a_bad_file_keeps_the_old"]),
    15: ("502 after a few quick requests", ["reports.py:test_15_thousands_of_quick_requests", "test_worker.c:test_dead_server_connection"]),
    16: ("an allowed host is reached on every port", ["http_requests:connect-port-not-allowed", "socks5:socks-port-not-allowed"]),
    17: ("a vague 403 makes agents try ways around", [
        "reports.py:test_08_17_27_refusals_are_prompt_and_plain", "test_policy.c:test_explanations_say_what_to_do"]),
    18: ("absolute-form allowed, Host routes elsewhere", ["http_requests:absolute-host-mismatch", "http_requests:keepalive-host-switch"]),
    19: ("a loop through itself", ["reports.py:test_19_a_service_that_is_the_broker_itself", "http_requests:connect-own-address-literal"]),
    20: ("CONNECT to a bare address", ["http_requests:connect-literal-without-rule", "socks5:socks-ip-literal"]),
    21: ("only 80 and 443 are covered", ["reports.py:test_21_every_port_is_covered"]),
    22: ("CONNECT to an allowed name, another SNI", ["client_hello:sni-mismatch", "client_hello:sni-mismatch-in-second-record"]),
    23: ("a newline in a name forges a line", [
        "http_requests:connect-lf-forges-log-line", "socks5:socks-domain-crlf", "test_audit.c:test_no_input_forges_a_line"]),
    24: ("a connect succeeds before it is decided", ["http_requests:dial-refused", "http_requests:connect-basic", "socks5:socks-refused"]),
    25: ("the guest's FIN is not passed on, places leak", [
        "reports.py:test_25_half_closed_connections_give_their_places_back", "http_requests:connect-half-close", "socks5:socks-half-close",
        "test_relay.c:test_both_ways_and_each_fin"]),
    26: ("a chunk is dropped under back-pressure", [
        "reports.py:test_26_nothing_is_lost_under_back_pressure", "http_requests:connect-echo-1mib", "http_requests:framing-1mib-body"]),
    27: ("a denied request hangs", [
        "reports.py:test_08_17_27_refusals_are_prompt_and_plain", "http_requests:absolute-post-denied-at-once", "http_requests:expect-100-denied"]),
    28: ("the first resolver is dead, all look-ups fail", ["test_resolver.c:test_failover"]),
    # The broker holds no secrets yet: what it can draw to another address is the connection, and that is bound to the name that was judged.
    29: ("a spoofed Host or SNI draws a secret to another address", [
        "http_requests:tunnel-host-mismatch", "http_requests:keepalive-host-switch", "client_hello:sni-mismatch",
        "inspect_requests:inspect-host-mismatch", "interception.py:test_who_is_not_trusted"]),
    30: ("what was to be rewritten goes upstream when the rewriter is not there", [
        "http_requests:inspect-not-available", "interception.py:test_a_bundle_that_is_none", "interception.py:test_switched_off_while_it_runs"]),
    31: ("smuggling", [
        "http_requests:framing-cl-and-te", "http_requests:framing-te-and-cl", "http_requests:framing-cl-list-different",
        "http_requests:framing-te-xchunked", "http_requests:bare-lf-one-header", "http_requests:obs-fold", "http_requests:space-before-colon",
        "http_requests:chunked-bad-size-overflow", "http_requests:answer-cl-and-te", "test_http1.c:test_forwarded_to_the_byte"]),
    32: ("/public/../secret", ["http_requests:path-traversal-1", "http_requests:path-traversal-encoded-backslash"]),
    33: ("EMFILE kills the accept loop", ["reports.py:test_33_without_descriptors_it_waits", "test_worker.c:test_no_descriptors_left"]),
    34: ("early data of a CONNECT is lost", [
        "http_requests:connect-pipelined-data-is-held", "http_requests:connect-pipelined-100k", "http_requests:connect-refused-then-data"]),
    35: ("names that are slow stall the rest", ["reports.py:test_35_a_silent_name_server_stalls_nobody_else",
                                                 "test_resolver.c:test_one_question_for_all_who_wait"]),
    36: ("a truncated answer", ["http_requests:dns-truncated", "http_requests:dns-truncated-hides-floor",
                                "test_resolver.c:test_truncated_is_asked_over_tcp"]),
    37: ("one address after the other: minutes", [
        "test_dialer.c:test_second_starts_while_the_first_is_silent", "http_requests:connect-falls-back-to-second-address"]),
    38: ("a suffix matches within a label", ["http_requests:connect-suffix-is-not-a-label", "test_pattern.c:test_patterns_of_the_contract"]),
    39: ("a short write of the answer", ["reports.py:test_39_answers_to_a_client_that_does_not_read"]),
    40: ("SIGPIPE", ["reports.py:test_40_ends_that_vanish_while_bytes_flow", "hostile_guest.py:test_a_guest_that_goes_away_at_any_byte"]),
}


class Table(unittest.TestCase):
    """What the table names is there."""

    def test_all_forty(self):
        self.assertEqual(sorted(REPORTS), list(range(1, 41)))

    def test_every_named_test_exists(self):
        cases = {}
        for number, (fault, tests) in REPORTS.items():
            for test in tests:
                place, _, name = test.partition(":")
                with self.subTest(report=number, fault=fault, test=test):
                    if place.endswith(".py"):
                        self.assertRegex((SOURCE / "tests/integration" / place).read_text(), r"def %s\(self\)" % name)
                    elif place.endswith(".c"):
                        text = next((SOURCE / "tests/unit").glob("*/" + place)).read_text()
                        self.assertRegex(text, r"static void %s\(void\)\n{" % name)
                        self.assertRegex(text, r"\{\"[^\"]+\", %s\}" % name)    # it runs
                    else:
                        if place not in cases:
                            cases[place] = {c["id"] for c in json.loads((SOURCE / "tests/cases" / (place + ".json")).read_bytes())}
                        self.assertIn(name, cases[place])


class Reports(World):
    def test_08_17_27_refusals_are_prompt_and_plain(self):
        self.begin()
        for head in [b"CONNECT no.example.net:443 HTTP/1.1\r\nHost: no.example.net:443\r\n\r\n",
                     b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: 10.0.0.1:443\r\n\r\n",
                     b"GET http://no.example.net/ HTTP/1.1\r\nHost: no.example.net\r\nConnection: close\r\n\r\n",
                     b"POST http://no.example.net/ HTTP/1.1\r\nHost: no.example.net\r\nContent-Length: 1000000\r\n\r\n"]:
            with self.dial() as s:
                began = time.monotonic()
                s.sendall(head)
                answer_head, _, body = read_all(s).partition(b"\r\n\r\n")
                self.assertLess(time.monotonic() - began, 2)
                self.assertEqual(answer_head.split()[1], b"403")
                self.assertNotIn(b"proxy-authenticate", answer_head.lower())
                self.assertIn("A retry will not help", json.loads(body)["detail"])

    def test_13_a_killed_client_leaves_nothing(self):
        self.begin()
        script = ("import socket, sys\n"
                  "held = []\n"
                  "for _ in range(8):\n"
                  "    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); held.append(s)\n"
                  "    s.sendall(b'CONNECT echo.example.org:7 HTTP/1.1\\r\\nHost: echo.example.org:7\\r\\n\\r\\n')\n"
                  "    s.setblocking(False)\n"
                  "    for _ in range(500):\n"
                  "        try: s.send(b'x' * 65536)\n"
                  "        except BlockingIOError: pass\n"
                  "print('full', flush=True)\n"
                  "sys.stdin.read()\n")
        for _ in range(3):
            client = subprocess.Popen([sys.executable, "-c", script, self.dir + "/vm/a/1025"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.assertEqual(client.stdout.readline(), b"full\n")
            self.assertGreater(self.fds_n(), self.fds + 8)
            client.kill()
            client.wait()
            client.stdin.close()
            client.stdout.close()
            self.nothing_is_left()
        used = self.cpu_s()
        time.sleep(1)
        self.assertLess(self.cpu_s() - used, 0.3)

    def test_15_thousands_of_quick_requests(self):
        self.begin()
        get = b"GET http://web.example.org/ HTTP/1.1\r\nHost: web.example.org\r\n\r\n"
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        failed = []

        def client(number):
            for i in range(250):
                if i % 25 == 0:
                    s = self.dial("ab"[number % 2])
                s.sendall(get)
                got = b""
                while len(got) < len(answer):
                    more = s.recv(4096)
                    if not more:
                        break
                    got += more
                if got != answer:
                    failed.append(got)
                if i % 25 == 24:
                    s.close()
        clients = [threading.Thread(target=client, args=(i,)) for i in range(8)]
        for t in clients:
            t.start()
        for t in clients:
            t.join()
        self.assertEqual(failed, [])
        self.nothing_is_left()

    def test_19_a_service_that_is_the_broker_itself(self):
        own = {"name": "own.example.org", "ports": [80], "connect": "unix:%s/vm/b/1025" % self.dir}
        self.write("p.yaml", POLICY + "  - {pattern: own.example.org, ports: [80]}\n")
        self.begin(services=[own])
        with self.dial() as s:
            s.sendall(b"CONNECT own.example.org:80 HTTP/1.1\r\nHost: own.example.org:80\r\n\r\n")
            self.assertIn(b'details="upstream_unreachable"', read_all(s))
        self.assertIn("is the broker's own", self.log_text())
        self.nothing_is_left()

    def test_21_every_port_is_covered(self):
        self.begin()
        for port in [1, 21, 22, 25, 53, 853, 3306, 5432, 8080, 8443, 65535]:
            status, s = self.tunnel(target="no.example.net:%d" % port)
            s.close()
            self.assertEqual(status, [b"403"])
            with self.dial() as s:
                s.sendall(b"\x05\x01\x00\x05\x01\x00\x03\x0eno.example.net" + port.to_bytes(2, "big"))
                self.assertEqual(read_all(s)[:4], b"\x05\x00\x05\x02")

    def test_25_half_closed_connections_give_their_places_back(self):
        self.begin()
        for _ in range(4):    # the rule has 16 places
            tunnels = [self.tunnel() for _ in range(16)]
            self.assertEqual([status for status, _ in tunnels], [[b"200"]] * 16)
            for _, s in tunnels:
                s.sendall(b"last words")
                s.shutdown(socket.SHUT_WR)
                self.assertEqual(read_all(s), b"last words")
                s.close()
            until(lambda: self.fds_n() <= self.fds)
        self.nothing_is_left()

    def test_26_nothing_is_lost_under_back_pressure(self):
        self.begin()
        source = random.Random(26)
        sent = bytes(source.getrandbits(8) for _ in range(65536)) * 128 + b"the end"
        status, s = self.tunnel()
        self.assertEqual(status, [b"200"])

        def send():
            at = 0
            while at < len(sent):
                at += s.send(sent[at:at + source.choice([1, 1460, 16384, 300000])])
            s.shutdown(socket.SHUT_WR)
        sender = threading.Thread(target=send)
        sender.start()
        got = hashlib.sha256()
        pauses = random.Random(27)
        while True:
            if pauses.random() < 0.02:
                time.sleep(0.02)
            data = s.recv(pauses.choice([1000, 4096, 65536]))
            if not data:
                break
            got.update(data)
        sender.join()
        s.close()
        self.assertEqual(got.hexdigest(), hashlib.sha256(sent).hexdigest())
        self.nothing_is_left()

    def test_33_without_descriptors_it_waits(self):
        self.begin()
        limits = resource.prlimit(self.broker_pid(), resource.RLIMIT_NOFILE)
        resource.prlimit(self.broker_pid(), resource.RLIMIT_NOFILE, (self.fds_n() + 6, limits[1]))
        flood = [self.dial() for _ in range(60)]
        used = self.cpu_s()
        time.sleep(1)
        self.assertLess(self.cpu_s() - used, 0.3)
        for s in flood:
            s.close()
        resource.prlimit(self.broker_pid(), resource.RLIMIT_NOFILE, limits)
        self.assertLess(self.fetch("a"), 5)
        self.nothing_is_left()

    @unittest.skipUnless(ROOT, "needs root")
    def test_35_a_silent_name_server_stalls_nobody_else(self):
        self.begin(start=self.start_with_silent_name_server, dns={"servers": ["127.0.0.1"], "timeout_ms": 2000})
        waiting = []
        for i in range(40):
            s = self.dial()
            s.sendall(b"CONNECT w%d.silent.example.org:443 HTTP/1.1\r\nHost: w%d.silent.example.org:443\r\n\r\n" % (i, i))
            waiting.append(s)
        began = time.monotonic()
        for _ in range(5):
            self.assertLess(self.fetch("b"), 1)
            self.assertLess(self.fetch("a"), 1)
        self.assertLess(time.monotonic() - began, 2, "too slow a machine to tell")
        for s in waiting:
            self.assertIn(b'details="dns_timeout"', read_all(s))
            s.close()
        self.assertLess(time.monotonic() - began, 8)
        self.nothing_is_left()

    def start_with_silent_name_server(self):
        """The broker in a network namespace that has only lo, where port 53 is open and says nothing."""
        keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 300"], stdout=subprocess.PIPE)
        self.others.append(keeper)
        self.assertEqual(keeper.stdout.readline(), b"up\n")
        keeper.stdout.close()
        entered = []

        def enter():
            with open("/proc/%d/ns/net" % keeper.pid) as ns:
                entered.append(ctypes.CDLL(None).setns(ns.fileno(), 0x40000000))
            server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            server.bind(("127.0.0.1", 53))
            self.listeners.append(server)
        thread = threading.Thread(target=enter)    # only this thread is there
        thread.start()
        thread.join()
        self.assertEqual(entered, [0])
        with open(self.dir + "/log", "ab") as log:
            self.process = subprocess.Popen(["nsenter", "--target", str(keeper.pid), "--net", BIN + "/wbbroker", "--config",
                                             self.dir + "/c.yaml"], stderr=log, stdin=subprocess.DEVNULL)
        until(lambda: "wbbroker: ready" in self.log_text())

    def test_39_answers_to_a_client_that_does_not_read(self):
        self.begin()
        request = b"GET http://no.example.net/ HTTP/1.1\r\nHost: no.example.net\r\n\r\n"
        with self.dial() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sender = threading.Thread(target=s.sendall, args=(request * 1999 + request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),))
            sender.start()
            time.sleep(1)
            data = read_all(s)
            sender.join()
        answers = 0
        while data:
            head, _, data = data.partition(b"\r\n\r\n")
            self.assertEqual(head[:12], b"HTTP/1.1 403")
            n = int(re.search(rb"Content-Length: (\d+)", head).group(1))
            self.assertEqual(json.loads(data[:n])["reason"], "no_rule")
            data = data[n:]
            answers += 1
        self.assertEqual(answers, 2000)
        self.nothing_is_left()

    def test_40_ends_that_vanish_while_bytes_flow(self):
        def leaves(connection):
            connection.recv(random.choice([1, 100, 100000]))

        def floods(connection):
            while True:
                connection.sendall(b"f" * 65536)
        services = [{"name": name + ".example.org", "ports": [7], "connect": self.serve(name, handler)}
                    for name, handler in [("leaves", leaves), ("floods", floods)]]
        self.write("p.yaml", POLICY + "".join("  - {pattern: %s.example.org, ports: [7], protocol: tcp}\n" % n for n in ["leaves", "floods"]))
        self.begin(services=services)
        broker = self.broker_pid()
        for _ in range(100):
            _, s = self.tunnel(target="leaves.example.org:7")
            try:
                while True:
                    s.sendall(b"u" * 65536)
            except ConnectionError:
                s.close()
            _, s = self.tunnel(target="floods.example.org:7")
            s.recv(100)
            s.close()
        self.assertEqual(self.broker_pid(), broker)
        self.nothing_is_left()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    unittest.main()
