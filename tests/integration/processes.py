# SPDX-License-Identifier: Apache-2.0
"""Waiting for things, and who is whose child: what several tests need."""
import time


def until(what, message="", seconds=20):
    """What it says, once that is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(message or "not within %s s" % seconds)


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        return [int(x) for x in f.read().split()]
