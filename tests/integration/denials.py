#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A denial says what would allow it: its YAML lines, put into the policy as they stand, do. Needs WB_BIN."""
import json
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from broker_process import BIN, until    # noqa: E402
from wire_world import World, read_all, read_head    # noqa: E402

POLICY = """isolation: trusted
network: allowlist_domain
egress_rules:
  - {pattern: known.example.org}
  - {pattern: "*.paths.example.org", ports: [80], http_methods: ["GET"], http_paths: ["/a"]}
"""


class Denials(World):
    def setUp(self):
        super().setUp()
        self.policy = POLICY
        self.write("p.yaml", POLICY)

    def banner(self, connection):
        connection.sendall(b"SSH-2.0-test\r\n")
        connection.recv(100)

    def begin_here(self):
        self.config([self.vm("a", "p.yaml")], workers=1, services=[
            {"name": "ssh.example.org", "ports": [22, 443], "connect": self.serve("ssh", self.banner)},
            {"name": "known.example.org", "ports": [22, 443, 8080], "connect": self.serve("known", self.banner)},
            {"name": "new.example.org", "ports": [80, 8080], "connect": self.serve("new", self.web)},
            {"name": "x.paths.example.org", "ports": [80], "connect": self.serve("paths", self.web)}])
        self.start()

    def http(self, text):
        with self.dial() as s:
            s.sendall(text.encode())
            if text.startswith("CONNECT"):
                head = read_head(s)
                body = b"" if b" 200 " in head else s.recv(65536)
            else:
                head, _, body = read_all(s).partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)["detail"] if b"problem+json" in head else ""

    def last_denial(self):
        return until(lambda: [r for r in self.records() if r["event"] == "egress_deny"])[-1]

    def follow(self, detail):
        """Puts what the detail says in force."""
        line = re.search(r"- \{pattern: [^}]*\}", detail)
        if line:
            self.policy += "  %s\n" % line.group(0)
        else:
            key, value = re.search(r"It would take (\w+): (\[[^]]*\]|\w+) there", detail).groups()
            index = int(re.search(r"rule (\d+) \(line", detail).group(1))
            lines = self.policy.splitlines()
            at = [i for i, text in enumerate(lines) if text.startswith("  - ")][index]
            lines[at] = re.sub(r", %s: (\[[^]]*\]|\w+)" % key, "", lines[at])[:-1] + ", %s: %s}" % (key, value)
            self.policy = "\n".join(lines) + "\n"
        answer = self.control(op="vm_policy", name="a", policy=self.policy)
        self.assertTrue(answer["ok"], "%s\n%s" % (answer, self.policy))

    def test_over_http(self):
        self.begin_here()
        for request in ["CONNECT new.example.org:8080 HTTP/1.1\r\nHost: new.example.org:8080\r\n\r\n",
                        "GET http://new.example.org/ HTTP/1.1\r\nHost: new.example.org\r\nConnection: close\r\n\r\n",
                        "CONNECT known.example.org:8080 HTTP/1.1\r\nHost: known.example.org:8080\r\n\r\n",
                        "CONNECT known.example.org:22 HTTP/1.1\r\nHost: known.example.org:22\r\n\r\n",
                        "DELETE http://x.paths.example.org/a HTTP/1.1\r\nHost: x.paths.example.org\r\nConnection: close\r\n\r\n",
                        "GET http://x.paths.example.org/b?q HTTP/1.1\r\nHost: x.paths.example.org\r\nConnection: close\r\n\r\n"]:
            with self.subTest(request=request):
                status, detail = self.http(request)
                self.assertEqual(status, 403)
                self.assertIn("A retry will not help.", detail)
                until(lambda: detail == self.last_denial()["detail"])
                self.follow(detail)
                self.assertEqual(self.http(request)[0], 200)

    def socks(self, name, port):
        with self.dial() as s:
            s.sendall(b"\x05\x01\x00\x05\x01\x00\x03" + bytes([len(name)]) + name.encode() + port.to_bytes(2, "big"))
            got = b""
            while len(got) < 12:
                got += s.recv(12 - len(got))
            return got[3], s.recv(14) if got[3] == 0 else b""

    def test_over_socks_it_is_in_the_log(self):
        self.begin_here()
        self.assertEqual(self.socks("ssh.example.org", 22), (2, b""))
        detail = self.last_denial()["detail"]
        tail = subprocess.run([BIN + "/wbctl", "audit", "tail", "--dir", self.audit_dir], capture_output=True, text=True, timeout=20)
        self.assertIn('- {pattern: "ssh.example.org", ports: [22], protocol: tcp}', tail.stdout)
        self.follow(detail)
        self.assertEqual(self.socks("ssh.example.org", 22), (0, b"SSH-2.0-test\r\n"))

    def test_in_a_tunnel_it_is_in_the_log(self):
        """SSH where TLS or HTTP must come: the connection ends without a word, since none would be understood."""
        self.begin_here()
        status, s = self.tunnel("a", "known.example.org:443")
        self.assertEqual(status, [b"200"])
        s.sendall(b"SSH-2.0-client\r\n")
        self.assertEqual(read_all(s), b"")
        s.close()
        denial = self.last_denial()
        self.assertEqual(denial["reason"], "protocol_not_allowed")
        self.follow(denial["detail"])
        status, s = self.tunnel("a", "known.example.org:443")
        self.assertEqual(s.recv(14), b"SSH-2.0-test\r\n")
        s.close()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    unittest.main()
