#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The help of every program and of every command of wbctl, and wrong usage. Needs WB_BIN."""
import os
import re
import subprocess
import sys
import unittest

COLUMNS = 120


def ask(*argv):
    done = subprocess.run([os.path.join(os.environ["WB_BIN"], argv[0]), *argv[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    return done.returncode, done.stdout, done.stderr


def commands(text):
    part = re.search(r"^commands:\n((?:  .*\n)+)", text, re.M)
    return re.findall(r"^  (\w+) +\S", part.group(1), re.M) if part else []


class Help(unittest.TestCase):
    def each(self, *argv):
        """What the help says of itself, for this and all below it; the number of those that have no commands."""
        status, out, err = ask(*argv, "--help")
        with self.subTest(argv=argv):
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out.startswith("usage: " + " ".join(argv) + " "), out)
            self.assertEqual([line for line in out.splitlines() if len(line) > COLUMNS or line != line.rstrip()], [])
            self.assertTrue(commands(out) or "\nexample:\n  " in out, out)
        return sum(self.each(*argv, name) for name in commands(out)) or 1

    def test_every_command(self):
        self.assertGreater(self.each("wbctl"), 40)

    def test_the_other_programs(self):
        for name in ("wbagent", "wbbroker", "wbvsock"):
            self.each(name)

    def test_an_unknown_command_is_wrong_usage(self):
        for argv in (["wbctl"], ["wbctl", "bogus"], ["wbctl", "vm"], ["wbctl", "vm", "bogus"], ["wbctl", "secret", "--bogus"]):
            status, out, err = ask(*argv)
            self.assertEqual((status, out), (2, ""), argv)
            self.assertIn("\ncommands:\n", err)
            self.assertEqual("unknown command" in err, argv[-1].endswith("bogus"), argv)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
