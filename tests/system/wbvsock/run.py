#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wbvsock with a real guest. Each test_* is one promise of the device; they share one VM, in the order of the file."""

import argparse
import errno
import itertools
import os
import random
import signal
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import vm as vms

MEGA = 1024 * 1024
PERIOD = 65521


def checksum(data, state=(0, 0)):
    """Fletcher over 32 bits, in closed form: numpy is not everywhere."""
    a, b = state
    n = len(data)
    total = sum(data)
    weighted = sum_weighted(data)
    return (a + total) & 0xFFFFFFFF, (b + n * a + weighted) & 0xFFFFFFFF


def sum_weighted(data):
    """Sum of (n - i) * data[i]."""
    return sum(itertools.accumulate(data))


def text(state):
    return f"{state[1]:08x}{state[0]:08x}"


def pattern(n):
    """What the guest's send_pattern() sends, whole periods of it repeated."""
    block = bytes((i * 7 + (i >> 8)) & 0xFF for i in range(PERIOD))
    return (block * (n // PERIOD + 1))[: n // PERIOD * PERIOD] + block[: n % PERIOD]


def read_all(s):
    data = bytearray()
    while chunk := s.recv(MEGA):
        data += chunk
    return bytes(data)


def number(word):
    return int(word, 10) if word.isdigit() else word


def command(vm, line):
    with vm.dial(7003) as s:
        s.sendall(line.encode() + b"\n")
        return [number(w) for w in read_all(s).decode().split()]


def echo_forever(listener):
    """Serves an echo at a host's port, a thread for each connection, until the listener is closed."""
    def serve(c):
        with c:
            try:
                while data := c.recv(65536):
                    c.sendall(data)
            except OSError:
                pass

    def accept():
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(c,), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()


def report(what, value):
    print(f"    {what}: {value}", flush=True)


def test_boots_and_answers(vm):
    start = time.monotonic()
    with vm.dial(7000) as s:
        report("start to first connection", f"{time.monotonic() - start:.1f} s")
        s.sendall(b"ping")
        assert s.recv(4) == b"ping"


def test_round_trip(vm):
    with vm.dial(7000) as s:
        times = []
        for _ in range(200):
            start = time.monotonic()
            s.sendall(b"x")
            assert s.recv(1) == b"x"
            times.append(time.monotonic() - start)
        report("round trip, median", f"{sorted(times)[100] * 1e3:.2f} ms")


def test_50_mb_to_the_guest(vm):
    data = random.Random(1).randbytes(50 * MEGA)
    with vm.dial(7001) as s:
        s.settimeout(120)
        start = time.monotonic()
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        answer = read_all(s).decode().split()
        report("to the guest, summed there", f"{len(data) / 1e6 / (time.monotonic() - start):.0f} MB/s")
    assert answer == [str(len(data)), text(checksum(data))], answer


def test_speed_to_the_guest(vm):
    data = bytes(100 * MEGA)
    with vm.dial(7005) as s:
        s.settimeout(120)
        start = time.monotonic()
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        answer = read_all(s)
        report("to the guest", f"{len(data) / 1e6 / (time.monotonic() - start):.0f} MB/s")
    assert answer == b"%d\n" % len(data)


def test_50_mb_from_the_guest_and_its_half_close(vm):
    """The guest shuts its side after 50 MB; what the host sends after that still arrives."""
    late = random.Random(2).randbytes(3 * MEGA)
    result = vm.listen(9001)
    with vm.dial(7002) as s:
        s.settimeout(120)
        start = time.monotonic()
        s.sendall(b"%d\n" % (50 * MEGA))
        data = read_all(s)
        report("from the guest", f"{len(data) / 1e6 / (time.monotonic() - start):.0f} MB/s")
        assert len(data) == 50 * MEGA and data == pattern(50 * MEGA)
        s.sendall(late)
        s.shutdown(socket.SHUT_WR)
        c, _ = result.accept()
        with c:
            assert read_all(c).decode().split() == [str(len(late)), text(checksum(late))]


def test_host_half_close_keeps_the_other_way(vm):
    """The host shuts its side at once; the echo of all it has sent still comes, and then the end."""
    data = random.Random(3).randbytes(5 * MEGA)
    with vm.dial(7000) as s:
        sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        sender.start()
        got = read_all(s)
        sender.join()
    assert got == data


def test_data_behind_the_connect_line_in_one_write(vm):
    s = vms.connect(vm.path("v"), 5)
    with s:
        s.settimeout(20)
        s.sendall(b"CONNECT 7000\nearly")
        s.shutdown(socket.SHUT_WR)
        answer = read_all(s)
    assert answer.startswith(b"OK ") and answer.endswith(b"\nearly"), answer


def test_guest_pushes_and_the_host_answers(vm):
    """Also from a socket with a small buffer: Linux then sends that much on credit, however much is granted."""
    data = random.Random(5).randbytes(100_000)
    listener = vm.listen(9008)
    for line, n in (("push 9008 5000000", 5_000_000), ("trickle 9008 200000", 200_000)):
        result = []
        asking = threading.Thread(target=lambda: result.extend(command(vm, line)))
        asking.start()
        c, _ = listener.accept()
        with c:
            c.settimeout(20)
            got = read_all(c)
            c.sendall(data)
        asking.join()
        assert got == pattern(n)
        assert result[2:4] == [len(data), number(text(checksum(data)))], result


def test_200_connections_from_the_host(vm):
    sockets = [vm.dial(7000) for _ in range(200)]
    for i, s in enumerate(sockets):
        s.sendall(b"%8d" % i)
    for i, s in enumerate(sockets):
        assert s.recv(8, socket.MSG_WAITALL) == b"%8d" % i
        s.close()


def test_200_connections_from_the_guest(vm):
    listener = vm.listen(9002)
    echo_forever(listener)
    assert command(vm, "many 9002 200") == [200, 0]


def test_1000_connections_at_once(vm):
    """Of each origin, and all are alive."""
    listener = vm.listen(9006)
    echo_forever(listener)
    sockets = [vm.dial(7000) for _ in range(1000)]
    for i, s in enumerate(sockets):
        s.sendall(b"%8d" % i)
    assert command(vm, "many 9006 1000") == [1000, 0]
    for i, s in enumerate(sockets):
        assert s.recv(8, socket.MSG_WAITALL) == b"%8d" % i
        s.close()


def test_slow_reader_gets_all_when_the_guest_has_long_closed(vm):
    """Linux gives up on a connection after 8 s; its bytes are not lost for that."""
    data = random.Random(4).randbytes(350_000)
    with vm.dial(7000) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        time.sleep(10)
        assert read_all(s) == data


def test_transfers_at_once_do_not_starve_each_other(vm):
    """A slow reader of a large transfer holds up nobody."""
    with vm.dial(7002) as slow:
        slow.sendall(b"%d\n" % (20 * MEGA))
        time.sleep(0.3)
        start = time.monotonic()
        with vm.dial(7000) as s:
            s.sendall(b"ping")
            assert s.recv(4) == b"ping"
        assert time.monotonic() - start < 2
        slow.settimeout(60)
        assert len(read_all(slow)) == 20 * MEGA


def test_unserved_ports_are_refused_at_once(vm):
    code, micros = command(vm, "connect 9999")
    report("guest's refusal", f"{errno.errorcode[code]} in {micros / 1e3:.1f} ms")
    assert code in (errno.ECONNREFUSED, errno.ECONNRESET) and micros < 500_000
    start = time.monotonic()
    try:
        vm.dial(7999, once=True)
        raise AssertionError("port 7999 is not served")
    except ConnectionRefusedError:
        report("host's refusal", f"{(time.monotonic() - start) * 1e3:.1f} ms")
    assert time.monotonic() - start < 0.5


def test_lines_that_are_no_connect_are_closed(vm):
    for line in (b"HELLO\n", b"CONNECT\n", b"CONNECT x\n", b"CONNECT -1\n", b"CONNECT 4294967296\n", b"CONNECT 1 2\n",
                 b"\n", b"C" * 100, b"connect 7000\n", b"CONNECT 7000\0\n"):
        s = vms.connect(vm.path("v"), 5)
        with s:
            s.settimeout(5)
            s.sendall(line)
            try:
                assert s.recv(1) == b"", line
            except ConnectionResetError:
                pass


def test_full_host_backlog_is_waited_for(vm):
    """A listener that is slow to accept gets its connections when it does."""
    s = socket.socket(socket.AF_UNIX)
    s.bind(vm.path("v_9003"))
    s.listen(0)
    with s:
        fill = [vms.connect(vm.path("v_9003"), 1)]      # the one that the backlog holds
        threading.Timer(0.5, lambda: echo_forever(s)).start()
        assert command(vm, "many 9003 3") == [3, 0]
        fill[0].close()


def test_guest_backlog_full_is_a_refusal(vm):
    refused = 0
    held = []
    for _ in range(8):
        try:
            held.append(vm.dial(7004, once=True))
        except ConnectionRefusedError:
            refused += 1
    assert refused >= 4, refused
    for s in held:
        s.close()


def test_host_that_vanishes_is_seen_by_the_guest(vm):
    listener = vm.listen(9004)
    with vm.dial(7003) as s:
        s.sendall(b"hold 9004\n")
        c, _ = listener.accept()
        assert s.recv(64) == b"held 0\n"
        c.close()
        assert s.recv(64).split()[0] == b"0"


def test_connects_of_the_guest_for_a_while(vm):
    listener = vm.listen(9005)
    echo_forever(listener)
    good, micros, longest, error = command(vm, "churn 9005 1000")
    report("guest's connects", f"{1e6 * good / micros:.0f} a second, the longest {longest / 1e3:.0f} ms")
    assert good == 1000, (good, longest, error)
    with vm.dial(7000) as s:
        s.sendall(b"ping")
        assert s.recv(4) == b"ping"


def descriptors(vm):
    return len(os.listdir(f"/proc/{vm.wbvsock.pid}/fd"))


def test_nothing_is_leaked(vm):
    if os.getuid() != 0:
        report("not run", "/proc shows the descriptors of a process that may not be dumped to root alone")
        return
    deadline = time.monotonic() + 15
    while descriptors(vm) > 40 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert descriptors(vm) <= 40, descriptors(vm)


def test_stop_and_cont_keep_connections(vm):
    with vm.dial(7000) as s:
        s.sendall(b"before")
        assert s.recv(6, socket.MSG_WAITALL) == b"before"
        vm.monitor.do("stop")
        s.sendall(b"during")
        s.settimeout(0.5)
        try:
            s.recv(1)
            raise AssertionError("a stopped guest has answered")
        except TimeoutError:
            pass
        vm.monitor.do("cont")
        s.settimeout(20)
        assert s.recv(6, socket.MSG_WAITALL) == b"during"


def test_stop_and_cont_in_the_middle_of_transfers(vm):
    data = random.Random(6).randbytes(20 * MEGA)
    with vm.dial(7002) as down, vm.dial(7001) as up:
        down.settimeout(60)
        up.settimeout(60)
        down.sendall(b"%d\n" % (30 * MEGA))
        sender = threading.Thread(target=lambda: (up.sendall(data), up.shutdown(socket.SHUT_WR)))
        sender.start()
        got = down.recv(MEGA)
        for _ in range(3):
            vm.monitor.do("stop")
            time.sleep(0.1)
            vm.monitor.do("cont")
            got += down.recv(MEGA)
        got += read_all(down)
        sender.join()
        assert got == pattern(30 * MEGA)
        assert read_all(up).decode().split() == [str(len(data)), text(checksum(data))]


def test_reboot_ends_connections_and_comes_back(vm):
    with vm.dial(7000) as s:
        s.sendall(b"ping")
        assert s.recv(4) == b"ping"
        with vm.dial(7003) as c:
            c.sendall(b"reboot\n")
        s.settimeout(60)
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass
        test_boots_and_answers(vm)


def test_reset_by_the_monitor(vm):
    with vm.dial(7000):
        vm.monitor.do("system_reset")
        time.sleep(0.5)
        test_boots_and_answers(vm)


def test_unplug_and_replug(vm):
    with vm.dial(7000) as s:
        s.sendall(b"ping")
        assert s.recv(4) == b"ping"
        vm.monitor.unplug("vsock0")
        vm.plug()
        start = time.monotonic()
        with vm.dial(7000) as again:
            report("device_add to first connection", f"{time.monotonic() - start:.2f} s")
            again.sendall(b"pong")
            assert again.recv(4) == b"pong"
        s.settimeout(20)
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass


def test_garbage_at_the_vmm_socket_is_survived(vm):
    """A second VMM is refused while there is one; the one is not disturbed."""
    for data in (b"", b"\xff" * 12, struct.pack("<III", 5, 1, 0xFFFFFFFF)):
        s = vms.connect(vm.path("vhost"), 5)
        with s:
            s.settimeout(5)
            try:
                s.sendall(data)
                assert s.recv(1) == b""
            except (ConnectionResetError, BrokenPipeError):
                pass
    with vm.dial(7000) as s:
        s.sendall(b"ping")
        assert s.recv(4) == b"ping"


def test_killed_and_replaced(vm):
    """The VM runs on without vsock; a new wbvsock and a new device bring it back."""
    with vm.dial(7000) as s:
        vm.wbvsock.send_signal(signal.SIGKILL)
        vm.wbvsock.wait()
        s.settimeout(5)
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass
    assert vm.monitor.do("query-status")["status"] == "running"
    vm.options += ["--max-connections", "8"]
    vm.wbvsock = vm.start_wbvsock()
    vm.monitor.unplug("vsock0")
    vm.monitor.do("chardev-remove", id="vs")
    address = {"type": "unix", "data": {"path": vm.path("vhost")}}
    vm.monitor.do("chardev-add", id="vs", backend={"type": "socket", "data": {"addr": address, "server": False}})
    vm.plug()
    with vm.dial(7000) as s:
        s.sendall(b"ping")
        assert s.recv(4) == b"ping"


def test_bound_of_connections(vm):
    """Eight of the guest's are served, the rest refused; the host's are not touched by that, and room comes back."""
    listener = vm.listen(9007)
    echo_forever(listener)
    for _ in range(2):
        assert command(vm, "many 9007 20") == [8, 12]
        time.sleep(0.2)
    held = [vm.dial(7000) for _ in range(8)]
    try:
        vm.dial(7000, once=True)
        raise AssertionError("a ninth connection of the host")
    except ConnectionRefusedError:
        pass
    for s in held:
        s.close()
    vm.dial(7000).close()


def test_qemu_gone_ends_connections_and_a_new_one_is_served(vm):
    with vm.dial(7000) as s:
        vm.qemu.kill()
        vm.qemu.wait()
        s.settimeout(5)
        try:
            assert s.recv(1) == b""
        except ConnectionResetError:
            pass
    vm.qemu = vm.start_qemu()
    test_boots_and_answers(vm)


def test_sigterm_leaves_nothing(vm):
    vm.wbvsock.send_signal(signal.SIGTERM)
    assert vm.wbvsock.wait(5) == 0
    assert not os.path.exists(vm.path("v")) and not os.path.exists(vm.path("vhost"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wbvsock", required=True)
    parser.add_argument("--guest", required=True, help="the static guest program")
    parser.add_argument("--cache", required=True, help="where a kernel is unpacked if the machine has none")
    parser.add_argument("--qemu", default="qemu-system-x86_64")
    parser.add_argument("tests", nargs="*", help="names of tests, without test_; default: all")
    arguments = parser.parse_args()
    tests = {n[5:]: f for n, f in globals().items() if n.startswith("test_")}
    # A SIGTERM by ctest must unwind too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with vms.Machine(arguments) as vm:
            for name in arguments.tests or tests:
                start = time.monotonic()
                print(f"  {name}", flush=True)
                tests[name](vm)
                report("took", f"{time.monotonic() - start:.1f} s")
    except vms.Unavailable as e:
        print(f"skipped: {e}")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
