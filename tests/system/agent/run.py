#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The agent as PID 1 of a real guest without a network card: activation with evidence, who may speak to it, how it ends.

    run.py --wbagent F --wbctl F --wbvsock F --builder images/microvm/build [--cache D] [--qemu F]

77: what it needs is not to be had."""
import glob, json, os, socket, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import vm
from guest import Guest, build_image, evidence, parser, skip_unless_possible

RTC_BASE = "2020-02-02T02:02:02"        # what the guest's clock begins with


def check_before(g):
    info = json.loads(g.wbctl("info", "--json", "--timeout", "90s"))
    assert info["pid1"] and info["state"] == "closed", info
    assert {"memory", "pids", "cpu"} <= set(info["facts"]["cgroup_controllers"].split()), info
    g.wbctl("exec", "--", "true", status=125)


def check_activation(g, hostname):
    done = json.loads(g.wbctl("activate", "--json", "--hostname", hostname))
    assert done["ok"], done
    assert evidence(done, "freeze")["method"] == "cgroup"
    entropy = evidence(done, "entropy")
    assert entropy["method"] == "credited" and entropy["credited_bits"] == "512" and entropy["ready"] == "yes", entropy
    clock = evidence(done, "clock")
    if clock["source"] == "exchanges":          # else there is KVM, and ptp_kvm with it
        assert 0 < int(clock["bound_ns"]) < 2e9, clock
    assert int(clock["offset_ns"]) > 5 * 365 * 86400 * 1e9 and clock["stepped"] == "yes", clock
    before, guest, after = time.time(), float(g.shell("date +%s")), time.time()
    assert before - 3 < guest < after + 3, (before, guest, after)
    assert g.shell("hostname") == hostname + "\n"


def check_world(g):
    assert g.shell("ls /sys/class/net") == "lo\n"
    assert "127.0.0.1" in g.shell("ifconfig lo") and "UP" in g.shell("ifconfig lo")
    mounts = {line.split()[1] for line in g.shell("cat /proc/mounts").splitlines()}
    assert {"/proc", "/sys", "/dev", "/dev/pts", "/dev/shm", "/run", "/tmp", "/sys/fs/cgroup"} <= mounts, mounts
    g.shell("i=0; while [ $i -lt 100 ]; do (sh -c 'true & true' &) ; i=$((i+1)); done")       # orphans fall to PID 1
    time.sleep(1)
    assert g.shell("cat /proc/[0-9]*/stat | grep -c ') Z ' || true") == "0\n"


def check_oom_protection(g):
    assert g.shell("cat /proc/1/oom_score_adj; cat /proc/self/oom_score_adj") == "-1000\n0\n"


def check_only_the_host_may_speak(g, modules):
    """A workload dials its own CID and CID 1: with vsock_loopback it arrives, and is refused."""
    module = glob.glob(modules + "/kernel/net/vmw_vsock/vsock_loopback.ko*")
    release = g.shell("uname -r").strip()
    if not module or not module[0].endswith(".ko") or os.path.basename(modules) != release:
        print("skipped: no vsock_loopback for", release)
        return
    with open(module[0], "rb") as f:
        g.shell("cat >/tmp/loopback.ko; insmod /tmp/loopback.ko", input=f.read())
    assert "vsock_loopback" in g.shell("cat /proc/modules")
    for cid in (1, g.cid):
        # The control: whatever listens there is reached. Then InfoRequest to the agent, which any host gets answered.
        reached = g.shell("socat -u VSOCK-LISTEN:7777 - >/tmp/reached & sleep 1; echo x | socat -u - VSOCK-CONNECT:%d:7777; wait; cat /tmp/reached" % cid)
        assert reached == "x\n", (cid, reached)
        got = g.shell("printf '\\0\\0\\0\\2\\12\\0' | socat -t 2 - VSOCK-CONNECT:%d:1024 2>/dev/null | wc -c" % cid)
        assert got.strip() == "0", (cid, got)
    refused = [line for line in g.console().splitlines() if "refused a vsock connection" in line]
    assert len(refused) == 2, g.console()[-2000:]
    assert json.loads(g.wbctl("info", "--json"))["state"] == "open"


# ---- what is there in a machine of its own alone

def check_selftest(g):
    checks = {c["name"]: c for c in json.loads(g.wbctl("exec", "--", "/proc/1/exe", "--selftest", "--json"))}
    lacking = [n for n, c in checks.items() if c["need"] == "required" and not c["ok"]]
    assert not lacking, lacking
    assert all(checks[n]["ok"] for n in ("cgroup2", "memory", "pids", "cpu", "io", "pty", "fsopen", "seccomp")), checks


def check_clock(g):
    done, offset, bound, _ = g.check_clock(0)
    if bound > 20e6:
        print("skipped: the machine is too busy for clocks, bound", bound)
        return
    assert done in ("left alone", "slewed") and abs(offset) < 100e6, (done, offset, bound)
    done, offset, bound, _ = g.check_clock(80 * 10**6)
    assert done == "slewed" and 30e6 < offset < 128e6, (done, offset, bound)
    before = float(g.shell("date +%s"))
    done, offset, bound, known = g.check_clock(10**10)
    assert done == "stepped" and abs(offset - 10**10) < 1e9 and not known, (done, offset, bound, known)     # that is no drift
    assert float(g.shell("date +%s")) - before >= 9
    time.sleep(1.5)
    done, offset, bound, known = g.check_clock(10**10)
    assert done in ("left alone", "slewed") and abs(offset) < 100e6 and known, (done, offset, bound, known)
    assert "drift" in json.loads(g.wbctl("info", "--json"))["facts"]["clock_check"]
    assert g.check_clock(0)[0] == "stepped"           # and back


def check_limits(g):
    g.wbctl("exec", "--io", "1M", "--memory", "32M", "--", "true")
    assert g.wbctl("exec", "--user", "1234:1234", "--", "sh", "-c", "grep Seccomp: /proc/self/status").split() == ["Seccomp:", "2"]
    g.wbctl("exec", "--user", "1234:1234", "--", "socat", "-u", "VSOCK-CONNECT:2:1025", "-", status=1)


def check_standstill(g):
    """A client that dies in the middle is no reset of the transport."""
    for _ in range(3):
        p = subprocess.Popen([g.arguments.wbctl, "exec", "--uds", g.path("v"), "--", "cat", "/dev/zero"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        p.stdout.read(1000)
        p.kill()
        p.wait()
    # Nor is what a workload has the kernel say of devices that are where they were.
    g.shell("for d in /sys/bus/virtio/devices/virtio*; do for a in remove unbind; do echo $a >$d/uevent; done; done")
    time.sleep(1)
    info = json.loads(g.wbctl("info", "--json"))["facts"]
    assert "uevent" in info["resume_watch"] and "vsock" in info["resume_watch"] and info["resumes_unannounced"] == "0", info


def check_reset_of_the_transport(g):
    """The driver lets go of the device, by which all connections break at once, as they do in a machine that is resumed. After it
    the machine is out of reach: its console tells."""
    with socket.socket(socket.AF_UNIX) as host:
        host.bind(g.path("v_1026"))
        host.listen(8)
        host.settimeout(30)
        assert json.loads(g.wbctl("activate", "--json", "--egress"))["ok"]
        sentinel, _ = host.accept()
        sentinel.close()
        time.sleep(0.5)
        facts = json.loads(g.wbctl("info", "--json"))["facts"]
        assert facts["resumes_unannounced"] == "0", "a broker that ends is no resume"
        sentinel, _ = host.accept()         # and it may come back
        g.wbctl("exec", "--detach", "--", "sh", "-c", "sleep 1; cd /sys/bus/virtio/drivers/vmw_vsock_virtio_transport; echo virtio* >unbind")
        end = time.time() + 20
        while "resumed (vsock reset): it stands still" not in g.console():
            assert time.time() < end, g.console()[-2000:]
            time.sleep(0.2)
        sentinel.close()


def check_end(g, *how):
    g.wbctl("shutdown", *how)
    assert g.qemu.wait(30) == 0
    assert "panic" not in g.console(), g.console()[-2000:]


def run(arguments):
    with tempfile.TemporaryDirectory() as work:
        image = build_image(arguments, work, "socat")
        _, modules = vm.find_kernel(arguments.cache)
        with Guest(arguments, 42, image, rtc=RTC_BASE) as one, Guest(arguments, 43, image, rtc=RTC_BASE) as two:
            for g, name in ((one, "one"), (two, "two")):
                check_before(g)
                check_activation(g, name)
            draws = [g.shell("head -c 16 /dev/urandom | od -An -tx1; cat /run/wbagent/generation") for g in (one, two)]
            assert draws[0] != draws[1] and draws[0].split("\n")[0] != draws[1].split("\n")[0], draws
            check_world(one)
            check_oom_protection(one)
            check_only_the_host_may_speak(one, modules)
            check_selftest(one)
            check_clock(one)
            check_limits(one)
            check_standstill(one)
            check_end(one)
            check_end(two, "--reboot")
        with Guest(arguments, 44, image, rtc=RTC_BASE) as three:
            check_before(three)
            check_reset_of_the_transport(three)
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
