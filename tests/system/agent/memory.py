#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is backed by a guest's memory: limits that change while an exec runs, a ceiling that keeps the agent alive, and both growing
with the machine when a DIMM is plugged in, or shrinking with a balloon.

    memory.py --wbagent F --wbctl F --wbvsock F --builder images/microvm/build [--cache D] [--qemu F]

77: what it needs is not to be had."""
import glob, hashlib, json, os, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import vm
from guest import Guest, build_image, evidence, parser, skip_unless_possible, wait_until

MIB = 1024 * 1024
DIMM_MIB = 256

HUNGRY = "tail /dev/zero"                       # keeps all since the last newline, and there is none


def tmpfs(limits, path):
    return next(f for f in limits["tmpfs"] if f["path"] == path)


def result(g, *command, opts=(), status=137):
    """Runs it; how it ended, and what wbctl said."""
    path = g.path("result")
    said = g.wbctl("exec", "--timeout", "60s", "--result", path, *opts, "--", *command, status=status)
    with open(path) as f:
        return json.load(f), said


def detach(g, *command, opts=()):
    return g.wbctl("exec", "--detach", *opts, "--", *command).strip()


def ended(g, exec_id):
    """The entry of ps, once it is not running any more."""
    def entry():
        return next(e for e in json.loads(g.wbctl("ps", "--json")) if e["id"] == exec_id)
    wait_until(lambda: entry()["state"] != "running", "the end of " + exec_id)
    return entry()


def statistics(g, exec_id):
    return next(x for x in g.info()["statistics"]["execs"] if x["id"] == exec_id)


def agent_is_well(g, pids):
    assert g.info()["state"] == "open" and g.shell("echo alive") == "alive\n"
    running = {e["id"] for e in json.loads(g.wbctl("ps", "--json")) if e["state"] == "running"}
    assert pids <= running, (pids, running)


def check_at_boot(g):
    limits = g.info()["memory"]
    total, ceiling = limits["total_bytes"], limits["ceiling_bytes"]
    assert limits["ceiling"] == "follows" and ceiling == (total - limits["reserve_bytes"]) // 4096 * 4096, limits
    assert total // 2 <= ceiling <= total - 8 * MIB, limits
    assert g.shell("cat /sys/fs/cgroup/exec/memory.max") == "%d\n" % ceiling
    for path in ("/tmp", "/run", "/dev/shm", "/"):
        f = tmpfs(limits, path)
        assert f["percent"] == 50 and f["fault"] is None and abs(f["size_bytes"] - total // 2) <= 4096, f
    assert "nosuid" in g.shell("grep ' /tmp ' /proc/mounts"), "the mount's flags have gone"
    assert g.shell("cat /sys/devices/system/memory/auto_online_blocks") == "online\n"
    print("memory %.1f MiB, reserve %.1f, ceiling %.1f" % (total / MIB, limits["reserve_bytes"] / MIB, ceiling / MIB))


def check_limits_of_a_running_exec(g):
    """It is over the new limit, and goes, with all that it started; nobody else does."""
    script = "a=$(head -c %d /dev/zero | tr '\\0' x); sleep 600 & wait; echo ${#a}"
    other, hold = detach(g, "sh", "-c", script % 12000000), detach(g, "sh", "-c", script % 30000000)
    wait_until(lambda: statistics(g, hold)["memory_bytes"] >= 30e6 and statistics(g, other)["memory_bytes"] >= 12e6, "both to fill")
    assert json.loads(g.wbctl("limit", hold, "--json"))["memory_bytes"] is None
    got = json.loads(g.wbctl("limit", hold, "--memory", "256M", "--pids", "50", "--cpu", "80", "--json"))
    assert got == {"memory_bytes": 256 * MIB, "pids": 50, "cpu_percent": 80, "io_bps": None}, got
    assert statistics(g, hold)["limits"] == got
    assert json.loads(g.wbctl("limit", hold, "--cpu", "none", "--pids", "0", "--json")) == {**got, "pids": None, "cpu_percent": None}
    refused = g.wbctl("limit", hold, "--pids", "99999999999999999", "--memory", "1M", status=125)
    assert "limit_unavailable: pids" in refused, refused
    assert statistics(g, hold)["limits"]["memory_bytes"] == 256 * MIB, "half of it was done"
    g.wbctl("limit", hold, "--memory", "8M")
    entry = ended(g, hold)
    assert entry["state"] == "exited" and entry["exit"] == 137, entry
    r = g.wbctl("attach", hold, status=137)
    assert "oom" in r, r
    agent_is_well(g, {other})
    assert "exec_unknown" in g.wbctl("limit", "x0", "--pids", "1", status=125)
    assert "limit_unavailable: nothing" in g.wbctl("limit", hold, "--pids", "1", status=125)
    return other


def check_the_ceiling(g, other):
    """One that has no limit of its own and wants all there is."""
    how, said = result(g, "sh", "-c", "sleep 600 & " + HUNGRY)
    assert how["reason"] == "oom" and how["oom_kills"] >= 1, how
    assert "oom: " in said and "of all commands together" in said, said
    entry = next(e for e in json.loads(g.wbctl("ps", "--json")) if e["id"] == how["id"])
    assert entry["state"] == "exited", "the whole exec goes: %s" % entry
    agent_is_well(g, {other})
    log = g.shell("dmesg")
    assert "Memory cgroup out of memory" in log and "Out of memory:" not in log, "it was not the ceiling: %d bytes, %s" % (len(log), log[-3000:])


def check_asked_sizes(g):
    before = tmpfs(json.loads(g.wbctl("resize", "--json")), "/tmp")["size_bytes"]
    g.shell("head -c 8000000 /dev/zero >/tmp/full")
    said = g.wbctl("resize", "--tmpfs", "/tmp=4M", status=125)
    assert "limit_unavailable: /tmp: " in said and "are used" in said, said
    assert tmpfs(json.loads(g.wbctl("resize", "--json")), "/tmp")["size_bytes"] == before
    g.shell("rm /tmp/full")
    now = json.loads(g.wbctl("resize", "--tmpfs", "/dev/shm=24M", "--ceiling", "64M", "--json"))
    assert tmpfs(now, "/dev/shm") == {"path": "/dev/shm", "size_bytes": 24 * MIB, "used_bytes": 0, "percent": None, "fault": None}, now
    assert now["ceiling"] == "fixed" and now["ceiling_bytes"] == 64 * MIB, now
    now = json.loads(g.wbctl("resize", "--ceiling", "auto", "--json"))
    assert now["ceiling"] == "follows" and now["ceiling_bytes"] > 64 * MIB, now
    assert "not_tmpfs: /proc" in g.wbctl("resize", "--tmpfs", "/proc=1M", status=125)
    g.wbctl("resize", "--tmpfs", "/tmp=0", status=2)


def check_a_dimm(g):
    """The guest has more memory, says so in its uevent, and all follows, but for what was given a size. wbvsock maps the new memory:
    what the guest's driver takes for its buffers may lie in it."""
    before = g.info()["memory"]
    g.monitor.do("object-add", **{"qom-type": "memory-backend-memfd", "id": "more", "size": DIMM_MIB * MIB, "share": True})
    g.monitor.do("device_add", driver="pc-dimm", id="dimm0", memdev="more")
    wait_until(lambda: g.info()["memory"]["ceiling_bytes"] >= before["ceiling_bytes"] + DIMM_MIB * MIB * 3 // 4, "the ceiling to grow")
    assert "wbagent: memory came or went" in g.console(), "the agent found it, but was not told"
    now = g.info()["memory"]
    assert now["total_bytes"] - before["total_bytes"] >= (DIMM_MIB - 16) * MIB, (before, now)
    for path in ("/tmp", "/run", "/"):
        f = tmpfs(now, path)
        assert f["percent"] == 50 and abs(f["size_bytes"] - now["total_bytes"] // 2) <= 4096, f
    assert tmpfs(now, "/dev/shm")["size_bytes"] == 24 * MIB
    print("with a DIMM of %d MiB: memory %.1f MiB, ceiling %.1f, /tmp %.1f" % (
        DIMM_MIB, now["total_bytes"] / MIB, now["ceiling_bytes"] / MIB, tmpfs(now, "/tmp")["size_bytes"] / MIB))
    data = os.urandom(30 * MIB)             # more than was left of the old memory goes through the device
    g.wbctl("exec", "--", "sh", "-c", "cat >/tmp/data", input=data)
    assert g.shell("sha256sum </tmp/data").split()[0] == hashlib.sha256(data).hexdigest()
    how, _ = result(g, "sh", "-c", HUNGRY)
    assert how["reason"] == "oom", how
    agent_is_well(g, set())


def balloon_module(g, modules):
    """The driver, or None where the guest's kernel is not the one whose modules are at hand."""
    found = glob.glob(modules + "/kernel/drivers/virtio/virtio_balloon.ko")
    if not found or os.path.basename(modules) != g.shell("uname -r").strip():
        return None
    with open(found[0], "rb") as f:
        return f.read()


def inflate(g, to_mib):
    """Until the balloon has left the guest so much, and no more moves."""
    g.monitor.do("balloon", value=to_mib * MIB)
    wait_until(lambda: g.monitor.do("query-balloon")["actual"] == to_mib * MIB, "the balloon")


def check_a_balloon(g, modules):
    """Memory goes, of which the kernel sends no word; a tmpfs that holds more than its share keeps its size until it can shrink."""
    module = balloon_module(g, modules)
    if not module:
        print("skipped: no virtio_balloon for this kernel")
        return
    g.shell("cat >/tmp/balloon.ko; insmod /tmp/balloon.ko && rm /tmp/balloon.ko", input=module)
    before = json.loads(g.wbctl("resize", "--json"))
    g.wbctl("resize", "--tmpfs", "/tmp=20%")
    g.shell("head -c 25000000 /dev/zero >/tmp/full")
    inflate(g, 256 - 64)
    now = json.loads(g.wbctl("resize", "--json"))
    assert abs(before["total_bytes"] - now["total_bytes"] - 64 * MIB) < 4 * MIB, (before, now)
    assert now["ceiling_bytes"] < before["ceiling_bytes"] - 48 * MIB or now["ceiling_bytes"] == now["total_bytes"] // 2 // 4096 * 4096, now
    assert abs(tmpfs(now, "/run")["size_bytes"] - now["total_bytes"] // 2) <= 4096, now
    full = tmpfs(now, "/tmp")
    assert full["fault"] == "more than its share is used" and full["size_bytes"] > now["total_bytes"] // 5 + MIB, full
    assert "/tmp keeps its size: more than its new one is used" in g.console()
    assert "follows memory, 20 %; more than its share is used" in g.wbctl("info")
    g.shell("rm /tmp/full")
    wait_until(lambda: tmpfs(g.info()["memory"], "/tmp")["fault"] is None, "the agent to try again by itself")
    assert abs(tmpfs(g.info()["memory"], "/tmp")["size_bytes"] - now["total_bytes"] // 5) <= 4096
    inflate(g, 256)
    now = json.loads(g.wbctl("resize", "--tmpfs", "/tmp=50%", "--json"))
    assert now["ceiling_bytes"] >= before["ceiling_bytes"] - 4 * MIB, (before, now)


def check_activation_tells(g):
    done = json.loads(g.wbctl("activate", "--json"))
    assert int(evidence(done, "thaw")["ceiling_bytes"]) == g.info()["memory"]["ceiling_bytes"], done


def run(arguments):
    with tempfile.TemporaryDirectory() as work:
        image = build_image(arguments, work)
        _, modules = vm.find_kernel(arguments.cache)
        with Guest(arguments, 45, image, qemu_options=["-m", "256M,slots=1,maxmem=1G", "-device", "virtio-balloon-pci"]) as g:
            assert g.info("--timeout", "90s")["pid1"]
            check_activation_tells(g)
            check_at_boot(g)
            check_a_balloon(g, modules)
            check_asked_sizes(g)
            other = check_limits_of_a_running_exec(g)
            check_the_ceiling(g, other)
            check_a_dimm(g)
            g.wbctl("shutdown")
            assert g.qemu.wait(30) == 0 and "panic" not in g.console(), g.console()[-2000:]
    print("all checks passed")


def main():
    arguments = parser().parse_args()
    skip_unless_possible(arguments)
    try:
        run(arguments)
    except vm.Unavailable as e:
        print(e)
        sys.exit(77)


main()
