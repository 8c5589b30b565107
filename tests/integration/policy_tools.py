#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wbctl policy lint, diff and suggest, and wbctl top, with a broker where they need one. Needs WB_BIN."""
import json
import os
import pty
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from broker_process import BIN, Case, until    # noqa: E402

ALLOWLIST = "isolation: trusted\nnetwork: allowlist_domain\n"


def wbctl(*arguments, **more):
    return subprocess.run([BIN + "/wbctl", *arguments], capture_output=True, text=True, timeout=60, **more)


class Files(Case):
    def path(self, name, text):
        self.write(name, text)
        return "%s/%s" % (self.dir, name)

    def test_lint(self):
        clean = self.path("clean.yaml", ALLOWLIST + "egress_rules:\n  - {pattern: a.org}\n")
        r = wbctl("policy", "lint", clean)
        self.assertEqual((r.returncode, r.stdout, r.stderr), (0, "", ""))
        bad = self.path("bad.yaml", ALLOWLIST + "egress_rules:\n  - {pattern: a.org}\n  - pattern: a.org\n    http_methods: [GET]\n")
        r = wbctl("policy", "lint", bad)
        self.assertEqual(r.returncode, 1)
        self.assertRegex(r.stdout, r"^%s:6:19: warning: rule 1 .*rule 0 \(line 4\).* \[opaque\]\n$" % bad)
        answer = json.loads(wbctl("policy", "lint", "--json", bad).stdout)
        self.assertFalse(answer["clean"])
        self.assertEqual([(f["code"], f["rule"], f["line"], f["column"], f["severity"]) for f in answer["findings"]],
                         [("opaque", 1, 6, 19, "warning")])
        note = self.path("note.yaml", ALLOWLIST + "egress_rules:\n  - {pattern: a.org, http_methods: [GET]}\n")
        r = wbctl("policy", "lint", note)
        self.assertEqual(r.returncode, 0)
        self.assertIn(": note: ", r.stdout)
        invalid = self.path("invalid.yaml", "network: nope\n")
        r = wbctl("policy", "lint", "--json", invalid)
        self.assertEqual((r.returncode, json.loads(r.stdout)["line"]), (2, 1))
        self.assertIn("invalid.yaml:1:10: ", r.stderr)
        self.assertEqual(wbctl("policy", "lint").returncode, 2)
        self.assertEqual(wbctl("policy", "lint", self.dir + "/nowhere.yaml").returncode, 2)

    def test_diff(self):
        a = self.path("a.yaml", ALLOWLIST + "egress_rules:\n  - {pattern: x.example.org, http_methods: [GET]}\n")
        b = self.path("b.yaml", ALLOWLIST + "egress_rules:\n  - {pattern: x.example.org, http_methods: [GET, PUT], ports: [443]}\n")
        r = wbctl("policy", "diff", a, a)
        self.assertEqual(r.returncode, 0)
        self.assertTrue(json.loads(wbctl("policy", "diff", "--json", a, a).stdout)["same"])
        r = wbctl("policy", "diff", a, b)
        self.assertEqual(r.returncode, 1)
        self.assertIn("+ allows     PUT https|http://x.example.org:443/...\n", r.stdout)
        self.assertIn("- denies     GET https|http://x.example.org:80/...\n", r.stdout)
        self.assertEqual(wbctl("policy", "diff", a, self.path("invalid.yaml", "x: 1\n")).returncode, 2)
        self.assertEqual(wbctl("policy", "diff", a).returncode, 2)

    def test_what_diff_says_why_says_too(self):
        a = self.path("a.yaml", ALLOWLIST + "egress_rules:\n  - {pattern: '*.a.org', http_paths: ['/p/*']}\n  - {pattern: 8.8.0.0/16, ports: [53]}\n")
        b = self.path("b.yaml", "network: public\negress_rules:\n  - {pattern: '**.a.org', ports: [443], http_methods: [GET]}\n")
        answer = json.loads(wbctl("policy", "diff", "--json", a, b).stdout)
        self.assertTrue(answer["complete"])
        asked = 0
        for d in answer["differences"]:
            if d["dns"] or d["service_only"] or "http" not in d["protocols"]:
                continue
            host = "[%s]" % d["host"] if ":" in d["host"] else d["host"]
            words = ["--via", "http"]
            if d["method"]:
                words += ["--method", d["method"]]
            if d["path"]:
                words += ["--path", d["path"]]
            for port in d["ports"]:
                decisions = [json.loads(wbctl("why", "--json", "--policy", f, *words, "%s:%d" % (host, port)).stdout) for f in (a, b)]
                said = tuple(x["decision"] for x in decisions)
                if d["change"] in ("allows", "denies"):
                    self.assertEqual(said, ("deny", "allow") if d["change"] == "allows" else ("allow", "deny"), d)
                else:
                    self.assertNotEqual(decisions[0]["inspect"], decisions[1]["inspect"], d)
                asked += 1
        self.assertGreater(asked, 5)


