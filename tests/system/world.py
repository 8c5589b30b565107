# SPDX-License-Identifier: Apache-2.0
"""A world for tests of whole VMs: namespaces of its own, the small internet of tests/support, an image, a real broker. A script says

    import world
    class X(world.SystemTest): ...              # self.world is the World
    if __name__ == "__main__":
        world.main()

and is called with BIN_DIR [unittest argument]... as root (exit 77, skipped, without)."""
import json
import os
import subprocess
import sys
import time
import unittest

SKIPPED = 77
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = "/dev/shm" if os.path.isdir("/dev/shm") else "/mnt"
PATIENCE_S = 120

POLICY = """\
version: 1
network: allowlist_domain
egress_rules:
  - pattern: "*.example.org"
    ports: [443]
  - pattern: denied.example.org
    action: deny
  - pattern: get.example.org
    ports: [80]
    http_methods: [GET]
"""


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def wait_until(condition, what, seconds=PATIENCE_S):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up waiting for {what}")
        time.sleep(0.02)


def processes():
    """What there is in this pid namespace; not the dead whose parent has gone before them: we are their init, and reap nobody."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                stat = f.read()
        except OSError:
            continue
        state, parent = stat.rpartition(")")[2].split()[:2]
        if (state, parent) != ("Z", "1"):
            found[int(pid)] = stat
    return found


class World:
    """The internet, the image, the broker: made once."""

    def __init__(self, bin_directory):
        self.bin = bin_directory
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", WORK], check=True)
        self.tmp = f"{WORK}/tmp"
        self.run = f"{WORK}/broker"
        self.image = f"{WORK}/image"
        self.control = f"{self.run}/control.sock"
        os.makedirs(self.tmp)
        os.makedirs(f"{WORK}/internet")
        os.environ["TMPDIR"] = self.tmp
        # The images are the test's own; the kernel was fetched while there was a network.
        os.makedirs(f"{WORK}/cache/wb")
        os.symlink(os.path.dirname(os.environ["WB_SYSTEM_TEST_KERNEL"]), f"{WORK}/cache/wb/kernel")
        os.environ["XDG_CACHE_HOME"] = f"{WORK}/cache"
        subprocess.run([f"{TOP}/tests/support/internet", f"{WORK}/internet", "allowed.example.org", "denied.example.org",
                        "inside.example.org"], check=True)
        self.ca = f"{WORK}/internet/ca.pem"
        self.policy = write(f"{WORK}/policy.yaml", POLICY)
        self.image_key = f"{WORK}/image.key"
        subprocess.run([f"{self.bin}/wbctl", "image", "sign", "--new-key", self.image_key], check=True)
        subprocess.run([f"{self.bin}/wbctl", "image", "build", "--ca", self.ca, "--out", self.image, "--sign", self.image_key],
                       check=True, stdout=subprocess.DEVNULL)
        self.kvm = self.wbctl("run", "--image", self.image, "--", "true").returncode == 0
        self.start_broker()

    def start_broker(self):
        config = write(f"{WORK}/broker.yaml",
                       f"state_dir: {WORK}/state\nrun_dir: {self.run}\naudit: {{dir: {WORK}/audit, sync: none}}\n"
                       f"dns: {{servers: [5.5.5.53]}}\nuser: nobody\n"
                       f"isolation: {{trust_declared: {'false' if self.kvm else 'true'}}}\n")
        with open(f"{WORK}/broker.log", "wb") as log:
            self.broker = subprocess.Popen([f"{self.bin}/wbbroker", "--config", config], stderr=log)
        wait_until(lambda: os.path.exists(self.control) or self.broker.poll() is not None, "the broker's control socket", 30)
        if self.broker.poll() is not None:
            sys.exit("the broker ended: " + open(f"{WORK}/broker.log", encoding="utf-8").read())

    def wbctl(self, *arguments, stdin=b"", timeout=PATIENCE_S):
        return subprocess.run([f"{self.bin}/wbctl", *arguments], input=stdin, capture_output=True, timeout=timeout, check=False)

    def run_arguments(self, *arguments, policy=True):
        given = ["run", "--socket", self.control, "--image", self.image]
        if not self.kvm:
            given.append("--allow-unverified")
        if policy:
            given += ["--policy", self.policy]
        return given + list(arguments)

    def run_vm(self, *arguments, policy=True, **more):
        return self.wbctl(*self.run_arguments(*arguments, policy=policy), **more)

    def audit(self):
        with open(f"{WORK}/audit/audit.log", encoding="utf-8") as f:
            return [json.loads(line) for line in f]


class SystemTest(unittest.TestCase):
    world = None

    def assert_exit(self, done, status):
        self.assertEqual(done.returncode, status, f"\nstdout: {done.stdout!r}\nstderr: {done.stderr!r}")


def main():
    if os.geteuid() != 0:
        print("skipped: wants root for its namespaces")
        sys.exit(SKIPPED)
    if "WB_SYSTEM_TEST_KERNEL" not in os.environ:
        fetched = subprocess.run([f"{TOP}/images/microvm/build", "--fetch"], check=True, stdout=subprocess.PIPE, text=True)
        os.environ["WB_SYSTEM_TEST_KERNEL"] = fetched.stdout.strip()
        os.execvp("unshare", ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", sys.executable,
                              os.path.abspath(sys.argv[0]), *sys.argv[1:]])
    SystemTest.world = World(os.path.abspath(sys.argv[1]))
    result = unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, exit=False).result
    # A test that is init of its namespace must not leave the broker's last words behind unread when something failed.
    if not result.wasSuccessful():
        with open(f"{WORK}/broker.log", encoding="utf-8", errors="replace") as f:
            print("---- the broker's log", f.read()[-8000:], sep="\n")
    sys.exit(0 if result.wasSuccessful() else 1)
