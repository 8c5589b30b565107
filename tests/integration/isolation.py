#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wall is proven or the VM is refused: wbbroker and wbctl from outside, with real processes that have or lack each layer. Needs WB_BIN
and root; what the machine does not have (/dev/kvm, cgroups of the first version, runsc, QEMU) is skipped by name."""
import ctypes
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import broker_process    # noqa: E402
from broker_process import BIN, ROOT, until    # noqa: E402

SUBJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subject.py")
CLASSES = ["trusted", "standard", "wasm", "devcontainer", "untrusted", "hostile"]
HOUR = 3600


def has_kvm():
    try:
        return subprocess.run([sys.executable, SUBJECT, "kvm"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


KVM = has_kvm()


@unittest.skipUnless(ROOT, "needs root")
class Case(broker_process.Case):
    def setUp(self):
        super().setUp()
        self.cgroups = []
        self.refusals = 0    # that the audit has
        for c in CLASSES:
            self.write(c + ".yaml", "isolation: %s\nnetwork: none\n" % c)
        os.mkdir(self.dir + "/root")

    def tearDown(self):
        for p in self.others:
            if p.poll() is None:
                p.kill()
                p.wait()
        time.sleep(0.05)
        for d in self.cgroups:
            until(lambda: self.remove_cgroup(d))
        super().tearDown()

    def remove_cgroup(self, directory):
        try:
            os.rmdir(directory)
            return True
        except OSError:
            return not os.path.exists(directory)

    def begin(self, **isolation):
        """A broker without a VM; evidence is gathered again when a test waits for it, or not at all."""
        isolation.setdefault("recheck_s", HOUR)
        more = {k: isolation.pop(k) for k in ("allow_container_standard",) if k in isolation}
        self.config([], isolation=isolation, **more)
        self.start()

    def subject(self, *steps, program=None):
        """A process that has taken these steps, as another program if one is named."""
        executable = sys.executable
        environment = dict(os.environ)
        if program:
            executable = os.path.join(self.dir, program)
            if not os.path.exists(executable):
                shutil.copy(os.path.realpath(sys.executable), executable)
            environment["PYTHONHOME"] = sys.prefix
        p = subprocess.Popen([executable, SUBJECT] + list(steps), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.others.append(p)
        self.addCleanup(p.stdin.close)
        self.addCleanup(p.stdout.close)
        p.subject = int(p.stdout.readline())
        self.assertEqual(p.stdout.readline(), "ready\n")
        return p

    def container(self, *more):
        return self.subject(*more, "mntns", "chroot=" + self.dir + "/root", "pidns")

    def tell(self, p, step):
        p.stdin.write(step + "\n")
        p.stdin.flush()
        self.assertEqual(p.stdout.readline(), "done\n")

    def wbctl(self, *arguments):
        return subprocess.run([BIN + "/wbctl", "vm"] + list(arguments) + ["--socket", self.dir + "/run/control.sock"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def add(self, name, backend, pid=None, policy="trusted.yaml", agent=False):
        arguments = ["add", name, "--backend", backend, "--transport", "unix", "--path", "%s/vm/%s" % (self.dir, name),
                     "--policy", "%s/%s" % (self.dir, policy)]
        if pid is not None:
            arguments += ["--pid", str(pid)]
        return self.wbctl(*arguments, *([] if agent else ["--no-agent"]))

    def assert_refused(self, result, reason, *words):
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("wbctl: %s: " % reason, result.stderr)
        for w in words:
            self.assertIn(w, result.stderr)
        self.refusals += 1
        refused = until(lambda: [x for x in self.records() if x["event"] == "vm_add" and x["decision"] == "deny"][self.refusals - 1:])
        self.assertEqual(refused[0]["reason"], reason)

    def assert_added(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)

    def layers(self, name):
        vm = json.loads(self.wbctl("show", name, "--json").stdout)["vm"]
        return {x["layer"]: x for x in vm["layers"]}

    def recorded(self, event):
        """Its last record, when there is one."""
        return until(lambda: [r for r in self.records() if r["event"] == event])[-1]

    def cut(self, name):
        """The record of its being cut off."""
        return until(lambda: [r for r in self.records() if r["event"] == "revoke" and r["vm"] == name])[0]


class Tiers(Case):
    def check_classes(self, backend, pid, passing):
        for c in CLASSES:
            r = self.add("a", backend, pid, c + ".yaml")
            if c in passing:
                self.assert_added(r)
                self.assertTrue(json.loads(self.wbctl("show", "a", "--json").stdout)["vm"]["verified"])
                self.wbctl("rm", "a")
            else:
                self.assert_refused(r, "isolation_too_weak", "asks for")
        self.assert_gapless()

    def test_a_container_holds_the_trusted(self):
        self.begin()
        self.check_classes("runc", self.container().subject, ["trusted"])

    def test_a_container_holds_the_standard_where_the_operator_says_so(self):
        self.begin(allow_container_standard=True)
        self.check_classes("runc", self.container().subject, ["trusted", "standard", "wasm", "devcontainer"])

    @unittest.skipUnless(KVM, "no KVM VM can be made here")
    def test_a_microvm_holds_all(self):
        self.begin()
        for program, backend in (("firecracker", "firecracker"), ("cloud-hypervisor", "cloud-hypervisor"), ("qemu-system-x86_64", "qemu")):
            self.check_classes(backend, self.subject("kvm", program=program).subject, CLASSES)

    @unittest.skipUnless(shutil.which("runsc"), "no runsc")
    def test_gvisor_is_its_sandbox_and_no_other_process(self):
        self.begin()
        runsc = subprocess.Popen(["runsc", "--root=" + self.dir + "/runsc", "--ignore-cgroups", "--network=none", "do", "sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True, env=dict(os.environ, TMPDIR=self.dir))
        try:
            def find(word):
                for d in glob.glob("/proc/[0-9]*"):
                    try:
                        with open(d + "/cmdline") as f:
                            arguments = f.read().split("\0")
                        with open(d + "/stat") as f:
                            if int(f.read().rsplit(")", 1)[1].split()[1]) == runsc.pid and word in arguments:
                                return int(os.path.basename(d))
                    except OSError:
                        pass
            if not until(lambda: find("boot") or runsc.poll() is not None) or runsc.poll() is not None:
                self.skipTest("runsc does not run here")
            until(lambda: runsc.poll() is not None or "Seccomp:\t2" in open("/proc/%d/status" % find("boot")).read())
            self.check_classes("gvisor", find("boot"), ["trusted", "standard", "wasm", "devcontainer", "untrusted"])
            self.assert_refused(self.add("a", "gvisor", find("gofer")), "isolation_unknown", "no sandbox")
            self.assert_refused(self.add("a", "gvisor", runsc.pid), "isolation_unknown", "no sandbox")
        finally:
            runsc.terminate()
            try:
                runsc.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(runsc.pid, signal.SIGKILL)
                runsc.wait()

    @unittest.skipUnless(shutil.which("qemu-system-x86_64"), "no QEMU")
    def test_qemu_without_kvm_is_unknown(self):
        self.begin()
        for accelerator, ok in (("tcg", False), ("kvm", True)):
            if ok and not KVM:
                continue
            qemu = subprocess.Popen(["qemu-system-x86_64", "-accel", accelerator, "-M", "microvm", "-nodefaults", "-display", "none", "-S",
                                     "-m", "32"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.others.append(qemu)
            if ok:
                until(lambda: any("kvm-vcpu" in os.readlink(x) for x in glob.glob("/proc/%d/fd/*" % qemu.pid) if os.path.islink(x)))
                self.assert_added(self.add("a", "qemu", qemu.pid, "hostile.yaml"))
            else:
                until(lambda: os.readlink("/proc/%d/exe" % qemu.pid).endswith("qemu-system-x86_64"))
                self.assert_refused(self.add("a", "qemu", qemu.pid), "isolation_unknown", "no KVM VM")

    @unittest.skipUnless(KVM and shutil.which("qemu-system-x86_64"), "no QEMU with KVM")
    def test_a_jailed_qemu_has_the_layers(self):
        """QEMU's own means, and a network namespace: all that can be demanded but the cgroup."""
        self.begin(require_layers=["uid", "seccomp", "netns", "chroot"])
        qemu = subprocess.Popen(["unshare", "--net", "--", "qemu-system-x86_64", "-accel", "kvm", "-M", "microvm", "-nodefaults", "-display",
                                 "none", "-S", "-m", "32", "-sandbox", "on", "-runas", "nobody", "-chroot", self.dir + "/root"],
                                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.others.append(qemu)

        def is_jailed():
            with open("/proc/%d/status" % qemu.pid) as f:
                status = f.read()
            return qemu.poll() is not None or ("Seccomp:\t2" in status and "Uid:\t65534" in status)
        until(is_jailed)
        if qemu.poll() is not None:
            self.skipTest("this QEMU cannot be jailed so")
        self.assert_added(self.add("a", "qemu", qemu.pid, "hostile.yaml"))
        layers = self.layers("a")
        for layer in ("program", "kvm", "uid", "seccomp", "no_new_privs", "capabilities", "chroot", "netns", "memory"):
            self.assertEqual(layers[layer]["state"], "present", layers[layer])

    def test_what_is_not_proven_is_unknown(self):
        self.begin()
        bare = self.subject()
        self.assert_refused(self.add("a", "firecracker", bare.subject), "isolation_unknown", "another program", "trust_declared")
        self.assert_refused(self.add("a", "runc", bare.subject), "isolation_unknown", "chroot is absent")
        self.assert_refused(self.add("a", "firecracker"), "isolation_unknown", "no pid was given")
        self.assert_refused(self.add("a", "firecracker", 4194303), "isolation_unknown", "there is no process 4194303")
        if KVM:
            self.assert_refused(self.add("a", "qemu", self.subject("kvm", program="vmm").subject), "isolation_unknown", "another program")
        self.assertEqual(self.names(), [])

    def test_what_declares_nothing_is_warned_about_once(self):
        self.begin(trust_declared=True)
        for _ in range(3):
            self.assert_refused(self.add("a", "other", self.subject().subject), "isolation_unknown", "declares nothing")
            self.assert_added(self.add("b", "runc"))
            self.assertIn("unverified", json.loads(self.wbctl("show", "b", "--json").stdout)["vm"]["isolation"])
            self.wbctl("rm", "b")
        self.assertEqual(self.log_text().count("backend other declares no isolation"), 1)
        self.assertEqual(self.log_text().count("is believed as declared"), 1)
        until(lambda: len([r for r in self.records() if r["event"] == "vm_add" and "declared, unverified" in r["detail"]]) == 3)

    def test_kata_and_kubernetes_are_refused_with_their_reason(self):
        self.begin(trust_declared=True)
        for backend in ("kata", "kubernetes", "k8s"):
            self.assert_refused(self.add("a", backend), "isolation_unknown", "vsock", "network card")
            self.config([self.vm("a", backend=backend)])
            r = subprocess.run([BIN + "/wbbroker", "--config", self.dir + "/c.yaml", "--check"], stderr=subprocess.PIPE, text=True)
            self.assertEqual(r.returncode, 2)
            self.assertRegex(r.stderr, r"c\.yaml:1:\d+: .*broker mode")

    def test_a_policy_that_asks_for_more_is_refused_later_too(self):
        self.begin()
        self.assert_added(self.add("a", "runc", self.container().subject))
        r = self.wbctl("policy", "a", self.dir + "/hostile.yaml")
        self.assertEqual(r.returncode, 1)
        self.assertIn("isolation_too_weak", r.stderr)
        self.assertEqual(json.loads(self.wbctl("show", "a", "--json").stdout)["vm"]["state"], "open")

    def test_programs_of_the_operators_list(self):
        if not KVM:
            self.skipTest("no KVM VM can be made here")
        p = self.subject("kvm", program="firecracker")
        digest = subprocess.run(["sha256sum", self.dir + "/firecracker"], stdout=subprocess.PIPE, text=True).stdout.split()[0]
        for programs, ok in (([{"sha256": digest}], True), ([{"path": self.dir + "/firecracker", "sha256": digest}], True),
                             ([{"sha256": "00" * 32}], False), ([{"path": "/usr/bin/firecracker"}], False)):
            self.begin(programs=programs)
            r = self.add("a", "firecracker", p.subject, "hostile.yaml")
            if ok:
                self.assert_added(r)
                self.assertIn(digest, self.layers("a")["program"]["fact"])
            else:
                self.assert_refused(r, "isolation_unknown", "not one of isolation.programs", digest)
            self.stop()


class Layers(Case):
    def hierarchies(self):
        """A cgroup with a ceiling in each of the first version's hierarchies: directories, by controller."""
        with open(sorted(glob.glob("/sys/block/*/dev"))[0]) as f:
            device = f.read().strip()
        made = {}
        for controller, file, limit in (("cpu", "cpu.cfs_quota_us", "50000"), ("memory", "memory.limit_in_bytes", "268435456"),
                                        ("pids", "pids.max", "64"), ("blkio", "blkio.throttle.write_bps_device", device + " 1048576")):
            directory = "/sys/fs/cgroup/%s/wb-isolation-%d" % (controller, os.getpid())
            try:
                os.mkdir(directory)
                self.cgroups.append(directory)
                with open("%s/%s" % (directory, file), "w") as f:
                    f.write(limit)
            except OSError:
                self.skipTest("no cgroup of the first version can be made here: " + controller)
            made[controller] = directory
        return made

    def test_each_demanded_layer(self):
        have = {"uid": ["uid=54321"], "seccomp": ["seccomp"], "netns": ["netns"], "chroot": ["chroot=" + self.dir + "/root"]}
        for layer, steps in have.items():
            self.begin(trust_declared=True, require_layers=[layer])
            self.assert_refused(self.add("a", "runc", self.subject().subject), "isolation_too_weak", layer + " is absent", "require_layers")
            self.assert_refused(self.add("a", "runc"), "isolation_unknown", layer + " is unreadable", "no pid was given")
            self.assert_added(self.add("a", "runc", self.subject(*steps).subject))
            self.assertEqual(self.layers("a")[layer]["state"], "present")
            self.assertTrue(self.layers("a")[layer]["required"])
            self.stop()

    def test_a_demanded_cgroup(self):
        cgroups = self.hierarchies()
        join = ["cgroup=" + d for d in cgroups.values()]
        self.begin(trust_declared=True, require_layers=["cgroup"])
        for i in range(len(join)):
            r = self.add("a", "runc", self.subject(*(join[:i] + join[i + 1:])).subject)
            self.assert_refused(r, "isolation_too_weak", "no ceiling on " + list(cgroups)[i].replace("blkio", "io"))
        self.assert_added(self.add("a", "runc", self.subject(*join).subject))

    def test_one_user_for_one_vm(self):
        self.begin(trust_declared=True)
        self.assert_added(self.add("a", "runc", self.subject("uid=54321").subject))
        self.assert_added(self.add("b", "runc", self.subject("uid=54321").subject))
        self.assertEqual(self.layers("b")["uid"]["state"], "absent")
        self.assertIn("shared with VM 'a'", self.layers("b")["uid"]["fact"])
        self.stop()
        self.begin(trust_declared=True, require_layers=["uid"])
        self.assert_added(self.add("a", "runc", self.subject("uid=54321").subject))
        self.assert_refused(self.add("b", "runc", self.subject("uid=54321").subject), "isolation_too_weak", "shared with VM 'a'")

    def test_memory_of_another_vm(self):
        self.write("memory", "\0" * 4096)
        self.begin(trust_declared=True)
        self.assert_added(self.add("a", "runc", self.subject("shared=" + self.dir + "/memory").subject))
        self.assertEqual(self.layers("a")["memory"]["state"], "present")
        self.assert_added(self.add("b", "runc", self.subject("shared=" + self.dir + "/memory").subject))
        self.assertEqual(self.layers("b")["memory"]["state"], "absent")
        self.assertIn("shared with VM 'a'", self.layers("b")["memory"]["fact"])

    def test_the_table_that_a_person_reads(self):
        self.begin(trust_declared=True)
        self.assert_added(self.add("a", "runc", self.subject("netns", "seccomp").subject))
        text = self.wbctl("show", "a").stdout
        self.assertRegex(text, r"(?m)^  LAYER +STATE +FACT$")
        self.assertRegex(text, r"(?m)^  netns +present +its own network namespace")
        self.assertRegex(text, r"(?m)^! chroot +absent +the host's root$")
        self.assertRegex(text, r"(?m)^  seccomp +present +mode 2, 1 thread$")
        self.assertRegex(text, r"(?m)^  kvm +absent +the process holds no KVM VM$")
        self.assert_added(self.add("b", "runc"))
        self.assertRegex(self.wbctl("show", "b").stdout, r"(?m)^  uid +unreadable +no pid was given")
        record = until(lambda: [r for r in self.records() if r["event"] == "vm_add" and r["vm"] == "a"])[0]
        self.assertRegex(record["detail"], "present: .*seccomp.*netns")

    def test_a_path_that_no_terminal_should_see(self):
        name = b"\x1b[2J\xff-vmm"
        shutil.copy("/bin/sleep", os.fsencode(self.dir) + b"/" + name)
        p = subprocess.Popen([os.fsencode(self.dir) + b"/" + name, b"1000"])
        self.others.append(p)
        self.begin(trust_declared=True)
        until(lambda: os.readlink("/proc/%d/exe" % p.pid).endswith("-vmm"))
        r = self.add("a", "firecracker", p.pid)
        self.assert_added(r)
        self.assertIn("/?[2J?-vmm", self.layers("a")["program"]["fact"])
        self.assertIsNone(json.loads(self.wbctl("show", "a", "--json").stdout)["vm"]["evidence"]["program"])
        for text in (self.wbctl("show", "a").stdout, self.log_text(), r.stderr):
            self.assertNotIn("\x1b", text)
        self.stop()
        self.begin()
        self.assert_refused(self.add("a", "firecracker", p.pid), "isolation_unknown", "/?[2J?-vmm")

    def test_a_proc_that_cannot_be_read(self):
        """A broker without root's rights looks at a process of root's."""
        subject = self.subject("netns")
        self.config([], isolation={"recheck_s": HOUR})
        os.chmod(self.dir, 0o777)
        self.log = open(self.dir + "/log", "ab")
        program = shutil.copy(BIN + "/wbbroker", self.dir)      # the build may be below root's home
        self.process = subprocess.Popen([program, "--config", self.dir + "/c.yaml"], stderr=self.log, user=54322, group=54322, extra_groups=[])
        until(lambda: "wbbroker: ready" in self.log_text() or self.process.poll() is not None)
        self.assert_refused(self.add("a", "firecracker", subject.subject), "isolation_unknown", "program is unreadable", "Permission denied")
        self.assert_refused(self.add("a", "runc", subject.subject), "isolation_unknown", "chroot is unreadable")


class Again(Case):
    def test_a_layer_that_vanished_cuts_the_vm_off(self):
        """Here the ceiling of a cgroup, which the operator did not demand; and what was verified at first stays so."""
        cgroups = Layers.hierarchies(self)
        self.begin(recheck_s=1)
        p = self.container(*["cgroup=" + d for d in cgroups.values()])
        self.assert_added(self.add("a", "runc", p.subject))
        self.assertEqual(self.layers("a")["cgroup"]["state"], "present")
        until(lambda: [r for r in self.records() if "re-checked" in r.get("detail", "") and r["decision"] == "allow"])
        self.assertEqual(self.connect("a")[0], 403)
        with open(cgroups["pids"] + "/pids.max", "w") as f:
            f.write("max")
        record = self.cut("a")
        self.assertEqual((record["decision"], record["reason"]), ("deny", "isolation_too_weak"))
        self.assertIn("cgroup has vanished", record["detail"])
        self.assertEqual(json.loads(self.wbctl("show", "a", "--json").stdout)["vm"]["state"], "revoked")
        status, head, _ = self.connect("a")
        self.assertEqual(status, 503)
        self.assertIn(b"revoked", head)
        self.assert_gapless()

    @unittest.skipUnless(KVM, "no KVM VM can be made here")
    def test_a_vm_whose_kvm_is_gone_is_cut_off_with_its_connections(self):
        self.write("service.yaml", broker_process.SERVICE)
        service = self.origin()
        self.config([], isolation={"recheck_s": 1, "trust_declared": True}, **service)
        self.start()
        p = self.subject("kvm", program="firecracker")
        self.assert_added(self.add("a", "firecracker", p.subject, "service.yaml"))
        status, _, s = self.connect("a", "origin.example.org:80")
        self.assertEqual(status, 200)
        self.tell(p, "drop_kvm")
        self.assertIn(self.cut("a")["reason"], ("isolation_unknown", "isolation_too_weak"))
        self.assertEqual(s.recv(100), b"")
        s.close()

    def test_activation_looks_again(self):
        self.begin()
        cgroups = Layers.hierarchies(self)
        p = self.container(*["cgroup=" + d for d in cgroups.values()])
        self.assert_added(self.add("a", "runc", p.subject, agent=True))
        with open(cgroups["pids"] + "/pids.max", "w") as f:
            f.write("max")
        r = self.wbctl("resume", "a")
        self.assertEqual(r.returncode, 1, r.stderr)
        self.assertIn("isolation_too_weak: activation refused: cgroup has vanished", r.stderr)
        record = self.recorded("activate")
        self.assertEqual((record["decision"], record["reason"]), ("deny", "isolation_too_weak"))
        self.assertEqual(self.cut("a")["reason"], "isolation_too_weak")

    def test_a_reload_that_demands_more_applies_at_once(self):
        self.begin(trust_declared=True)
        self.assert_added(self.add("a", "runc", self.subject("netns").subject))
        self.assert_added(self.add("b", "runc", self.subject().subject))
        self.config([], isolation={"trust_declared": True, "recheck_s": HOUR, "require_layers": ["netns"]})
        self.reload()
        self.assertIn("netns is absent", self.cut("b")["detail"])
        self.stop()
        self.assertEqual([r["vm"] for r in self.records() if r["event"] == "revoke"], ["b"])

    def test_a_process_that_ends_takes_its_vm_along(self):
        self.begin()
        p = self.container()
        self.assert_added(self.add("a", "runc", p.subject))
        os.kill(p.subject, signal.SIGKILL)
        until(lambda: self.names() == [])
        self.assertIn("process ended", self.recorded("vm_rm")["detail"])

    def test_a_recycled_pid_lends_nothing(self):
        """The first process goes and another one gets its number while the broker does not look; that one would pass by itself."""
        self.begin(recheck_s=1, trust_declared=True)
        p = subprocess.Popen(["sleep", "1000"])
        self.others.append(p)
        self.assert_added(self.add("a", "runc", p.pid))
        stopped = [self.process.pid] + broker_process.children(self.process.pid)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        p.kill()
        p.wait()
        again = self.clone_with_number(p.pid)
        try:
            time.sleep(1.2)
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
            until(lambda: self.names() == [])
            self.assertIn("process ended", self.recorded("vm_rm")["detail"])
            os.kill(again, 0)
        finally:
            os.kill(again, signal.SIGKILL)
            os.waitpid(again, 0)

    def clone_with_number(self, pid):
        libc = ctypes.CDLL(None, use_errno=True)
        number = ctypes.c_int(pid)
        # struct clone_args (linux/sched.h): flags pidfd child_tid parent_tid exit_signal stack stack_size tls set_tid set_tid_size cgroup
        arguments = (ctypes.c_uint64 * 11)(0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(number), 1, 0)
        r = libc.syscall(435, ctypes.byref(arguments), ctypes.sizeof(arguments))
        if r == 0:
            os.execvp("sleep", ["sleep", "1000"])
        if r < 0:
            self.skipTest("no process's number can be chosen here: " + os.strerror(ctypes.get_errno()))
        return r


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
