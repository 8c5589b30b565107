#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots of real guests: two clones of one that was quiesced; one of a guest that nobody had asked; disks; and a host that
does not come back.

    run.py --wbagent F --wbctl F --wbvsock F --builder images/microvm/build [--cache D] [--qemu F]

77: what it needs is not to be had."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import guest
import vm
from guest import Clone, Guest, wait_until

SECRET = b"correct horse battery staple 1847"
ASLEEP_S = 4
BUSY_BOUND_NS = 50e6        # a machine that is busier than that says nothing about clocks
# A line each: a number, and eight random bytes.
WORKLOAD = "i=0; while [ ! -e /tmp/stop ]; do echo $i $(od -An -tx8 -N8 /dev/urandom); i=$((i+1)); sleep 0.05; done"


def report(what, value):
    print(f"    {what}: {value}", flush=True)


def start(g, script):
    return g.wbctl("exec", "--detach", "--", "sh", "-c", script).strip()


def written(g, exec_id, seconds=1.0):
    """What an exec that still runs has written, from its first byte."""
    p = subprocess.Popen([g.arguments.wbctl, "attach", "--uds", g.path("v"), "--offset", "0", exec_id], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        time.sleep(seconds)
        p.terminate()
        return p.communicate(timeout=10)[0].decode()
    finally:
        p.kill()
        p.wait()


def rest(g, exec_id, offset):
    """The end of an exec's output, from the byte offset on."""
    g.shell("touch /tmp/stop")
    return g.wbctl("attach", "--offset", str(offset), exec_id)


def lines_of(text):
    lines = [line.split() for line in text.splitlines()]
    assert [int(number) for number, _ in lines] == list(range(len(lines))), "numbers are missing or there twice: " + text[-300:]
    return [value for _, value in lines]


def refused(g):
    assert "not_ready" in g.wbctl("exec", "--", "true", status=125)


def activate(g, *args):
    done = json.loads(g.wbctl("activate", "--json", *args))
    assert done["ok"], done
    return done


def check_replay(g, message):
    (number, error), = g.say(message)
    assert number == guest.ERROR and error[1] == b"replayed", (number, error)


def check_the_clock(g, done):
    """It is as right as the activation said, by what a second measurement can tell."""
    stated = int(guest.evidence(done, "clock")["bound_ns"])
    action, offset, bound, _ = g.check_clock(0)
    report("clock", f"stepped by {int(guest.evidence(done, 'clock')['offset_ns']) / 1e9:.2f} s, bound {stated / 1e6:.2f} ms; "
           f"then off by {offset / 1e6:.2f} within {bound / 1e6:.2f} ms")
    if max(stated, bound) > BUSY_BOUND_NS:
        report("not judged", "the machine is too busy for clocks")
        return
    assert action in ("left alone", "slewed") and abs(offset) <= stated + bound + 5e6, (action, offset, bound, stated)


# ---- quiesce, snapshot, two clones

def quiesced(g, workload):
    """Evidence that the guest stands still."""
    g.quiesce()
    info = g.info()
    assert info["state"] == "closed" and info["facts"]["secrets"] == "0", info
    assert info["facts"]["standstill"].startswith("quiesced; thaw in"), info["facts"]
    refused(g)
    before = written(g, workload, 0.7)
    assert before and written(g, workload, 0.7) == before, "the workload is not frozen"
    return before


def check_clone(c, name, old, before, workload, dialler):
    info = c.info("--timeout", "30s")
    assert info["state"] == "closed" and info["generation"] == 7 and info["facts"]["resumes_unannounced"] == "0", info
    refused(c)
    check_replay(c, old)
    assert written(c, workload, 0.5) == before, "a workload ran before the activation"
    done = activate(c, "--hostname", name)
    assert done["generation"] == 8, done
    assert guest.evidence(done, "freeze")["method"] == "cgroup"
    assert guest.evidence(done, "entropy")["method"] == "credited"
    clock = guest.evidence(done, "clock")
    assert clock["stepped"] == "yes" and int(clock["offset_ns"]) > (ASLEEP_S - 1) * 1e9, clock
    check_the_clock(c, done)
    check_replay(c, old)
    assert c.shell("hostname") == name + "\n"
    broken = c.wbctl("attach", "--offset", "0", "--stderr-offset", "0", dialler)
    # read(2) says ENOTCONN of it, recv(2) too; ECONNRESET is for who asks by SO_ERROR, and with newer kernels.
    assert "not connected" in broken or "reset" in broken, broken
    time.sleep(1)
    all_of_it = before + rest(c, workload, len(before))
    values = lines_of(all_of_it)
    assert len(values) > len(lines_of(before)), "the workload does not go on"
    c.wbctl("exec", "--secret", "TOKEN", "--", "true", status=125)        # it was the life's before
    return {"generation": c.shell("cat /run/wbagent/generation"), "values": values[len(lines_of(before)):],
            "urandom": c.shell("od -An -tx8 -N16 /dev/urandom")}


def announced(arguments, image, work):
    """Two clones of a guest that was quiesced. The second of them goes on."""
    memory, state = work + "/memory", work + "/state"
    old = guest.activation(7, os.urandom(64), os.urandom(16), b"original", [(b"TOKEN", SECRET)])
    # The kernel keeps what a freed network buffer held, unless told otherwise; whatever else is found is the agent's.
    with Guest(arguments, 42, image, kernel=["init_on_free=1"], memory_file=memory) as g:
        g.info("--timeout", "90s")
        refused(g)
        answers = g.say(old)
        assert answers[-1][0] == guest.ACTIVATE_DONE and answers[-1][1][1] == 1, answers
        assert g.facts()["secrets"] == "1" and g.shell("hostname") == "original\n"
        listener = g.listen(9000)
        dialler = start(g, "socat -u VSOCK-CONNECT:2:9000 - 2>&1; true")
        accepted, _ = listener.accept()
        workload = start(g, WORKLOAD)
        wait_until(lambda: len(written(g, workload, 0.3)) > 100, "output")
        before = quiesced(g, workload)
        g.save(state)
        g.monitor.do("quit")
        g.qemu.wait(10)
        accepted.settimeout(5)
        assert accepted.recv(1) == b"", "the host's end of a connection of the life before is still open"
        accepted.close()
    time.sleep(ASLEEP_S)
    with open(memory, "rb") as f:
        copies = f.read().count(SECRET)
    assert copies == 0, f"{copies} copies of the secret are in the snapshot's memory"
    guest.copy_memory(memory, work + "/memory-2")
    seen = []
    for cid, name, of in ((51, "clone-1", memory), (52, "clone-2", work + "/memory-2")):
        with Clone(g, cid, state, of) as c:
            begin = time.monotonic()
            c.go_on()
            c.info("--timeout", "30s")
            report("restore to first answer", f"{time.monotonic() - begin:.2f} s")
            seen.append(check_clone(c, name, old, before, workload, dialler))
            c.wbctl("shutdown")
    one, two = seen
    assert one["generation"] != two["generation"] and one["urandom"] != two["urandom"], seen
    same = set(one["values"]) & set(two["values"])
    assert not same, f"two clones drew the same random numbers: {same}"


# ---- nobody announced it

def notice(g, what):
    """A machine that had no connection at all when it was saved has noticed by itself, before anything was begun in it."""
    info = g.info("--timeout", "30s")
    facts = info["facts"]
    assert info["state"] == "closed" and re.match(r"1, the last by vsock device removed", facts["resumes_unannounced"]), (what, facts)
    assert re.match(r"resumed; power-off in \d+ s", facts["standstill"]) and facts["secrets"] == "0", (what, facts)
    refused(g)


def unannounced(arguments, image, work):
    """The clone has the CID of the original: nothing but the device's going tells it. The original goes on too, as another."""
    memory, state = work + "/memory", work + "/state"
    with open(work + "/secret", "wb") as f:
        f.write(SECRET)
    with Guest(arguments, 61, image, memory_file=memory) as g:
        g.info("--timeout", "90s")
        activate(g, "--secret", "TOKEN=" + work + "/secret")
        workload = start(g, WORKLOAD)
        wait_until(lambda: len(written(g, workload, 0.3)) > 100, "output")
        assert g.facts()["resumes_unannounced"] == "0"
        g.save(state)
        guest.copy_memory(memory, work + "/memory-2")
        with Clone(g, 61, state, work + "/memory-2") as c:
            drawn = []
            for m, name in ((c, "the clone"), (g, "the original")):
                m.go_on()
                refused(m)                  # the first that it hears
                notice(m, name)
                before = written(m, workload, 0.5)
                assert written(m, workload, 0.5) == before, "the workload is not frozen"
                activate(m)
                time.sleep(1)
                drawn.append((lines_of(before), lines_of(before + rest(m, workload, len(before)))))
    (frozen_at, clone), (_, original) = drawn
    report("lines that the workload wrote until it was frozen", len(frozen_at))
    assert len(clone) > len(frozen_at) and len(original) > len(frozen_at), "a workload does not go on"
    # What it drew before it was frozen it has drawn in both.
    same = set(clone[len(frozen_at):]) & set(original[len(frozen_at):])
    assert not same, f"drawn in both machines after the activation: {same}"


def run(arguments):
    tests = {"announced": announced, "unannounced": unannounced}
    with tempfile.TemporaryDirectory() as work:
        image = guest.build_image(arguments, work, "socat")
        for name, test in tests.items():
            if arguments.tests and name not in arguments.tests:
                continue
            begin = time.monotonic()
            print("  " + name, flush=True)
            with tempfile.TemporaryDirectory() as own:
                test(arguments, image, own)
            report("took", f"{time.monotonic() - begin:.1f} s")
    print("all checks passed")


def main():
    p = guest.parser()
    p.add_argument("tests", nargs="*", help="default: all")
    arguments = p.parse_args()
    guest.skip_unless_possible(arguments)
    try:
        run(arguments)
    except vm.Unavailable as e:
        print(e)
        sys.exit(77)


main()
