#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Fifty VMs, most of them hostile in every way at once (closes at any byte, slow readers, slow heads, huge heads, resets, garbage, idle tunnels),
a few that just work. Nothing crashes, descriptors and memory come back, the good ones do not notice, the audit has no gap.

    WB_BIN=build/release/bin python3 tests/integration/load.py [--seconds 600] [--vms 50]

Says what it measured, as JSON.
"""
import argparse
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from broker_process import until    # noqa: E402
from wire_world import World, read_all, read_head    # noqa: E402

GOOD = 4
POLICY = """isolation: trusted
network: allowlist_domain
egress_rules:
  - {pattern: "*.tcp.example.org", ports: [7], protocol: tcp}
  - {pattern: web.example.org, ports: [80]}
  - {pattern: page.example.org, ports: [80]}
"""
GET = b"GET http://web.example.org/ HTTP/1.1\r\nHost: web.example.org\r\n\r\n"
PAGE = b"GET http://page.example.org/ HTTP/1.1\r\nHost: page.example.org\r\n\r\n"
DENIED = b"GET http://no.example.net/ HTTP/1.1\r\nHost: no.example.net\r\n\r\n"
POST = b"POST http://web.example.org/ HTTP/1.1\r\nHost: web.example.org\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
INSIDE = b"CONNECT web.example.org:80 HTTP/1.1\r\nHost: web.example.org:80\r\n\r\nGET / HTTP/1.1\r\nHost: web.example.org\r\n\r\n"
SOCKS = b"\x05\x01\x00\x05\x01\x00\x03\x0fweb.example.org\x00\x50GET / HTTP/1.1\r\nHost: web.example.org\r\n\r\n"
HELLO = b"CONNECT web.example.org:80 HTTP/1.1\r\nHost: web.example.org:80\r\n\r\n\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 300
STREAMS = [GET, DENIED, POST, INSIDE, SOCKS, HELLO]


class Hostile:
    """One VM's misdeeds, one after the other, from a seed."""

    def __init__(self, world, vm, seed):
        self.world, self.vm, self.random = world, vm, random.Random(seed)
        self.held = []
        self.acts = 0
        self.deeds = [self.leave, self.slow_reader, self.slow_head, self.huge_head, self.reset, self.half_close, self.garbage, self.pipeline,
                      self.idle, self.upload]

    def run(self):
        while not self.world.ending.is_set():
            try:
                self.random.choice(self.deeds)()
            except OSError:
                pass
            self.acts += 1
            time.sleep(self.random.random() * 0.05)
        for s in self.held:
            s.close()

    def dial(self):
        s = self.world.dial(self.vm)
        s.settimeout(5)
        return s

    def tunnel(self, name):
        _, s = self.world.tunnel(self.vm, name + ".tcp.example.org:7")
        s.settimeout(5)
        return s

    def leave(self):
        stream = self.random.choice(STREAMS)
        with self.dial() as s:
            s.sendall(stream[:self.random.randrange(len(stream) + 1)])

    def slow_reader(self):
        with self.dial() as s:
            s.sendall(PAGE)
            for _ in range(4):
                s.recv(100)
                time.sleep(0.2)

    def slow_head(self):
        with self.dial() as s:
            for byte in GET[:self.random.randrange(2, 20)]:
                s.sendall(bytes([byte]))
                time.sleep(0.05)

    def huge_head(self):
        with self.dial() as s:
            s.sendall(b"GET http://web.example.org/ HTTP/1.1\r\nHost: web.example.org\r\n" + b"X: %s\r\n" % (b"y" * 500) * 200)
            s.recv(100)

    def reset(self):
        """Closed with bytes unread."""
        s = self.tunnel("flood")
        s.recv(1)
        s.close()

    def half_close(self):
        stream = self.random.choice(STREAMS)
        with self.dial() as s:
            s.sendall(stream[:self.random.randrange(len(stream) + 1)])
            s.shutdown(socket.SHUT_WR)
            s.recv(100)

    def garbage(self):
        data = bytearray(self.random.choice(STREAMS))
        for _ in range(self.random.randint(1, 8)):
            data[self.random.randrange(len(data))] = self.random.randrange(256)
        with self.dial() as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            s.recv(100)

    def pipeline(self):
        with self.dial() as s:
            s.settimeout(1)
            s.sendall(DENIED * 200)

    def idle(self):
        self.held.append(self.tunnel("echo"))
        if len(self.held) > 20:
            self.held.pop(self.random.randrange(20)).close()

    def upload(self):
        with self.tunnel("echo") as s:
            s.settimeout(0.5)
            for _ in range(20):
                s.sendall(b"u" * 65536)    # and nothing of the echo is read


