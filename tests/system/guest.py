# SPDX-License-Identifier: Apache-2.0
"""A VM without a network card, the agent its PID 1: what wbctl says to it, what a host may say beside that, and snapshots."""

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time

import vm

def parser():
    p = argparse.ArgumentParser()
    for name in ("wbagent", "wbctl", "wbvsock", "builder"):
        p.add_argument("--" + name, required=True)
    p.add_argument("--cache", default="kernel", help="where a kernel's package is unpacked if the machine has none")
    p.add_argument("--qemu", default="qemu-system-x86_64")
    return p


def skip_unless_possible(arguments, *programs):
    with open(arguments.wbagent, "rb") as f:
        if b"/ld-linux" in f.read(4096):
            print("the agent is not static: a build with sanitizers")
            sys.exit(77)
    for program in (arguments.qemu, "socat", *programs):
        if not shutil.which(program):
            print("needs", program)
            sys.exit(77)
    if os.geteuid() != 0:
        print("needs root")
        sys.exit(77)


def build_image(arguments, work, *programs):
    command = [arguments.builder, "--agent", arguments.wbagent, "--out", work + "/image"]
    for program in programs:
        command += ["--program", program]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return work + "/image"


def evidence(activation, name):
    return next(s["evidence"] for s in activation["steps"] if s["name"] == name)


def wait_until(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "gave up waiting for " + what
        time.sleep(0.1)


# ---- the protocol (proto/wb.proto), as far as wbctl does not say it

def varint(n):
    out = b""
    while n > 0x7f:
        out, n = out + bytes([n & 0x7f | 0x80]), n >> 7
    return out + bytes([n])


def field(number, value):
    return varint(number << 3) + varint(value) if isinstance(value, int) else varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            value, shift, at = value | (data[at] & 0x7f) << shift, shift + 7, at + 1
            if data[at - 1] < 0x80:
                return value
    while at < len(data):
        key = number()
        value = number()
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        found[key >> 3] = value
    return found



CLOCK_PROBE, CLOCK_SAMPLE = 24, 24
ERROR, OK, ACTIVATE_STEP, ACTIVATE_DONE, CLOCK_REPORT = 1, 2, 4, 5, 73
QUIESCE, CLOCK_CHECK = field(3, b""), field(67, b"")


def activation(generation, seed, nonce, hostname=b"", secrets=()):
    """The bytes of an Activate."""
    body = field(1, seed) + field(2, nonce) + field(3, generation) + field(4, hostname) + field(5, 1)
    for name, value in secrets:
        body += field(6, field(1, name) + field(2, value))
    return field(2, body)


class Guest(vm.Machine):
    """kernel, init: more arguments for them. qemu_options: more for QEMU. memory_file: where the guest's memory lies, for a
    snapshot."""

    def __init__(self, arguments, cid, image, rtc=None, kernel=(), init=(), qemu_options=(), memory_file=None):
        super().__init__(arguments, cid)
        self.image_dir, self.rtc, self.kernel, self.init = image, rtc, list(kernel), list(init)
        self.qemu_options, self.memory_file = list(qemu_options), memory_file

    def prepare(self):
        pass

    def boot(self):
        with open(self.image_dir + "/cmdline") as f:
            cmdline = " ".join([f.read().strip(), *self.kernel, "--", *self.init])
        return ["-no-reboot", "-kernel", self.image_dir + "/kernel", "-initrd", self.image_dir + "/initrd", "-append", cmdline,
                *(["-rtc", "base=" + self.rtc] if self.rtc else []), *self.qemu_options]

    def memory(self):
        if not self.memory_file:
            return super().memory()
        return f"memory-backend-file,id=mem,size=256M,share=on,mem-path={self.memory_file}"

    # ---- what is said to it

    def wbctl(self, command, *args, status=0, **more):
        r = subprocess.run([self.arguments.wbctl, command, "--uds", self.path("v"), *args], capture_output=True, timeout=120,
                           **({} if "input" in more else {"stdin": subprocess.DEVNULL}), **more)
        assert r.returncode == status, "wbctl %s %s: %d: %s%s" % (command, args, r.returncode, r.stdout, r.stderr)
        return r.stdout.decode(errors="replace") + (r.stderr.decode(errors="replace") if status else "")

    def shell(self, script, **more):
        return self.wbctl("exec", "--timeout", "60s", "--", "sh", "-c", script, **more)

    def info(self, *args):
        return json.loads(self.wbctl("info", "--json", *args))

    def facts(self):
        return self.info()["facts"]

    def say(self, message, skew_ns=0):
        """One conversation, in which probes are answered by a clock that is that much ahead; what comes beside them, in order, as
        (number, fields)."""
        got = []
        with self.dial(1024, 90) as s, s.makefile("rb") as stream:
            s.settimeout(60)
            s.sendall(struct.pack(">I", len(message)) + message)
            while head := stream.read(4):
                (number, body), = fields(stream.read(struct.unpack(">I", head)[0])).items()
                if number == CLOCK_PROBE:
                    sample = field(CLOCK_SAMPLE, field(1, fields(body)[1]) + field(2, time.time_ns() + skew_ns))
                    s.sendall(struct.pack(">I", len(sample)) + sample)
                else:
                    got.append((number, fields(body)))
        return got

    def check_clock(self, skew_ns):
        """A ClockCheck from a host whose clock is that much ahead; the guest's report: what it did, offset, bound, drift."""
        (number, report), = self.say(CLOCK_CHECK, skew_ns)
        assert number == CLOCK_REPORT, (number, report)
        offset = report.get(3, 0)
        return report[1].decode(), offset >> 1 ^ -(offset & 1), report[4], report.get(5, 0)

    def quiesce(self):
        answer = self.say(QUIESCE)
        assert answer == [(OK, {})], answer

    def console(self):
        with open(self.path("console"), errors="replace") as f:
            return f.read()

    # ---- snapshots

    def save(self, state):
        """Into the files state and self.memory_file. The device goes first: QEMU cannot save it. Afterwards the guest is stopped."""
        self.monitor.unplug("vsock0")
        self.monitor.do("stop")
        self.leave_memory_where_it_is()
        self.monitor.do("migrate", uri="exec:cat >" + state)
        wait_until(lambda: self.monitor.do("query-migrate").get("status") in ("completed", "failed"), "the snapshot")
        assert self.monitor.do("query-migrate")["status"] == "completed", self.monitor.do("query-migrate")

    def leave_memory_where_it_is(self):
        self.monitor.do("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])

    def go_on(self):
        """After save(), in this machine or in a Clone: it runs, and its device comes back."""
        self.plug()
        self.monitor.do("cont")


class Clone(Guest):
    """A machine from a snapshot, with a memory of its own and a wbvsock of its own. It stands until go_on()."""

    def __init__(self, original, cid, state, memory_file, qemu_options=()):
        super().__init__(original.arguments, cid, original.image_dir, original.rtc, original.kernel, original.init,
                         qemu_options or original.qemu_options, memory_file)
        self.state = state

    def boot(self):
        return [*super().boot(), "-incoming", "defer", "-S"]

    def devices(self):
        return []

    def __enter__(self):
        super().__enter__()
        try:
            self.leave_memory_where_it_is()
            self.monitor.do("migrate-incoming", uri="exec:cat " + self.state)
            wait_until(lambda: self.monitor.do("query-status")["status"] != "inmigrate", "the restore")
        except BaseException:
            self.stack.close()
            raise
        return self


def copy_memory(original, copy):
    subprocess.run(["cp", "--sparse=always", original, copy], check=True)
