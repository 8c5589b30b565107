# SPDX-License-Identifier: Apache-2.0
"""A process with the layers of a wall that it is told to have; stands in for a VMM in isolation.py. Prints the pid to look at, then obeys
what it reads, a line each, and answers with one."""
import ctypes
import fcntl
import os
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
KVM_CREATE_VM, KVM_CREATE_VCPU = 0xAE01, 0xAE41
SYS_clone3 = 435
kept = []


def call(r):
    if r < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def unshare(flags):
    call(libc.unshare(flags))


def pidns(_):
    """Only a child is in it: that one goes on, when its number has been told."""
    told, tell = os.pipe()
    unshare(CLONE_NEWPID)
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        os.write(tell, b"x")
        os.waitpid(pid, 0)
        os._exit(0)
    call(libc.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0))
    os.read(told, 1)


def seccomp(_):
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))   # everything is allowed; it is a filter all the same
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
    call(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    call(libc.prctl(PR_SET_SECCOMP, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0))


def kvm(_):
    dev = os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC)
    kept.append(fcntl.ioctl(dev, KVM_CREATE_VM, 0))
    kept.append(fcntl.ioctl(kept[0], KVM_CREATE_VCPU, 0))


def drop_kvm(_):
    for fd in kept:
        os.close(fd)


def chroot(path):
    os.chroot(path)
    os.chdir("/")


def uid(n):
    os.setresgid(int(n), int(n), int(n))
    os.setresuid(int(n), int(n), int(n))


def shared(path):
    """Maps a file as guest memory is mapped."""
    import mmap
    fd = os.open(path, os.O_RDWR)
    kept.append(mmap.mmap(fd, 4096, mmap.MAP_SHARED))


def cgroup(directory):
    with open(directory + "/cgroup.procs", "w") as f:
        f.write("0")


steps = {"pidns": pidns, "seccomp": seccomp, "kvm": kvm, "drop_kvm": drop_kvm, "chroot": chroot, "uid": uid, "shared": shared, "cgroup": cgroup,
         "netns": lambda _: unshare(CLONE_NEWNET), "mntns": lambda _: unshare(CLONE_NEWNS), "userns": lambda _: unshare(CLONE_NEWUSER)}


def main():
    for step in sys.argv[1:]:
        name, _, argument = step.partition("=")
        steps[name](argument)
    if not any(s == "pidns" for s in sys.argv[1:]):
        print(os.getpid(), flush=True)
    print("ready", flush=True)
    for line in sys.stdin:
        name, _, argument = line.strip().partition("=")
        steps[name](argument)
        print("done", flush=True)


main()