class Good:
    def __init__(self, world, vm):
        self.world, self.vm = world, vm
        self.took_s = []
        self.failed = []

    def run(self):
        while not self.world.ending.is_set():
            try:
                self.took_s.append(self.world.fetch(self.vm))
                self.echo()
            except (AssertionError, OSError) as e:
                self.failed.append(repr(e))
            time.sleep(0.1)

    def echo(self):
        _, s = self.world.tunnel(self.vm, "echo.tcp.example.org:7")
        with s:
            sent = os.urandom(20000)
            s.sendall(sent)
            s.shutdown(socket.SHUT_WR)
            assert read_all(s) == sent


class Load(World):
    seconds = 20
    vms = 50

    def flood(self, connection):
        while not self.ending.is_set():
            connection.sendall(b"d" * 16384)

    def page(self, connection):
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        self.flood(connection)

    def status(self, key):
        with open("/proc/%d/status" % self.broker_pid()) as f:
            return int(next(line for line in f if line.startswith(key)).split()[1])

    def start_world(self, names):
        self.ending = threading.Event()
        self.write("p.yaml", POLICY)
        for name in names:
            os.makedirs("%s/vm/%s" % (self.dir, name), exist_ok=True)
        services = [{"name": "echo.tcp.example.org", "ports": [7], "connect": self.serve("echo", self.echo)},
                    {"name": "flood.tcp.example.org", "ports": [7], "connect": self.serve("flood", self.flood)},
                    {"name": "page.example.org", "ports": [80], "connect": self.serve("page", self.page)},
                    {"name": "web.example.org", "ports": [80], "connect": self.serve("web", self.web)}]
        self.config([self.vm(n, "p.yaml") for n in names], workers=2, services=services,
                    audit={"dir": self.audit_dir, "sync": "batch", "required": True, "rotate_bytes": 16 << 20},
                    timeouts={"request_head_ms": 2000, "client_hello_ms": 2000, "connect_ms": 5000, "idle_ms": 30000})
        self.start()

    def sanitized(self):
        with open("/proc/%d/maps" % self.broker_pid()) as f:
            return "libasan" in f.read()

    def sessions(self):
        return sum(v["sessions_open"] for v in self.control(op="vm_ls")["vms"])

    def test_load(self):
        names = ["vm%d" % i for i in range(self.vms)]
        self.start_world(names)
        broker = self.broker_pid()
        self.fetch(names[0])
        fds = self.fds_n()
        good = [Good(self, name) for name in names[:GOOD]]
        hostile = [Hostile(self, name, i) for i, name in enumerate(names[GOOD:])]
        threads = [threading.Thread(target=x.run, daemon=True) for x in good + hostile]
        for t in threads:
            t.start()
        time.sleep(self.seconds / 4)
        warm_kib = self.status("VmRSS")
        time.sleep(self.seconds * 3 / 4)
        most_fds = self.fds_n()
        self.ending.set()
        for t in threads:
            t.join(30)
        until(lambda: self.sessions() == 0 and self.fds_n() <= fds, 60)
        took_s = sorted(t for g in good for t in g.took_s)
        figures = {"seconds": self.seconds, "vms": self.vms, "acts": sum(h.acts for h in hostile), "good_requests": len(took_s),
                   "good_failed": sum(len(g.failed) for g in good), "good_median_ms": round(took_s[len(took_s) // 2] * 1000, 1),
                   "good_p99_ms": round(took_s[len(took_s) * 99 // 100] * 1000, 1), "good_max_ms": round(took_s[-1] * 1000, 1), "fds_before": fds,
                   "fds_most": most_fds, "fds_after": self.fds_n(), "rss_warm_kib": warm_kib, "rss_peak_kib": self.status("VmHWM"),
                   "rss_after_kib": self.status("VmRSS"), "cpu_s": self.cpu_s()}
        print(json.dumps(figures))
        self.assertEqual([f for g in good for f in g.failed], [])
        self.assertGreater(len(took_s), self.seconds)
        self.assertLess(took_s[len(took_s) // 2], 0.5)
        if not self.sanitized():    # what is freed stays in its quarantine
            self.assertLess(figures["rss_after_kib"], warm_kib + 16 * 1024)
        self.assertEqual(self.broker_pid(), broker)
        self.stop()
        self.assert_gapless()
        self.assertNotIn("Sanitizer", self.log_text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=Load.seconds)
    parser.add_argument("--vms", type=int, default=Load.vms)
    options = parser.parse_args()
    Load.seconds, Load.vms = options.seconds, options.vms
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    unittest.main(argv=sys.argv[:1])
