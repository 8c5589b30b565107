#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The limits of a policy, measured where the bytes arrive: rates are exact within 5 % over 10 s, in each direction, of a rule and of the VM
above it, shared by all connections and fair among them, never more at once than burst_bytes, and not to be had anew by connecting again.
Needs WB_BIN. Takes a minute, most of it waiting.
"""
import os
import signal
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from broker_process import until    # noqa: E402
from wire_world import World, read_all, read_head    # noqa: E402

LATE_S = 0.25      # bytes that arrived may wait so long for this machine to look at them
WINDOW_S = 10


class Meter:
    """Arrivals of a bucket's bytes: the sum over all of its connections, and each connection's own."""

    def __init__(self):
        self.lock = threading.Lock()
        self.arrivals = []
        self.of = {}

    def take(self, who, n):
        with self.lock:
            self.arrivals.append((time.monotonic(), n))
            self.of[who] = self.of.get(who, 0) + n

    def between(self, begin, end):
        return sum(n for at, n in self.arrivals if begin < at <= end)

    def burst(self, rate):
        """The most that came on top of the rate in any interval."""
        most = total = 0
        least = None
        for at, n in self.arrivals:
            before = total - rate * at
            least = before if least is None else min(least, before)
            total += n
            most = max(most, total - rate * at - least)
        return most


class Limits(World):
    def setUp(self):
        super().setUp()
        self.sinks = {}
        self.ending = threading.Event()

    def tearDown(self):
        self.ending.set()
        super().tearDown()

    def flood(self, connection):
        while not self.ending.is_set():
            connection.sendall(b"d" * 65536)

    def page(self, connection):
        """An endless page."""
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        self.flood(connection)

    def sink(self, connection):
        """Its client says first, in a line, whose bytes these are."""
        name = b""
        while not name.endswith(b"\n"):
            name += connection.recv(1)
        meter, who = self.sinks[name.decode().strip()]
        while not self.ending.is_set():
            data = connection.recv(65536)
            if not data:
                return
            meter.take(who, len(data))

    def begin_with(self, policies, prefix=()):
        """A VM for each policy."""
        services = [{"name": "flood.example.org", "ports": [7], "connect": self.serve("flood", self.flood)},
                    {"name": "sink.example.org", "ports": [7], "connect": self.serve("sink", self.sink)},
                    {"name": "echo.example.org", "ports": [7], "connect": self.serve("echo", self.echo)},
                    {"name": "page.example.org", "ports": [80], "connect": self.serve("page", self.page)},
                    {"name": "web.example.org", "ports": [80], "connect": self.serve("web", self.web)}]
        vms = []
        for name, policy in policies.items():
            os.makedirs("%s/vm/%s" % (self.dir, name), exist_ok=True)
            self.write(name + ".yaml", "isolation: trusted\nnetwork: allowlist_domain\n" + policy)
            vms.append(self.vm(name, name + ".yaml"))
        self.config(vms, workers=1, services=services, audit={"dir": self.audit_dir, "sync": "batch", "required": True})
        self.start(prefix=prefix)

    def down(self, vm, meter, who, target="flood.example.org:7", chunk=65536):
        status, s = self.tunnel(vm, target)
        self.assertEqual(status, [b"200"])

        def run():
            with s:
                try:
                    while not self.ending.is_set():
                        data = s.recv(chunk)
                        if not data:
                            return
                        meter.take(who, len(data))
                except OSError:
                    pass
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return s, thread

    def up(self, vm, meter, who, chunk=65536):
        status, s = self.tunnel(vm, "sink.example.org:7")
        self.assertEqual(status, [b"200"])
        name = "%s-%s" % (vm, who)
        self.sinks[name] = meter, who

        def run():
            with s:
                try:
                    s.sendall(name.encode() + b"\n")
                    while not self.ending.is_set():
                        s.sendall(b"u" * chunk)
                except OSError:
                    pass
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return s, thread

    def check(self, what, meter, rate, burst, begin):
        with self.subTest(what=what):
            got = meter.between(begin, begin + WINDOW_S)
            self.assertLess(abs(got / WINDOW_S / rate - 1), 0.05, "%d bytes a second, not %d" % (got / WINDOW_S, rate))
            self.assertLess(meter.burst(rate), burst + rate * LATE_S)

    def check_fair(self, what, meter):
        with self.subTest(what=what):
            mean = sum(meter.of.values()) / len(meter.of)
            for who, n in meter.of.items():
                self.assertLess(abs(n / mean - 1), 0.25, "%s has %d, the mean is %d: %s" % (who, n, mean, meter.of))

    def test_rates(self):
        """One after the other it would take minutes; each VM has buckets of its own."""
        rule = 'egress_rules: [{pattern: "*.example.org", ports: [7], protocol: tcp, rate_bps: %d, burst_bytes: %d}]\n'
        both = ('egress_rules:\n  - {pattern: flood.example.org, ports: [7], protocol: tcp, rate_bps: 200000, burst_bytes: 20000}\n'
                '  - {pattern: "*.example.org", ports: [7], protocol: tcp}\n'
                'limits: {rate_bps: 600000, burst_bytes: 60000}\n')
        self.begin_with({
            "slow": rule % (20000, 4000), "fast": rule % (4000000, 65536), "mid": rule % (500000, 65536),
            "whole": 'egress_rules: [{pattern: "*.example.org", ports: [7], protocol: tcp}]\nlimits: {rate_bps: 500000, burst_bytes: 65536}\n',
            "both": both})
        meters = {}

        def meter(name):
            return meters.setdefault(name, Meter())
        self.down("slow", meter("slow down"), 0)
        self.up("slow", meter("slow up"), 0)
        self.down("fast", meter("fast down"), 0)
        self.up("fast", meter("fast up"), 0)
        for i in range(8):
            self.down("mid", meter("mid down"), i, chunk=[65536, 1000][i % 2])
            self.up("mid", meter("mid up"), "up%d" % i, chunk=[65536, 1000][i % 2])
        for i in range(3):
            self.down("whole", meter("whole down"), i)
            self.up("whole", meter("whole up"), "up%d" % i)
        for i in range(3):
            self.down("both", meter("both rule"), i)
        began = time.monotonic() + 1
        time.sleep(1 + WINDOW_S + 0.2)
        self.check("a slow rule, down", meters["slow down"], 20000, 4000, began)
        self.check("a slow rule, up", meters["slow up"], 20000, 4000, began)
        self.check("a fast rule, down", meters["fast down"], 4000000, 65536, began)
        self.check("a fast rule, up", meters["fast up"], 4000000, 65536, began)
        self.check("eight of a rule, down", meters["mid down"], 500000, 65536, began)
        self.check("eight of a rule, up", meters["mid up"], 500000, 65536, began)
        self.check("three of a VM, down", meters["whole down"], 500000, 65536, began)
        self.check("three of a VM, up", meters["whole up"], 500000, 65536, began)
        self.check("a rule below a VM", meters["both rule"], 200000, 20000, began)
        for name in ["mid down", "mid up", "whole down", "whole up", "both rule"]:
            self.check_fair(name, meters[name])

    def test_forty_of_a_slow_rule(self):
        self.begin_with({"a": 'egress_rules: [{pattern: "*.example.org", ports: [7], protocol: tcp, rate_bps: 200000, burst_bytes: 20000}]\n'})
        meter = Meter()
        for i in range(40):
            self.down("a", meter, i, chunk=[65536, 500][i % 2])
        began = time.monotonic() + 1
        time.sleep(1)
        meter.of = {}    # the first had the burst
        time.sleep(WINDOW_S + 0.2)
        self.check("forty of a rule", meter, 200000, 20000, began)
        self.assertEqual(len(meter.of), 40)
        self.check_fair("forty of a rule", meter)

    def test_two_rules_and_http_share_the_vm(self):
        self.begin_with({"a": "egress_rules:\n  - {pattern: flood.example.org, ports: [7], protocol: tcp, rate_bps: 10000000}\n"
                              "  - {pattern: page.example.org, ports: [80]}\n"
                              "limits: {rate_bps: 400000, burst_bytes: 40000}\n"})
        meter = Meter()
        for i in range(2):
            self.down("a", meter, "tunnel %d" % i)
        for i in range(2):
            s = self.dial("a")
            s.sendall(b"GET http://page.example.org/ HTTP/1.1\r\nHost: page.example.org\r\n\r\n")
            threading.Thread(target=self.drink, args=(s, meter, "page %d" % i), daemon=True).start()
        began = time.monotonic() + 1
        time.sleep(1 + WINDOW_S + 0.2)
        self.check("tunnels and pages", meter, 400000, 40000, began)
        self.check_fair("tunnels and pages", meter)

    def drink(self, s, meter, who):
        with s:
            while not self.ending.is_set():
                data = s.recv(65536)
                if not data:
                    return
                meter.take(who, len(data))

    def test_connecting_again_wins_nothing(self):
        self.begin_with({"a": 'egress_rules: [{pattern: "*.example.org", ports: [7], protocol: tcp, rate_bps: 200000, burst_bytes: 50000}]\n'})
        began = time.monotonic()
        got = rounds = 0
        while time.monotonic() < began + 5:
            status, s = self.tunnel("a", "flood.example.org:7")
            self.assertEqual(status, [b"200"])
            end = time.monotonic() + 0.1
            while time.monotonic() < end:
                n = len(s.recv(65536))
                self.assertGreater(n, 0)
                got += n
            s.close()
            rounds += 1
        took = time.monotonic() - began
        self.assertGreater(rounds, 10)
        self.assertLess(got, 50000 + 200000 * took * 1.05)
        self.assertGreater(got, 200000 * took / 2)    # what was on its way when a connection was closed is lost

    def test_quota_is_for_all_connections(self):
        self.begin_with({"a": 'egress_rules: [{pattern: "*.example.org", ports: [7], protocol: tcp, quota_bytes: 300000}]\n'})
        got = 0
        for _ in range(2):
            _, s = self.tunnel("a", "flood.example.org:7")
            got += len(s.recv(1000))
            s.close()
        _, s = self.tunnel("a", "flood.example.org:7")
        got += len(read_all(s))
        s.close()
        self.assertLessEqual(got, 300000)
        status, s = self.tunnel("a", "echo.example.org:7")
        self.assertEqual(status, [b"429"])
        self.assertNotIn(b"Retry-After", read_all(s))
        s.close()
        reasons = [r["reason"] for r in self.records() if r["event"] == "egress_deny"]
        self.assertEqual(reasons, ["quota_exceeded"] * len(reasons))

    def test_requests_a_second(self):
        self.begin_with({"a": "egress_rules: [{pattern: web.example.org, ports: [80], requests_per_s: 20}]\n"})
        began = time.monotonic()
        counts = {b"200": 0, b"429": 0}
        with self.dial("a") as s:
            while time.monotonic() < began + 3:
                s.sendall(b"GET http://web.example.org/ HTTP/1.1\r\nHost: web.example.org\r\n\r\n")
                head = read_head(s)
                status = head.split()[1]
                counts[status] += 1
                if status == b"429":
                    self.assertIn(b"\r\nRetry-After: 1\r\n", head)
                left = int(head.lower().split(b"content-length: ")[1].split()[0])
                while left:
                    left -= len(s.recv(left))
        took = time.monotonic() - began
        self.assertGreater(counts[b"429"], 0)
        self.assertGreaterEqual(counts[b"200"], 20 * took * 0.95)
        self.assertLessEqual(counts[b"200"], 20 + 20 * took * 1.05)

    def test_connections(self):
        self.begin_with({"a": "egress_rules:\n  - {pattern: echo.example.org, ports: [7], protocol: tcp, max_connections: 2}\n"
                              '  - {pattern: "*.example.org", ports: [7], protocol: tcp}\nlimits: {max_connections: 5}\n'})
        for _ in range(3):
            echo = [self.tunnel("a") for _ in range(3)]
            others = [self.tunnel("a", "flood.example.org:7") for _ in range(4)]
            self.assertEqual([status for status, _ in echo], [[b"200"], [b"200"], [b"429"]])
            self.assertEqual([status for status, _ in others], [[b"200"]] * 3 + [[b"429"]])
            for _, s in echo + others:
                s.close()
            until(lambda: self.control(op="vm_show", name="a")["vm"]["sessions_open"] == 0)

    def test_a_flood_of_connections_leaves_the_neighbour_alone(self):
        policy = "egress_rules: [{pattern: web.example.org, ports: [80]}]\n"
        self.begin_with({"a": policy, "b": policy})

        def flood():
            while not self.ending.is_set():
                try:
                    with self.dial("a") as s:
                        s.sendall(b"CONNECT no.example.net:443 HTTP/1.1\r\nHost: no.example.net:443\r\n\r\n")
                except OSError:
                    pass
        for _ in range(4):
            threading.Thread(target=flood, daemon=True).start()
        took = sorted(self.fetch("b") for _ in range(50))
        self.assertLess(took[25], 0.2)
        self.assertLess(took[-1], 1)

    def test_each_vm_has_its_share_of_the_descriptors(self):
        policy = 'egress_rules: [{pattern: "*.example.org", ports: [7, 80], protocol: tcp}]\n'
        self.begin_with({"a": policy, "b": policy}, prefix=["prlimit", "--nofile=400:400"])
        greedy = [self.dial("a") for _ in range(300)]
        time.sleep(0.5)
        others = [self.tunnel("b") for _ in range(40)]
        self.assertEqual([status for status, _ in others], [[b"200"]] * 40)
        self.assertLess(self.fds_n(), 400)
        for _, s in others:
            s.sendall(b"x" * 100000 + b"end")
            got = b""
            while not got.endswith(b"end"):
                got += s.recv(65536)
        refused = 0
        for s in greedy:
            s.setblocking(False)
            try:
                refused += b'details="connection_limit"' in s.recv(4096)
            except BlockingIOError:
                pass
            s.close()
        self.assertGreater(refused, 200)
        for _, s in others:
            s.close()

    def test_a_flood_of_denials_is_written_down_to_the_last(self):
        """Nobody asks for more than the audit log takes, and nobody else is refused for it."""
        self.write("p.yaml", "isolation: trusted\nnetwork: allowlist_domain\negress_rules:\n  - {pattern: web.example.org, ports: [80], http_paths: [/]}\n")
        self.config([self.vm("a", "p.yaml"), self.vm("b", "p.yaml")],
                    services=[{"name": "web.example.org", "ports": [80], "connect": self.serve("web", self.web)}])
        self.start()
        request = ("GET http://web.example.org/%s HTTP/1.1\r\nHost: web.example.org\r\n\r\n" % ('"' * 14000)).encode()
        ends, sent, answers = time.monotonic() + 3, [], []

        def flood():
            with self.dial("a") as s:
                reader = threading.Thread(target=lambda: answers.append(read_all(s).count(b"HTTP/1.1 403")))
                reader.start()
                n = 0
                while time.monotonic() < ends:
                    s.sendall(request)
                    n += 1
                s.shutdown(socket.SHUT_WR)
                reader.join()
                sent.append(n)
        threads = [threading.Thread(target=flood) for _ in range(6)]
        for t in threads:
            t.start()
        fetched = 0
        while time.monotonic() < ends:
            self.fetch("b")     # which asserts a 200
            fetched += 1
        for t in threads:
            t.join()
        self.stop()
        self.assertEqual(sum(answers), sum(sent))
        records = self.records()
        self.assertEqual(sum(r["event"] == "egress_deny" and r["vm"] == "a" for r in records), sum(sent))
        self.assertEqual(sum(r["event"] == "request" and r["vm"] == "b" for r in records), fetched)
        self.assertGreater(fetched, 10)
        self.assert_gapless()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    unittest.main()