class Log(Case):
    def ask(self, target):
        status, _, s = self.connect("a", target)
        s.close()
        return status

    def test_suggest_allows_what_was_denied(self):
        self.write("p.yaml", ALLOWLIST + "egress_rules:\n  - {pattern: known.example.org, ports: [80]}\n  - {pattern: never.example.org}\n")
        self.config([self.vm("a", "p.yaml"), self.vm("b")], **self.origin())
        self.start()
        for _ in range(3):
            self.assertEqual(self.ask("origin.example.org:80"), 403)
        self.assertEqual(self.ask("10.0.0.1:443"), 403)
        self.assertEqual(self.ask("known.example.org:8443"), 403)
        self.connect("b", "other.example.org:443")[2].close()
        until(lambda: len([r for r in self.records() if r["event"] == "egress_deny"]) == 6)

        arguments = ["policy", "suggest", "--dir", self.audit_dir, "--vm", "a", "--policy", self.dir + "/p.yaml"]
        r = wbctl(*arguments)
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertIn("# port 80: denied 3 times (no_rule), last 20", r.stdout)
        self.assertIn("floor_address 1", r.stdout)
        self.assertIn("rule 1: allow never.example.org", r.stdout)
        for not_there in ("10.0.0.1", "other.example.org"):
            self.assertNotIn(not_there, r.stdout)
        self.write("s.yaml", r.stdout)
        self.assertEqual(wbctl("policy", "check", self.dir + "/s.yaml").returncode, 0)
        self.assertTrue(self.control(op="vm_policy", name="a", policy="isolation: trusted\n" + r.stdout)["ok"])
        self.assertEqual(self.ask("origin.example.org:80"), 200)
        self.assertEqual(self.ask("origin.example.org:443"), 403)

        # The same by the log's file, and none of it from the future on.
        by_file = wbctl("policy", "suggest", "--vm", "b", self.audit_dir + "/audit.log").stdout
        self.assertIn('pattern: "other.example.org"', by_file)
        self.assertNotIn("pattern:", wbctl(*arguments, "--since", "2099-01-01T00:00:00Z").stdout)
        self.assertIn("pattern:", wbctl(*arguments, "--since", "1h").stdout)
        self.assertEqual(wbctl(*arguments, "--since", "tomorrow").returncode, 2)
        self.assertEqual(wbctl("policy", "suggest", "--dir", self.dir + "/nowhere").returncode, 125)
        self.assertEqual(wbctl("policy", "suggest", self.dir).returncode, 125)
        self.stop()

    def test_suggest_believes_no_line(self):
        lines = [b'{"seq":1,"ts":"2026-01-02T03:04:05.000000Z","event":"egress_deny","decision":"deny","reason":"no_rule","host":"a.org","port":443}',
                 b'{"seq":2,"ts":"2026-01-02T03:04:05.000000Z","event":"egress_deny","decision":"deny","reason":"no_rule","host":"a.org\\n  - {pattern: evil.org}","port":443}',
                 b'no json', b'\xff\xfe', b'[' * 5000, b'{"seq":3}']
        with open(self.dir + "/log.json", "wb") as f:
            f.write(b"\n".join(lines) + b"\nhalf a li")
        r = wbctl("policy", "suggest", self.dir + "/log.json")
        self.assertEqual(r.returncode, 0)
        self.assertNotIn("evil", r.stdout)
        self.assertIn("skipped: 4 lines", r.stdout)
        self.assertIn("host, method or path: 1 records", r.stdout)
        self.write("s.yaml", r.stdout)
        self.assertEqual(json.loads(wbctl("policy", "check", "--json", self.dir + "/s.yaml").stdout)["allow_rules"], 1)


