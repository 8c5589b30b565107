# SPDX-License-Identifier: Apache-2.0
"""A small VM for tests: QEMU, its monitor, and wbvsock beside it. As it stands here its guest is an initramfs from one static
program and some modules; guest.py has the one with the agent."""

import contextlib
import fcntl
import glob
import json
import os
import signal
import socket
import subprocess
import tempfile
import time

MODULES = [
    "virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
    "vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport",
]
PACKAGE = "linux-image-cloud-amd64"
VSOCK = "vhost-user-vsock-pci,id=vsock0,chardev=vs,bus=rp0"


class Unavailable(Exception):
    """What the test needs is not on this machine and cannot be had."""


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def kernel_below(root):
    for image in sorted(glob.glob(f"{root}/boot/vmlinuz-*cloud-amd64"), reverse=True):
        modules = f"{root}/lib/modules/{os.path.basename(image)[len('vmlinuz-'):]}"
        if os.path.isdir(modules):
            return image, modules
    return None


def fetch_kernel(cache):
    packages = [line.split()[-1] for line in run("apt-cache", "depends", PACKAGE).splitlines() if "Depends: linux-image-" in line]
    if not packages:
        raise Unavailable(f"{PACKAGE} is unknown to apt")
    run("apt-get", "download", packages[0], cwd=cache)
    for deb in glob.glob(f"{cache}/*.deb"):
        run("dpkg-deb", "-x", deb, cache)
        os.unlink(deb)
    return kernel_below(cache)


def find_kernel(cache):
    """(image, modules directory), of the machine or unpacked from the distribution's package into the cache."""
    found = kernel_below("/")
    if found:
        return found
    os.makedirs(cache, exist_ok=True)
    with open(f"{cache}/lock", "w") as lock:        # tests run beside each other
        fcntl.flock(lock, fcntl.LOCK_EX)
        return kernel_below(cache) or fetch_kernel(cache)


def cpio_entry(name, mode, data=b""):
    name = name.encode() + b"\0"
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
    head = b"070701" + b"".join(b"%08x" % f for f in fields) + name
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)


def initramfs(init, modules, path):
    with open(path, "wb") as out, open(init, "rb") as program:
        out.write(cpio_entry("init", 0o100755, program.read()))
        out.write(cpio_entry("modules", 0o040755))
        for i, name in enumerate(MODULES):
            found = glob.glob(f"{modules}/kernel/**/{name}.ko", recursive=True)
            with open(found[0], "rb") as module:
                out.write(cpio_entry(f"modules/{i:02}.ko", 0o100644, module.read()))
        out.write(cpio_entry("TRAILER!!!", 0))


class Monitor:
    """QMP: one command, one answer; events are kept."""

    def __init__(self, path):
        self.socket = connect(path, 20)
        self.socket.settimeout(30)
        self.file = self.socket.makefile("rwb", buffering=0)
        self.events = []
        self.read()
        self.do("qmp_capabilities")

    def read(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("QEMU closed its monitor")
        return json.loads(line)

    def do(self, command, **arguments):
        self.file.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = self.read()
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{command}: {answer['error']}")
            else:
                return answer["return"]

    def unplug(self, device):
        self.events.clear()
        self.do("device_del", id=device)
        while not any(e["event"] == "DEVICE_DELETED" and e["data"].get("device") == device for e in self.events):
            self.events.append(self.read())

    def human(self, line):
        return self.do("human-monitor-command", **{"command-line": line})


def connect(path, seconds):
    deadline = time.monotonic() + seconds
    while True:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(path)
            return s
        except OSError:
            s.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Machine:
    """One directory, one wbvsock, one QEMU. `with Machine(...) as vm`; nothing is left on any exit."""

    def __init__(self, arguments, cid=42, options=()):
        self.arguments, self.cid, self.options = arguments, cid, list(options)
        self.stack = contextlib.ExitStack()
        self.monitor = None

    def path(self, name):
        return os.path.join(self.directory, name)

    def __enter__(self):
        try:
            self.directory = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="wbvsock-"))
            self.prepare()
            self.wbvsock = self.start_wbvsock()
            self.qemu = self.start_qemu()
            self.monitor = Monitor(self.path("qmp"))
            return self
        except BaseException:
            self.stack.close()
            raise

    def prepare(self):
        """Puts into the directory what boot() names."""
        self.image, modules = find_kernel(self.arguments.cache)
        initramfs(self.arguments.guest, modules, self.path("initrd"))

    def boot(self):
        """What QEMU starts with."""
        return ["-kernel", self.image, "-initrd", self.path("initrd"),
                "-append", "console=ttyS0 quiet panic=-1 cryptomgr.notests nokaslr audit=0"]

    def memory(self):
        return "memory-backend-memfd,id=mem,size=256M,share=on"

    def devices(self):
        return ["-device", VSOCK]

    def __exit__(self, *error):
        if error[0]:
            for name in ("console", "log"):
                if not os.path.exists(self.path(name)):
                    continue
                with open(self.path(name), errors="replace") as f:
                    print(f"--- {name}\n{f.read()[-3000:]}")
        self.stack.close()

    def start(self, command, **more):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **more)
        self.stack.callback(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start_wbvsock(self):
        ready, inherited = os.pipe()
        with open(self.path("log"), "ab") as log:
            process = self.start(
                [self.arguments.wbvsock, "--socket", self.path("vhost"), "--uds", self.path("v"), "--cid", str(self.cid),
                 "--ready-fd", str(inherited), "--die-with-parent", "--verbose", *self.options],
                pass_fds=[inherited], stderr=log)
        os.close(inherited)
        with os.fdopen(ready, "rb") as f:
            if f.read() != b"\n":
                with open(self.path("log"), errors="replace") as log:
                    raise AssertionError("wbvsock did not get ready: " + log.read())
        return process

    def start_qemu(self):
        return self.start(
            [self.arguments.qemu, "-M", "q35,memory-backend=mem,sata=off,smbus=off,usb=off,vmport=off", "-nodefaults",
             "-display", "none", "-nic", "none", "-m", "256M", "-object", self.memory(), *self.boot(),
             "-serial", "file:" + self.path("console"),
             "-qmp", f"unix:{self.path('qmp')},server=on,wait=off",
             "-chardev", f"socket,id=vs,path={self.path('vhost')}",
             "-device", "pcie-root-port,id=rp0,chassis=1,slot=1", *self.devices()], stderr=subprocess.STDOUT,
            stdout=open(self.path("log"), "ab"))

    def plug(self):
        """The vsock device, where it is not there."""
        self.monitor.do("device_add", driver="vhost-user-vsock-pci", id="vsock0", chardev="vs", bus="rp0")

    def dial(self, port, seconds=60, once=False):
        """A connection to the guest's port; retried while it is closed without a word."""
        deadline = time.monotonic() + seconds
        while True:
            s = connect(self.path("v"), seconds)
            s.settimeout(60)
            line = b""
            try:
                s.sendall(b"CONNECT %d\n" % port)
                while not line.endswith(b"\n"):
                    c = s.recv(1)
                    if not c:
                        break
                    line += c
            except ConnectionError:
                pass
            if line.startswith(b"OK ") and line.endswith(b"\n"):
                return s
            s.close()
            if once or time.monotonic() > deadline:
                raise ConnectionRefusedError(f"port {port}: {line}")
            time.sleep(0.05)

    def listen(self, port):
        s = socket.socket(socket.AF_UNIX)
        s.bind(self.path(f"v_{port}"))
        s.listen(4096)          # so that no test measures how fast Python accepts
        s.settimeout(60)
        self.stack.callback(s.close)
        return s
