#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wbvsock without a VM: its command line, and what a VMM or a guest could do to it that QEMU and Linux never do."""

import argparse
import os
import pwd
import resource
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE = 1, 2, 3, 5
SET_NUM, SET_ADDR, SET_BASE, GET_BASE, SET_KICK, SET_CALL = 8, 9, 10, 11, 12, 13
GET_PROTOCOL, SET_PROTOCOL, SET_ENABLE, GET_CONFIG = 15, 16, 18, 24
NEED_REPLY = 8
REQUEST, RESPONSE, RST, SHUTDOWN, RW = 1, 2, 3, 4, 5

CID, SIZE, RAM = 7, 64, 1 << 20
USER = 0x7F0000000000
QUEUE_BYTES = 0x1000     # descriptors, available at 0x400, used at 0x800
DATA, SLOT = 0x10000, 0x1000
program = None


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(path)
    return s


class Device:
    """A wbvsock in a directory of its own."""

    def __init__(self, *options, user=None, directory=None):
        self.temporary = tempfile.TemporaryDirectory(prefix="wbvsock-")
        self.directory = directory or self.temporary.name
        run = program
        if user:
            os.chown(self.directory, user, -1)
            run = shutil.copy(program, self.directory)      # the build may be below root's home
        ready, inherited = os.pipe()
        self.process = subprocess.Popen(
            [run, "--socket", self.path("vhost"), "--uds", self.path("v"), "--cid", str(CID), "--ready-fd",
             str(inherited), *options], pass_fds=[inherited], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, user=user)
        os.close(inherited)
        with os.fdopen(ready, "rb") as f:
            self.ready = f.read() == b"\n"

    def path(self, name):
        return os.path.join(self.directory, name)

    def alive(self):
        return self.process.poll() is None

    def __enter__(self):
        assert self.ready, self.process.communicate(timeout=5)
        return self

    def __exit__(self, *error):
        was = self.process.poll()
        if was is None:
            self.process.terminate()
        text = self.process.communicate(timeout=10)[1].decode()
        self.temporary.cleanup()
        if error[0]:
            print(text)
        assert was in (None, 0), (was, text)


