#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wbctl snapshot: one VM that has been warmed and saved, and clones of it.

    tests/system/test_snapshot.py BIN_DIR [unittest argument]...
"""
import hashlib
import os
import re
import shutil
import signal
import stat
import subprocess
import time

import world
from world import PATIENCE_S, WORK, SystemTest, processes, wait_until, write

SAVED = f"{WORK}/saved"
ASLEEP_S = 3        # between the snapshot and its clones: what a clock would lag by that nobody sets
CLOCK_OFF_S = 1.5   # whole seconds of date(1), and a busy machine

# A process that was there before the snapshot: it has drawn a name, and counts on.
WARM = """cat /proc/sys/kernel/random/uuid >/tmp/warm
(i=0; while :; do i=$((i+1)); echo $i >/tmp/next; mv /tmp/next /tmp/count; sleep 0.05; done) >/dev/null 2>&1 &
sleep 0.3; cp /tmp/count /tmp/count-then"""

QUESTIONS = {
    "time": "date +%s",
    "warm": "cat /tmp/warm",
    "then": "cat /tmp/count-then",
    "first": "cat /tmp/count",
    "random": "od -An -tx1 -N32 /dev/urandom",
    "uuid": "cat /proc/sys/kernel/random/uuid",
    "generation": "cat /run/wbagent/generation",
    "interfaces": "ls /sys/class/net",
    "allowed": "curl -sS https://allowed.example.org/",
    "denied": "curl -sSi --max-time 20 https://denied.example.org/",
    "unaware": "env -i /usr/bin/curl -sS https://allowed.example.org/",
    "last": "cat /tmp/count",
}


def arguments(command, *more):
    given = ["snapshot", command, "--socket", SystemTest.world.control]
    if not SystemTest.world.kvm:
        given.append("--allow-unverified")
    return given + list(more)


def create(*more, **options):
    return SystemTest.world.wbctl(*arguments("create", "--image", SystemTest.world.image, *more), **options)


def restore(*more, **options):
    return SystemTest.world.wbctl(*arguments("restore", *more), **options)


def start(command, *more):
    return subprocess.Popen([f"{SystemTest.world.bin}/wbctl", *arguments(command, *more)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def make_snapshot():
    """Once for all tests."""
    if not os.path.exists(SAVED):
        done = create("--memory", "256M", SAVED, "--", "sh", "-c", WARM)
        assert done.returncode == 0, done
        time.sleep(ASLEEP_S)


class Clones(SystemTest):
    """Two clones of one snapshot, at once."""

    @classmethod
    def setUpClass(cls):
        make_snapshot()
        script = "".join(f"echo '<{name}>'; {{ {command}; }} 2>&1\n" for name, command in QUESTIONS.items())
        cls.begun = time.time()
        clones = [start("restore", "--policy", cls.world.policy, SAVED, "--", "sh", "-c", script) for _ in range(2)]
        cls.answers = []
        for clone in clones:
            out, err = clone.communicate(timeout=PATIENCE_S)
            assert clone.returncode == 0, (clone.returncode, out, err)
            cls.answers.append(dict(re.findall(r"<(\w+)>\n(.*?)\n(?=<|\Z)", out.decode(errors="replace"), re.S)))
            assert set(cls.answers[-1]) == set(QUESTIONS), out
        cls.ended = time.time()

    def of_both(self, name):
        return [answers[name] for answers in self.answers]

    def test_what_was_warm_is_the_same_and_goes_on(self):
        self.assertEqual(*self.of_both("warm"))
        self.assertRegex(self.answers[0]["warm"], r"^[0-9a-f-]{36}$")
        for answers in self.answers:
            self.assertGreater(int(answers["then"]), 0)
            self.assertGreaterEqual(int(answers["first"]), int(answers["then"]))
            self.assertGreater(int(answers["last"]), int(answers["first"]))
            self.assertLess(int(answers["first"]), int(answers["then"]) + 20 * ASLEEP_S, "it ran while the VM was saved")

    def test_nothing_random_is_the_same(self):
        for name in ("random", "uuid", "generation"):
            one, two = self.of_both(name)
            self.assertNotEqual(one, two, name)
        self.assertEqual(len(self.answers[0]["random"].split()), 32)
        self.assertNotIn(self.answers[0]["warm"], self.of_both("uuid"))

    def test_each_is_a_generation_of_its_own(self):
        for text in self.of_both("generation"):
            self.assertIn("generation=2\n", text + "\n")        # the saved VM was the first

    def test_the_clock_is_right(self):
        for text in self.of_both("time"):
            self.assertGreater(int(text), self.begun - CLOCK_OFF_S)
            self.assertLess(int(text), self.ended + CLOCK_OFF_S)

    def test_egress_is_what_the_policy_of_the_clone_allows(self):
        for answers in self.answers:
            self.assertEqual(answers["interfaces"], "lo")
            self.assertEqual(answers["allowed"], "Hello from allowed.example.org.")
            self.assertEqual(answers["unaware"], "Hello from allowed.example.org.")
            self.assertIn('details="deny_rule"', answers["denied"])


class Command(SystemTest):
    """restore stands for the command that it runs, as run does."""

    @classmethod
    def setUpClass(cls):
        make_snapshot()

    def test_streams_status_environment_and_secret(self):
        data = hashlib.sha256(b"seed").digest() * 32768
        secret = write(f"{WORK}/secret", "a secret value")
        done = restore("--env", "WORD=as given", "--secret", f"TOKEN={secret}", SAVED, "--", "sh", "-c",
                       'printf "%s|" "$WORD" "$(cat "$TOKEN_FILE")" >&2; sha256sum; curl -sSi https://allowed.example.org/ 2>&1; exit 7',
                       stdin=data)
        self.assert_exit(done, 7)
        self.assertEqual(done.stdout.split()[0].decode(), hashlib.sha256(data).hexdigest())
        self.assertIn(b'details="network_none"', done.stdout)       # without a policy
        self.assertEqual(done.stderr, b"as given|a secret value|")

    def test_ctrl_c_leaves_nothing(self):
        before = set(processes())
        clone = start("restore", SAVED, "--", "sh", "-c", "echo up; exec sleep 1000")
        self.assertEqual(clone.stdout.readline(), b"up\n")
        os.killpg(clone.pid, signal.SIGINT)
        clone.communicate(timeout=PATIENCE_S)
        self.assertEqual(clone.returncode, 128 + signal.SIGINT)
        self.assertEqual(os.listdir(self.world.tmp), [])
        wait_until(lambda: set(processes()) <= before, "the clone's processes to go", 1)

    def test_a_clone_is_quicker_than_a_boot(self):
        def seconds(*command):
            begin = time.monotonic()
            self.assert_exit(self.world.wbctl(*command), 0)
            return time.monotonic() - begin
        boot = seconds(*self.world.run_arguments("--memory", "256M", "--", "true", policy=False))
        clone = seconds(*arguments("restore", SAVED, "--", "true"))
        print(f"\nto the first command's end: run {boot:.2f} s, restore {clone:.2f} s ({100 * clone / boot:.0f} % of it)")
        self.assertLess(clone, boot)


class Directory(SystemTest):
    """What is saved, and what of it is refused."""

    @classmethod
    def setUpClass(cls):
        make_snapshot()

    def setUp(self):
        self.copy = f"{WORK}/copy"
        subprocess.run(["cp", "-a", "--sparse=always", SAVED, self.copy], check=True)
        self.addCleanup(shutil.rmtree, self.copy)

    def machine(self, replace):
        """Rewrites the machine file, with a check that is right."""
        with open(f"{self.copy}/machine", encoding="ascii") as f:
            lines = f.read().rpartition("check ")[0]
        self.assertNotEqual(lines, replace(lines))
        check = hashlib.sha256(replace(lines).encode()).hexdigest()
        write(f"{self.copy}/machine", f"{replace(lines)}check {check}\n")

    def assert_refused(self, *words):
        done = restore(self.copy, "--", "true")
        self.assert_exit(done, 125)
        for word in words:
            self.assertIn(word, done.stderr.decode())
        self.assertEqual(done.stdout, b"")
        self.assertEqual(os.listdir(self.world.tmp), [])

    def test_nobody_else_may_look_into_it(self):
        self.assertEqual(stat.S_IMODE(os.stat(SAVED).st_mode), 0o700)
        self.assertEqual(sorted(os.listdir(SAVED)), ["machine", "memory", "state"])
        for name in os.listdir(SAVED):
            self.assertEqual(stat.S_IMODE(os.stat(f"{SAVED}/{name}").st_mode), 0o600)
        memory = os.stat(f"{SAVED}/memory")
        self.assertEqual(memory.st_size, 256 << 20)
        self.assertLess(memory.st_blocks * 512, 200 << 20)

    def test_an_edited_machine_file(self):
        with open(f"{self.copy}/machine", encoding="ascii") as f:
            text = f.read()
        write(f"{self.copy}/machine", text.replace("cpus 1", "cpus 2"))
        self.assert_refused("machine:13: ", "altered")

    def test_another_qemu(self):
        self.machine(lambda text: re.sub("qemu .*", "qemu 1.2.3", text))
        self.assert_refused("QEMU's version was '1.2.3' and is '")

    def test_another_machine(self):
        self.machine(lambda text: text.replace("machine q35,", "machine q35,hpet=off,"))
        self.assert_refused("the machine was 'q35,hpet=off,")

    def test_another_processor(self):
        self.machine(lambda text: re.sub("processor .*", "processor MOS 6502", text))
        self.assert_refused("the processor was 'MOS 6502'")

    def test_another_size_of_memory(self):
        self.machine(lambda text: re.sub("memory .*", f"memory {512 << 20}", text))
        self.assert_refused("memory: is not as large as the machine's memory")

    def test_an_altered_state(self):
        with open(f"{self.copy}/state", "r+b") as f:
            f.seek(1000)
            f.write(b"altered")
        self.assert_refused("state: is not the state")

    def test_missing_files_and_links(self):
        for name in ("machine", "memory", "state"):
            with self.subTest(name=name):
                os.rename(f"{self.copy}/{name}", f"{self.copy}/elsewhere")
                self.assert_refused(f"/{name}: No such file")
                os.symlink("elsewhere", f"{self.copy}/{name}")
                self.assert_refused(f"/{name}: is not a regular file")
                os.rename(f"{self.copy}/elsewhere", f"{self.copy}/{name}")
        done = restore("/no/such/snapshot", "--", "true")
        self.assert_exit(done, 125)
        self.assertIn(b"/no/such/snapshot: No such file", done.stderr)

    def test_software_emulation_is_refused_unless_allowed(self):
        if self.world.kvm:
            self.skipTest("KVM is usable")
        for given in (["restore", SAVED, "--", "true"], ["create", f"{WORK}/none"]):
            done = self.world.wbctl("snapshot", *given)
            self.assert_exit(done, 125)
            self.assertIn(b"--allow-unverified", done.stderr)
        self.assertFalse(os.path.exists(f"{WORK}/none"))


class Creation(SystemTest):
    def assert_nothing_made(self):
        self.assertFalse([name for name in os.listdir(WORK) if name.startswith("none")])
        self.assertEqual(os.listdir(self.world.tmp), [])

    def test_a_command_that_fails(self):
        done = create(f"{WORK}/none", "--", "sh", "-c", "exit 3")
        self.assert_exit(done, 3)
        self.assertIn(b"nothing is saved", done.stderr)
        self.assert_nothing_made()

    def test_ctrl_c(self):
        making = start("create", "--image", self.world.image, f"{WORK}/none", "--", "sleep", "1000")
        wait_until(lambda: any("(qemu-system" in text for text in processes().values()), "QEMU")
        os.killpg(making.pid, signal.SIGINT)
        making.communicate(timeout=PATIENCE_S)
        self.assertIn(making.returncode, (-signal.SIGINT, 128 + signal.SIGINT))
        self.assert_nothing_made()

    def test_what_is_there_already(self):
        done = create(WORK)
        self.assert_exit(done, 125)
        self.assertIn(f"{WORK}: File exists".encode(), done.stderr)
        self.assert_exit(create("/no/such/directory/saved"), 125)

    def test_wrong_usage(self):
        for given in ([], ["create"], ["create", "none", "true"], ["create", "none", "--"], ["create", "--memory", "1M", "none"],
                      ["create", "--secret", "A=B", "none"], ["restore"], ["restore", SAVED], ["restore", SAVED, "--"],
                      ["restore", SAVED, "true"], ["restore", "--memory", "1G", SAVED, "--", "true"], ["keep"]):
            with self.subTest(given=given):
                done = self.world.wbctl("snapshot", *given)
                self.assert_exit(done, 2)
                self.assertNotEqual(done.stderr, b"")


if __name__ == "__main__":
    world.main()
