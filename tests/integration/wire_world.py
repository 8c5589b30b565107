# SPDX-License-Identifier: Apache-2.0
"""A broker whose internet is services behind unix sockets: what the tests of the wire start from."""
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import broker_process    # noqa: E402
from broker_process import until    # noqa: E402


def read_all(s):
    data = b""
    try:
        while True:
            more = s.recv(65536)
            if not more:
                return data
            data += more
    except ConnectionError:
        return data


def read_head(s):
    data = b""
    while b"\r\n\r\n" not in data:
        more = s.recv(1)
        if not more:
            break
        data += more
    return data


POLICY = """isolation: trusted
network: allowlist_domain
egress_rules:
  - {pattern: echo.example.org, ports: [7], protocol: tcp, max_connections: 16}
  - {pattern: web.example.org, ports: [80]}
  - {pattern: "*.silent.example.org"}
"""


class World(broker_process.Case):
    """Two VMs, an echo on port 7 and a small web on port 80; what else there is, a test adds."""

    def setUp(self):
        super().setUp()
        self.write("p.yaml", POLICY)
        self.listeners = []

    def tearDown(self):
        for s in self.listeners:
            try:
                s.shutdown(socket.SHUT_RDWR)    # its thread ends, and does not accept for whoever gets the descriptor next
            except OSError:                     # closed already, or none that accepts
                pass
            s.close()
        if self.process and self.process.poll() is None:
            self.stop()
        super().tearDown()

    def serve(self, name, handler):
        path = "%s/%s.sock" % (self.dir, name)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen(512)
        self.listeners.append(listener)

        def run(connection):
            with connection:
                try:
                    handler(connection)
                except OSError:
                    pass

        def accept():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=run, args=(connection,), daemon=True).start()
        threading.Thread(target=accept, daemon=True).start()
        return "unix:" + path

    @staticmethod
    def echo(connection):
        while True:
            data = connection.recv(65536)
            if not data:
                return
            connection.sendall(data)

    @staticmethod
    def web(connection):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = connection.recv(65536)
                if not more:
                    return
                data += more
            _, _, data = data.partition(b"\r\n\r\n")
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def begin(self, services=(), start=None, **more):
        known = [{"name": "echo.example.org", "ports": [7], "connect": self.serve("echo", self.echo)},
                 {"name": "web.example.org", "ports": [80], "connect": self.serve("web", self.web)}]
        self.config([self.vm("a", "p.yaml"), self.vm("b", "p.yaml")], workers=1, services=known + list(services),
                    audit={"dir": self.audit_dir, "sync": "batch", "required": True}, **more)
        (start or self.start)()
        self.fetch("b")
        self.fds = self.fds_n()

    def fds_n(self):
        """Descriptors but for pipes: a worker keeps up to 32 empty ones."""
        directory = "/proc/%d/fd/" % self.broker_pid()
        targets = []
        for fd in os.listdir(directory):
            try:
                targets.append(os.readlink(directory + fd))
            except FileNotFoundError:    # closed since
                pass
        pipes = sum(target.startswith("pipe:") for target in targets)
        return len(targets) - pipes + max(0, pipes - 2 * 40)

    def cpu_s(self):
        with open("/proc/%d/stat" % self.broker_pid()) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def nothing_is_left(self):
        until(lambda: self.fds_n() <= self.fds)
        self.fetch("b")

    def dial(self, vm="a"):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(30)
        s.connect("%s/vm/%s/1025" % (self.dir, vm))
        return s

    def tunnel(self, vm="a", target="echo.example.org:7"):
        s = self.dial(vm)
        s.sendall(("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)).encode())
        return read_head(s).split()[1:2], s

    def fetch(self, vm):
        began = time.monotonic()
        with self.dial(vm) as s:
            s.sendall(b"GET http://web.example.org/ HTTP/1.1\r\nHost: web.example.org\r\nConnection: close\r\n\r\n")
            self.assertEqual(read_all(s)[:12], b"HTTP/1.1 200")
        return time.monotonic() - began