class Front:
    """The VMM's side, as small as it can be: one region of memory, two queues."""

    def __init__(self, device):
        self.socket = connect(device.path("vhost"))
        self.fd = os.memfd_create("ram")
        os.ftruncate(self.fd, RAM)
        self.kicks = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
        self.calls = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
        self.available = [0, 0]
        self.seen = [0, 0]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.socket.close()
        for fd in (self.fd, *self.kicks, *self.calls):
            os.close(fd)

    def send(self, request, payload=b"", fds=(), flags=1):
        socket.send_fds(self.socket, [struct.pack("<III", request, flags, len(payload)) + payload], list(fds))

    def receive(self):
        head = self.socket.recv(12, socket.MSG_WAITALL)
        if len(head) < 12:
            return None
        request, flags, size = struct.unpack("<III", head)
        assert flags & 7 == 5
        return self.socket.recv(size, socket.MSG_WAITALL) if size else b""

    def ask(self, *arguments, **more):
        self.send(*arguments, **more)
        return self.receive()

    def closed(self):
        try:
            return self.receive() is None
        except ConnectionError:
            return True

    def memory(self, size=RAM, offset=0, regions=1, guest=0):
        one = struct.pack("<QQQQ", guest, size, USER, offset)
        return struct.pack("<II", regions, 0) + one * regions

    def begin(self, features=(1 << 32 | 1 << 30 | 1 << 29 | 1 << 28), base=0):
        self.ask(GET_FEATURES)
        self.send(SET_PROTOCOL, struct.pack("<Q", 1 << 3 | 1 << 9))
        self.send(SET_OWNER)
        self.send(SET_FEATURES, struct.pack("<Q", features))
        assert self.ask(SET_MEM_TABLE, self.memory(), [self.fd], flags=1 | NEED_REPLY) == bytes(8)
        for i in range(2):
            at = USER + i * QUEUE_BYTES
            self.send(SET_CALL, struct.pack("<Q", i), [self.calls[i]])
            self.send(SET_NUM, struct.pack("<II", i, SIZE))
            self.send(SET_BASE, struct.pack("<II", i, base))
            self.send(SET_ADDR, struct.pack("<IIQQQQ", i, 0, at, at + 0x800, at + 0x400, 0))
            self.send(SET_KICK, struct.pack("<Q", i), [self.kicks[i]])
            assert self.ask(SET_ENABLE, struct.pack("<II", i, 1), flags=1 | NEED_REPLY) == bytes(8)
        return self

    def poke(self, at, data):
        os.pwrite(self.fd, data, at)

    def offer(self, queue, slot, length, flags=0, address=None, chain=0):
        if address is None:
            address = DATA + (queue * SIZE + slot) * SLOT
        self.poke(queue * QUEUE_BYTES + slot * 16, struct.pack("<QIHH", address, length, flags, chain))
        self.poke(queue * QUEUE_BYTES + 0x400 + 4 + self.available[queue] % SIZE * 2, struct.pack("<H", slot))
        self.available[queue] = (self.available[queue] + 1) & 0xFFFF
        self.poke(queue * QUEUE_BYTES + 0x400 + 2, struct.pack("<H", self.available[queue]))
        os.eventfd_write(self.kicks[queue], 1)

    def offer_rx(self, n=16):
        for i in range(n):
            self.offer(0, i, SLOT, 2)

    def packet(self, op, src_port, dst_port, data=b"", slot=0, cid=CID, dst=2, length=None, flags=0, credit=65536):
        header = struct.pack("<QQIIIHHIII", cid, dst, src_port, dst_port, len(data) if length is None else length, 1, op,
                             flags, credit, 0)
        self.poke(DATA + (SIZE + slot) * SLOT, header + data)
        self.offer(1, slot, len(header) + len(data))

    def heard(self, seconds=5):
        """The next packet for the guest: (op, src_port, dst_port, payload), or None."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            used = struct.unpack("<H", os.pread(self.fd, 2, 0x802))[0]
            if used != self.seen[0]:
                slot, length = struct.unpack("<II", os.pread(self.fd, 8, 0x804 + self.seen[0] % SIZE * 8))
                self.seen[0] = (self.seen[0] + 1) & 0xFFFF
                data = os.pread(self.fd, length, DATA + slot * SLOT)
                _, _, src, dst, n, _, op, _, _, _ = struct.unpack("<QQIIIHHIII", data[:44])
                assert length == 44 + n
                return op, src, dst, data[44:]
            time.sleep(0.005)
        return None


def refused(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=10)
    assert done.returncode == 2 and done.stderr, (arguments, done)


def test_wrong_usage_ends_with_2():
    refused()
    refused("--socket", "/tmp/x", "--cid", "3")
    refused("--socket", "/tmp/x", "--uds", "/tmp/y", "--cid", "2")
    refused("--socket", "/tmp/x", "--uds", "/tmp/y", "--cid", "4294967295")
    refused("--socket", "/tmp/x", "--socket-fd", "3", "--uds", "/tmp/y", "--cid", "3")
    refused("--socket", "/tmp/x", "--uds", "/tmp/" + "y" * 100, "--cid", "3")
    refused("--socket", "/tmp/x", "--uds", "/tmp/y", "--cid", "3", "--mode", "999")
    refused("--socket", "/tmp/x", "--uds", "/tmp/y", "--cid", "3", "--max-connections", "0")
    refused("--socket", "/tmp/x", "--uds", "/tmp/y", "--cid", "3", "more")
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=10)
    assert done.returncode == 0 and "example:" in done.stdout


def test_sockets_appear_ready_with_their_mode_and_go_at_the_end():
    with Device("--mode", "0660") as d:
        for name in ("vhost", "v"):
            assert stat.S_IMODE(os.stat(d.path(name)).st_mode) == 0o660
            connect(d.path(name)).close()
        assert sorted(os.listdir(d.directory)) == ["v", "vhost"]
        d.process.terminate()
        assert d.process.wait(5) == 0
        assert os.listdir(d.directory) == []


def test_living_sockets_are_not_taken_and_dead_ones_are():
    with Device() as d:
        second = Device(directory=d.directory)
        assert not second.ready and second.process.wait(5) == 1
        assert b"in use" in second.process.stderr.read()
        second.process.stderr.close()
        second.temporary.cleanup()
        d.process.kill()
        d.process.wait()
        assert sorted(os.listdir(d.directory)) == ["v", "vhost"]
        with Device(directory=d.directory):
            pass
        d.process.returncode = 0


def test_runs_unprivileged():
    nobody = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
    with Device(user=nobody) as d, Front(d) as f:
        f.begin().offer_rx()
        f.packet(REQUEST, 1000, 1025)
        assert f.heard() == (RST, 1025, 1000, b"")


def test_dies_with_its_parent():
    with tempfile.TemporaryDirectory() as t:
        script = ("import subprocess, sys, time\np = subprocess.Popen(sys.argv[1:], stderr=subprocess.DEVNULL)\n"
                  "print(p.pid, flush=True)\ntime.sleep(60)")
        parent = subprocess.Popen(
            [sys.executable, "-c", script, program, "--socket", t + "/vhost", "--uds", t + "/v", "--cid", "3",
             "--die-with-parent"], stdout=subprocess.PIPE, text=True)
        int(parent.stdout.readline())
        while not os.path.exists(t + "/vhost"):
            time.sleep(0.01)
        parent.kill()
        parent.communicate()
        deadline = time.monotonic() + 5
        while os.listdir(t) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert os.listdir(t) == []


def test_inherited_sockets():
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with tempfile.TemporaryDirectory() as t:
        p = subprocess.Popen([program, "--socket-fd", str(theirs.fileno()), "--uds", t + "/v", "--cid", "3"],
                             pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL)
        theirs.close()
        ours.settimeout(10)
        ours.sendall(struct.pack("<III", GET_FEATURES, 1, 0))
        assert len(ours.recv(20, socket.MSG_WAITALL)) == 20
        ours.close()
        assert p.wait(5) == 0           # connected from the start: --once


def test_once():
    with Device("--once") as d:
        connect(d.path("vhost")).close()
        assert d.process.wait(5) == 0


def test_config_is_the_cid():
    with Device() as d, Front(d) as f:
        assert f.ask(GET_CONFIG, struct.pack("<III8x", 0, 8, 0)) == struct.pack("<IIIQ", 0, 8, 0, CID)
        assert f.ask(GET_CONFIG, struct.pack("<III4x", 4, 4, 0))[12:] == bytes(4)
        assert f.ask(GET_CONFIG, struct.pack("<III8x", 4, 8, 0)) == b""


def test_bad_messages_end_the_vmm_and_not_the_device():
    with Device() as d:
        spare = os.memfd_create("spare")
        os.ftruncate(spare, 4096)
        bad = [
            lambda f: f.socket.sendall(b"\xff" * 12),
            lambda f: f.send(GET_FEATURES, b"x"),
            lambda f: f.send(GET_FEATURES, flags=5),
            lambda f: f.send(77),
            lambda f: f.send(SET_OWNER, fds=[spare]),
            lambda f: f.send(SET_FEATURES, struct.pack("<Q", 1)),
            lambda f: f.send(SET_NUM, struct.pack("<II", 2, 64)),
            lambda f: f.send(SET_BASE, struct.pack("<II", 0, 65536)),
            lambda f: f.send(SET_KICK, struct.pack("<Q", 0)),
            lambda f: f.send(SET_KICK, struct.pack("<Q", 0), [spare, spare]),
            lambda f: f.send(SET_MEM_TABLE, f.memory(), []),
            lambda f: f.send(SET_MEM_TABLE, f.memory(regions=9), [spare] * 9),
            lambda f: f.send(SET_MEM_TABLE, f.memory(size=8192), [spare]),
            lambda f: f.send(SET_MEM_TABLE, f.memory(size=4096, offset=1 << 63), [spare]),
            lambda f: f.send(SET_MEM_TABLE, f.memory(size=4096, regions=2), [spare] * 2),
            lambda f: f.send(SET_MEM_TABLE, f.memory(size=4096, guest=(1 << 64) - 1), [spare]),
            lambda f: f.send(SET_MEM_TABLE, f.memory(size=0), [spare]),
        ]
        for i, do in enumerate(bad):
            with Front(d) as f:
                f.ask(GET_FEATURES)
                do(f)
                assert f.closed(), i
            assert d.alive(), i
        os.close(spare)
        with Front(d) as f:
            assert len(f.ask(GET_FEATURES)) == 8


def test_message_byte_by_byte():
    with Device() as d, Front(d) as f:
        for c in struct.pack("<IIIIII", GET_BASE, 1, 8, 1, 0, 0)[:20]:
            f.socket.sendall(bytes([c]))
        assert f.receive() == struct.pack("<II", 1, 0)


def test_a_connection_each_way():
    with Device() as d, Front(d) as f:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(d.path("v_1025"))
        listener.listen()
        f.begin().offer_rx()
        f.packet(REQUEST, 1000, 1025)
        assert f.heard() == (RESPONSE, 1025, 1000, b"")
        c, _ = listener.accept()
        f.packet(RW, 1000, 1025, b"hello", slot=1)
        assert c.recv(5) == b"hello"
        c.sendall(b"world")
        assert f.heard() == (RW, 1025, 1000, b"world")
        c.close()
        assert f.heard()[0] == SHUTDOWN
        listener.close()

        h = connect(d.path("v"))
        h.sendall(b"CONNECT 1024\n")
        op, port, to, _ = f.heard()
        assert (op, to) == (REQUEST, 1024)
        f.packet(RESPONSE, 1024, port, slot=2)
        assert h.recv(32) == b"OK %d\n" % port
        f.packet(SHUTDOWN, 1024, port, slot=3, flags=3)
        assert h.recv(1) == b""
        assert f.heard() == (RST, port, 1024, b"")
        h.close()


def test_forged_packets():
    with Device() as d, Front(d) as f:
        f.begin().offer_rx()
        f.packet(REQUEST, 1000, 1025, cid=8)                    # another guest's CID: no answer
        f.packet(RST, 1000, 1025, slot=1)
        f.packet(RW, 1000, 1025, b"x", slot=2)                  # of no connection
        assert f.heard() == (RST, 1025, 1000, b"")
        f.packet(REQUEST, 1001, 1025, slot=3, dst=9)            # another CID
        assert f.heard() == (RST, 1025, 1001, b"")
        f.packet(99, 1002, 1025, slot=4)
        assert f.heard() == (RST, 1025, 1002, b"")
        f.offer(1, 5, 43)                                       # shorter than a header
        f.packet(RW, 1003, 1025, slot=6, length=4096)           # longer than it is
        assert f.heard() == (RST, 1025, 1003, b"")
        assert f.heard(0.2) is None


def test_credit_is_enforced():
    with Device("--buffer", "4K") as d, Front(d) as f:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(d.path("v_1025"))
        listener.listen()
        f.begin().offer_rx()
        f.packet(REQUEST, 1000, 1025)
        assert f.heard()[0] == RESPONSE
        c, _ = listener.accept()
        # Nobody reads: after the socket's buffer and ours there is no room, and a guest goes on all the same.
        ops = []
        for i in range(2000):
            f.packet(RW, 1000, 1025, b"x" * 4000, slot=1 + i % 32)
            if i % 32 == 31:
                time.sleep(0.002)
                f.offer_rx(4)
                while (heard := f.heard(0.001)):
                    ops.append(heard[0])
                if RST in ops:
                    break
        assert RST in ops, ops
        c.close()
        listener.close()
        assert d.alive()


def break_head(f):
    f.poke(0x1000 + 0x404, struct.pack("<H", 0xFFFF))
    f.poke(0x1000 + 0x402, struct.pack("<H", 1))


def break_loop(f):
    f.offer(1, 0, 4, flags=1, chain=0)


def break_address(f):
    f.offer(1, 0, 44, address=1 << 62)


def break_length(f):
    f.offer(1, 0, 0xFFFFFFFF)


def break_index(f):
    f.poke(0x1000 + 0x402, struct.pack("<H", 30000))


def break_indirect(f):
    f.offer(1, 0, 17, flags=4)


def break_rx(f):
    f.offer(0, 0, 44, 2)
    f.packet(RW, 1, 2)


def test_a_broken_queue_stays_silent_until_set_up_anew():
    for breaking in (break_head, break_loop, break_address, break_length, break_index, break_indirect, break_rx):
        with Device() as d, Front(d) as f:
            f.begin().offer_rx(1)
            waiting = connect(d.path("v"))
            waiting.sendall(b"CONNECT 1024\n")
            assert f.heard()[0] == REQUEST
            breaking(f)
            os.eventfd_write(f.kicks[1], 1)
            assert waiting.recv(1) == b"", breaking
            waiting.close()
            cpu = cpu_seconds(d.process.pid)
            time.sleep(0.2)
            assert d.alive() and cpu_seconds(d.process.pid) - cpu < 0.1, breaking
            h = connect(d.path("v"))
            h.sendall(b"CONNECT 1\n")
            assert h.recv(1) == b"", breaking
            h.close()
            f.socket.close()
            with Front(d) as g:
                g.begin().offer_rx()
                g.packet(REQUEST, 1000, 1025)
                assert g.heard() == (RST, 1025, 1000, b""), breaking


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_flood_of_requests_is_bounded():
    """Without rx buffers the answers wait: the guest's queue is left alone then, and nothing grows."""
    with Device() as d, Front(d) as f:
        f.begin()
        for i in range(3000):
            f.packet(REQUEST, i, 1025, slot=i % 32)
            if i % 32 == 31:
                time.sleep(0.001)
        used = struct.unpack("<H", os.pread(f.fd, 2, 0x1802))[0]
        assert used < 3000 and d.alive(), used


def test_few_descriptors():
    """Where none are left the guest is refused at once and the host waits; both go on when there are some again."""
    with Device() as d, Front(d) as f:
        resource.prlimit(d.process.pid, resource.RLIMIT_NOFILE, (100, 100))
        f.begin().offer_rx()
        held = [connect(d.path("v")) for _ in range(150)]
        time.sleep(0.3)
        cpu = cpu_seconds(d.process.pid)
        f.packet(REQUEST, 1000, 1025)
        assert f.heard() == (RST, 1025, 1000, b"")
        time.sleep(0.3)
        assert cpu_seconds(d.process.pid) - cpu < 0.1
        for s in held:
            s.close()
        h = connect(d.path("v"))
        h.sendall(b"CONNECT 1024\n")
        assert f.heard()[0] == REQUEST
        h.close()


def main():
    global program
    parser = argparse.ArgumentParser()
    parser.add_argument("--wbvsock", required=True)
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.wbvsock)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tests = {n[5:]: t for n, t in globals().items() if n.startswith("test_")}
    for name in arguments.tests or tests:
        start = time.monotonic()
        tests[name]()
        print(f"  {name}: {time.monotonic() - start:.2f} s", flush=True)


if __name__ == "__main__":
    main()