class Top(Case):
    def top(self, *arguments):
        return wbctl("top", "--socket", self.dir + "/run/control.sock", *arguments)

    def begin(self):
        self.config([self.vm("a", "service.yaml"), self.vm("b")], **self.origin())
        self.start()

    def test_counts_and_rates(self):
        self.begin()
        status, _, s = self.connect("a", "origin.example.org:80")
        self.assertEqual(status, 200)
        self.assertEqual(self.connect("b")[0], 403)
        s.sendall(b"x" * 1000)
        got = 0
        while got < 1000:
            got += len(s.recv(4096))
        look = json.loads(self.top("--json").stdout)
        vms = {v["name"]: v for v in look["vms"]}
        self.assertEqual(sorted(vms), ["a", "b"])
        self.assertEqual((vms["a"]["state"], vms["a"]["sessions_open"], vms["a"]["allowed_total"], vms["a"]["denied_total"]), ("open", 1, 1, 0))
        self.assertEqual((vms["a"]["bytes_up"], vms["a"]["bytes_down"]), (1000, 1000))
        self.assertEqual((vms["b"]["allowed_total"], vms["b"]["denied_total"]), (0, 1))
        self.assertIsNone(vms["a"]["up_bps"])

        process = subprocess.Popen([BIN + "/wbctl", "top", "--json", "-n", "2", "-d", "1s", "--socket", self.dir + "/run/control.sock"],
                                   stdout=subprocess.PIPE, text=True)
        first = json.loads(process.stdout.readline())
        self.assertIsNone({v["name"]: v for v in first["vms"]}["a"]["up_bps"])
        s.sendall(b"y" * 5000)
        second = json.loads(process.stdout.readline())
        self.assertEqual(process.wait(20), 0)
        process.stdout.close()
        a = {v["name"]: v for v in second["vms"]}["a"]
        self.assertEqual(a["bytes_up"], 6000)
        self.assertGreater(a["up_bps"], 100)
        self.assertLess(a["up_bps"], 5100)
        self.assertEqual(second["vms"][0]["name"], "a", "the busiest first")
        s.close()

        table = self.top().stdout.splitlines()
        self.assertIn("2 VMs", table[0])
        self.assertRegex(table[3], r"^a +open +\d+ +- +- +5\.9K ")
        self.assertNotIn("\033", "".join(table))
        self.stop()
        r = self.top()
        self.assertEqual(r.returncode, 125)
        self.assertIn("is wbbroker running?", r.stderr)
        self.assertEqual(self.top("-d", "1ms").returncode, 2)

    def on_terminal(self, *arguments):
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(BIN + "/wbctl", ["wbctl", "top", "-d", "100ms", "--socket", self.dir + "/run/control.sock", *arguments])
        self.addCleanup(os.close, fd)
        return pid, fd

    def read_to_end(self, fd, seconds=20):
        data, end = b"", time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                d = os.read(fd, 65536)
            except OSError:
                break
            if not d:
                break
            data += d
        return data

    def test_the_terminal_is_given_back(self):
        self.begin()
        pid, fd = self.on_terminal("-n", "3")
        data = self.read_to_end(fd)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(data.count(b"2 VMs"), 3)
        self.assertTrue(data.startswith(b"\033[?1049h\033[?25l"), data[:80])
        self.assertTrue(data.endswith(b"\033[?25h\033[?1049l"), data[-80:])

        for number in (signal.SIGINT, signal.SIGTERM):
            pid, fd = self.on_terminal()
            data = b""
            while data.count(b"2 VMs") < 2:
                data += os.read(fd, 65536)
            if number == signal.SIGINT:
                os.write(fd, b"\x03")
            else:
                os.kill(pid, number)
            data = self.read_to_end(fd)
            self.assertEqual(os.WTERMSIG(os.waitpid(pid, 0)[1]), number)
            self.assertTrue(data.endswith(b"\033[?25h\033[?1049l"), data[-80:])

        pid, fd = self.on_terminal()
        os.read(fd, 65536)
        self.stop()
        data = self.read_to_end(fd)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 125)
        self.assertIn(b"\033[?25h\033[?1049lwbctl: the broker does not answer any more", data)


if __name__ == "__main__":
    unittest.main()
