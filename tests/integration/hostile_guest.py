#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
A guest that closes at any byte, sends garbage, or floods: each connection gets an answer or an end, nothing leaks, the neighbour does not
notice, and the audit stays JSON lines. No network: the one allowed name is a service behind a unix socket. Needs WB_BIN and WB_CASES.
"""
import base64
import glob
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from processes import children, until

BIN = os.environ["WB_BIN"]
CASES = os.environ["WB_CASES"]

POLICY = """isolation: trusted
network: allowlist_domain
egress_rules:
  - {pattern: a.example.org, ports: [80], protocol: auto}
"""
CONNECT = b"CONNECT a.example.org:80 HTTP/1.1\r\nHost: a.example.org:80\r\n\r\n"
GET = b"GET /x HTTP/1.1\r\nHost: a.example.org\r\n\r\n"
POST = b"POST http://a.example.org/x HTTP/1.1\r\nHost: a.example.org\r\nTransfer-Encoding: chunked\r\n\r\n5;e\r\nhello\r\n0\r\nT: v\r\n\r\n"
SOCKS = b"\x05\x01\x00\x05\x01\x00\x03\x0da.example.org\x00\x50"
HELLO = base64.b64decode(next(c for c in json.loads(pathlib.Path(CASES, "client_hello.json").read_bytes()) if c["id"] == "hello-two-records")["hello64"])
STREAMS = [CONNECT + GET, POST, SOCKS + GET, CONNECT + HELLO]


def serve(connection):
    """Reads a head, answers it; what follows is swallowed."""
    try:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return
            data += more
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        while connection.recv(65536):
            pass
    except OSError:
        pass
    finally:
        connection.close()


class HostileGuest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="wb-hostile-", dir="/tmp")
        os.chmod(self.dir, 0o755)
        for vm in "ab":
            os.makedirs("%s/vm/%s" % (self.dir, vm))
        with open(self.dir + "/p.yaml", "w") as f:
            f.write(POLICY)
        self.origin = socket.socket(socket.AF_UNIX)
        self.origin.bind(self.dir + "/origin.sock")
        os.chmod(self.dir + "/origin.sock", 0o666)
        self.origin.listen(128)
        threading.Thread(target=self.accept, daemon=True).start()
        vms = [{"name": vm, "backend": "runc", "transport": "unix", "path": "%s/vm/%s" % (self.dir, vm), "agent": False, "policy": "p.yaml"}
               for vm in "ab"]
        config = {"state_dir": self.dir + "/state", "run_dir": self.dir + "/run", "workers": 1, "isolation": {"trust_declared": True},
                  "audit": {"dir": self.dir + "/audit", "required": True}, "vms": vms,
                  "services": [{"name": "a.example.org", "ports": [80], "connect": "unix:%s/origin.sock" % self.dir}],
                  "timeouts": {"request_head_ms": 1000, "client_hello_ms": 1000, "connect_ms": 2000, "idle_ms": 5000}}
        with open(self.dir + "/c.yaml", "w") as f:
            json.dump(config, f)
        self.log = open(self.dir + "/log", "wb")
        self.process = subprocess.Popen([BIN + "/wbbroker", "--config", self.dir + "/c.yaml"], stderr=self.log, stdin=subprocess.DEVNULL)
        until(lambda: "wbbroker: ready" in self.log_text(), "no broker: %s" % self.dir)
        self.fetch("b")
        self.fds = self.fds_n()
        self.rss = self.rss_kib()

    def tearDown(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        self.origin.close()
        for path in glob.glob(self.dir + "/audit/audit.log*"):
            for line in pathlib.Path(path).read_bytes().splitlines():
                json.loads(line)
        self.log.close()
        log = self.log_text()
        shutil.rmtree(self.dir)
        self.assertEqual(status, 0, log)

    def accept(self):
        while True:
            try:
                connection, _ = self.origin.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def log_text(self):
        return pathlib.Path(self.dir, "log").read_text(errors="replace")

    def broker(self):
        """The process behind the monitor that reads the guests' bytes."""
        return children(self.process.pid)[0]

    def fds_n(self):
        return len(os.listdir("/proc/%d/fd" % self.broker()))

    def rss_kib(self):
        with open("/proc/%d/status" % self.broker()) as f:
            return int(next(line for line in f if line.startswith("VmRSS")).split()[1])

    def connect(self, vm):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(15)
        s.connect("%s/vm/%s/1025" % (self.dir, vm))
        return s

    def fetch(self, vm):
        """A request as a well-behaved guest makes it; how long it took."""
        begin = time.monotonic()
        with self.connect(vm) as s:
            s.sendall(b"GET http://a.example.org/ HTTP/1.1\r\nHost: a.example.org\r\nConnection: close\r\n\r\n")
            self.assertTrue(self.read_to_end(s).startswith(b"HTTP/1.1 200 "))
        return time.monotonic() - begin

    def read_to_end(self, s):
        data = b""
        while True:
            try:
                more = s.recv(65536)
            except ConnectionError:
                return data
            if not more:
                return data
            data += more

    def send(self, s, data):
        try:
            s.sendall(data)
        except ConnectionError:
            pass

    def nothing_is_left(self):
        until(lambda: self.fds_n() <= self.fds, "descriptors leak: %d, now %d" % (self.fds, self.fds_n()))
        self.assertLess(self.rss_kib() - self.rss, 64 * 1024)
        self.fetch("b")

    def test_a_guest_that_goes_away_at_any_byte(self):
        for stream in STREAMS:
            for cut in range(len(stream)):
                with self.connect("a") as s:
                    self.send(s, stream[:cut])
        self.nothing_is_left()

    def test_a_guest_that_half_closes_at_any_byte(self):
        for stream in STREAMS:
            for cut in range(0, len(stream), 3):
                with self.connect("a") as s:
                    self.send(s, stream[:cut])
                    s.shutdown(socket.SHUT_WR)
                    self.read_to_end(s)  # times out if there is no end
        self.nothing_is_left()

    def test_a_guest_that_sends_changed_bytes(self):
        source = random.Random(1025)
        for _ in range(600):
            data = bytearray(source.choice(STREAMS))
            for _ in range(source.randint(1, 8)):
                at = source.randrange(len(data))
                data[at:at + source.randint(0, 2)] = source.choice([b"", b"\n", b"\0", b"\r\n\r\n", bytes([source.randrange(256)])])
                data = data or bytearray(b"x")
            with self.connect("a") as s:
                self.send(s, data)
                s.shutdown(socket.SHUT_WR)
                self.read_to_end(s)
        self.nothing_is_left()

    def test_a_flood_that_says_nothing(self):
        flood = [self.connect("a") for _ in range(200)]
        self.assertLess(self.fetch("b"), 2)
        for s in flood:  # timeouts.request_head_ms ends each
            self.read_to_end(s)
            s.close()
        self.nothing_is_left()

    def test_a_head_without_an_end(self):
        with self.connect("a") as s:
            self.send(s, b"GET http://a.example.org/ HTTP/1.1\r\nHost: a.example.org\r\n" + b"X: y\r\n" * 200000)
            self.assertTrue(self.read_to_end(s).startswith(b"HTTP/1.1 400 "))
        self.nothing_is_left()


if __name__ == "__main__":
    unittest.main()
