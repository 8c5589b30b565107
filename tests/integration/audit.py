#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The audit log of a real broker as an auditor sees it: whole after restarts, rotations and crashes, and everything that is done to it is
found. Needs WB_BIN."""
import base64
import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from broker_process import BIN, ROOT, Case
from processes import until

POLICY = """isolation: trusted
network: allowlist_domain
egress_rules:
  - {pattern: origin.example.org, ports: [80], protocol: http}
"""


class Audit(Case):
    def setUp(self):
        super().setUp()
        self.write("web.yaml", POLICY)

    def broker(self, rotate=4096, sync="batch", **more):
        audit = {"dir": self.audit_dir, "sync": sync, "required": True, "rotate_bytes": rotate}
        self.config([self.vm("a", policy="web.yaml")], audit=audit, **more)
        self.start()
        until(lambda: os.path.exists(self.dir + "/state/audit.head"))

    def ask(self, n=1, host="denied%d.example.org"):
        for i in range(n):
            self.connect("a", host % i + ":443")[2].close()

    def request(self, text):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect(self.dir + "/vm/a/1025")
        s.sendall(text)
        s.shutdown(socket.SHUT_WR)
        data = b""
        while True:
            d = s.recv(65536)
            if not d:
                return data
            data += d

    def a_log(self, n=3, **more):
        """A whole one of a broker that has ended."""
        self.broker(**more)
        self.ask(n)
        self.stop()

    def wbctl(self, *arguments):
        r = subprocess.run([BIN + "/wbctl", "audit", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        return r.returncode, r.stdout.decode(), r.stderr.decode()

    def trust(self):
        return ["--key", self.dir + "/state/audit.pub", "--head", self.dir + "/state/audit.head"]

    def verify(self, *arguments, expect=0, log=None):
        """The answer, as JSON."""
        status, out, err = self.wbctl("verify", "--json", "--dir", log or self.audit_dir, *arguments)
        self.assertEqual(status, expect, out + err)
        answer = json.loads(out)
        self.assertEqual(answer["ok"], expect == 0)
        return answer

    def kinds(self, *arguments, **more):
        return sorted({f["kind"] for f in self.verify(*arguments, expect=1, **more)["findings"]})

    def files(self):
        return sorted(glob.glob(self.audit_dir + "/audit.log.*")) + [self.audit_dir + "/audit.log"]

    def text(self):
        out = b""
        for name in self.files():
            try:
                with open(name, "rb") as f:
                    out += f.read()
            except FileNotFoundError:   # put aside meanwhile, or between two
                continue
        return out


class Verify(Audit):
    def test_whole_over_rotations_and_restarts(self):
        for _ in range(3):
            self.broker()
            self.ask(20)
            self.stop()
        self.assertGreater(len(self.files()), 5)
        answer = self.verify(*self.trust())
        self.assertEqual(answer["files"], len(self.files()))
        self.assertEqual(answer["records"], len(self.records()))
        self.assertEqual(answer["unsigned_tail"], 0)
        self.assertEqual(answer["crashes"], 0)
        self.assertEqual(answer["notes"], [])
        self.assert_gapless()
        self.assertEqual(self.records()[-1]["event"], "checkpoint")
        for name in self.files()[1:]:
            with open(name) as f:
                self.assertEqual(json.loads(f.readline())["event"], "checkpoint", "each file can be checked by itself")
            self.assertLessEqual(os.stat(name).st_size, 4096)
        self.assertEqual(self.wbctl("verify", "--partial", self.files()[3])[0], 0)
        self.assertEqual(self.wbctl("verify", *reversed(self.files()))[0], 0, "files are read in their order")
        os.unlink(self.files()[2])
        self.assertIn("missing", self.kinds())

    def test_by_hand(self):
        """As broker/audit_record.h and audit_checkpoint.h say it, with other tools."""
        self.a_log()
        before = "0" * 64
        for line in self.text().decode().splitlines():
            body, digest = line[:-len(',"hash":"') - 66], line[-66:-2]
            self.assertEqual(hashlib.sha256((before + "\n" + body).encode()).hexdigest(), digest)
            shell = "before=%s; line=$(cat); printf '%%s\\n%%s' \"$before\" \"${line%%,\\\"hash\\\":*}\" | sha256sum" % before
            self.assertEqual(subprocess.run(["sh", "-c", shell], input=line, capture_output=True, text=True).stdout[:64], digest)
            record = json.loads(line)
            if record["event"] == "checkpoint":
                self.assertEqual(record["previous"], before)
                self.check_signature(record)
            else:
                self.assertFalse({"sig", "key", "previous", "after"} & set(record))
            before = digest

    def check_signature(self, record):
        if not shutil.which("openssl"):
            self.skipTest("needs openssl")
        with open(self.dir + "/state/audit.pub") as f:
            pem = f.read()
        self.assertEqual("".join(pem.splitlines()[1:-1]), record["key"])
        with open(self.dir + "/sig", "wb") as f:
            f.write(base64.b64decode(record["sig"]))
        self.write("statement", "wbbroker audit checkpoint\nseq {seq}\nts {ts}\nprevious {previous}\nafter {after} {after_hash}\n".format(**record))
        subprocess.run(["openssl", "dgst", "-sha256", "-verify", self.dir + "/state/audit.pub", "-signature", self.dir + "/sig",
                        self.dir + "/statement"], check=True, stdout=subprocess.DEVNULL)

    def test_bytes(self):
        """Every byte is tried by tests/unit; here some of them with the program itself, newlines and the last byte among them."""
        self.a_log(n=1, rotate=1 << 20)
        name = self.audit_dir + "/audit.log"
        text = self.text()
        places = set(range(0, len(text), 61)) | {len(text) - 1} | {m.start() for m in re.finditer(b"\n", text)}
        for at in sorted(places):
            with open(name, "wb") as f:
                f.write(text[:at] + bytes([text[at] ^ 1 << at % 8]) + text[at + 1:])
            status, out, _ = self.wbctl("verify", "--dir", self.audit_dir)
            self.assertEqual(status, 1, "byte %d: %s" % (at, out))
            self.assertIn(name + ":", out)

    def test_what_is_done_to_a_log(self):
        self.a_log(n=6, rotate=1 << 20)
        name = self.audit_dir + "/audit.log"
        lines = self.text().splitlines(keepends=True)
        swapped = lines[:4] + [lines[5], lines[4]] + lines[6:]
        for what, changed, kinds in (
                ("removed", lines[:4] + lines[5:], ["missing"]),
                ("inserted", lines[:5] + [lines[4].replace(b"denied", b"Denied")] + lines[5:], None),
                ("again", lines[:5] + lines[4:], ["duplicate"]),
                ("swapped", swapped, ["missing", "reordered"]),
                ("first", lines[1:], ["missing"]),
                ("text", lines + [b"nothing\n"], ["not_a_record"]),
                ("half", lines + [lines[-1][:40]], ["torn"]),
                ("long", lines + [b"x" * 3000000 + b"\n"], ["too_long"]),
                ("empty", [], ["truncated"])):
            with self.subTest(what):
                with open(name, "wb") as f:
                    f.writelines(changed)
                found = self.kinds()
                if kinds:
                    self.assertEqual(found, kinds)
        with open(name, "wb") as f:
            f.writelines(lines[:-3])
        answer = self.verify(self.trust()[0], self.trust()[1])
        self.assertGreater(answer["unsigned_tail"], 0)
        self.assertTrue(any("unsigned tail: %d records" % answer["unsigned_tail"] in note for note in answer["notes"]))
        self.assertEqual(self.kinds(*self.trust()), ["truncated"], "the broker's own head knows more")

    def test_keys(self):
        self.a_log()
        mine = self.dir + "/state/audit.pub"
        self.assertTrue(self.verify("--key", mine)["key_given"])
        shutil.move(self.dir + "/state", self.dir + "/state.old")
        self.a_log()
        self.assertEqual(self.kinds("--key", mine), ["replaced", "wrong_key"])
        self.assertEqual(self.kinds("--key", mine, "--key", self.dir + "/state.old/audit.pub"), ["replaced"])
        for bad in ("/nowhere", self.dir + "/c.yaml", self.dir + "/state/audit.key"):
            self.assertEqual(self.wbctl("verify", "--dir", self.audit_dir, "--key", bad)[0], 2, bad)
        self.assertEqual(self.wbctl("verify", "--dir", self.audit_dir, "--head", mine)[0], 2)

    def test_wrong_usage(self):
        self.assertEqual(self.wbctl("verify", "--dir", self.dir + "/nothing")[0], 2)
        self.assertEqual(self.wbctl("verify", self.dir + "/nothing")[0], 2)
        self.assertEqual(self.wbctl("verify", "--dir", self.dir, "x")[0], 2)
        self.assertEqual(self.wbctl("query", "--event", "x", "--dir", self.dir)[0], 2)
        self.assertEqual(self.wbctl("replay", "--dir", self.dir)[0], 2)
        self.assertEqual(self.wbctl("nothing")[0], 2)
        self.assertEqual(self.wbctl("--help")[0], 0)

    def test_while_the_broker_writes(self):
        self.broker(rotate=1 << 17)
        stop = threading.Event()

        def load():
            while not stop.wait(0.002):
                self.ask(1)
        threads = [threading.Thread(target=load) for _ in range(2)]
        for t in threads:
            t.start()
        try:
            last = 0
            for _ in range(15):
                answer = self.verify(*self.trust())
                self.assertGreaterEqual(answer["records"], last)
                last = answer["records"]
        finally:
            stop.set()
            for t in threads:
                t.join()
        self.stop()
        self.verify(*self.trust())


class Crashes(Audit):
    def test_killed_under_load(self):
        for victim in ("broker", "monitor", "broker"):
            mark = self.text().count(b"egress_deny") if os.path.exists(self.audit_dir) else 0
            self.broker(rotate=8192)
            self.ask(15)
            until(lambda: self.text().count(b"egress_deny") > mark)
            os.kill(self.broker_pid() if victim == "broker" else self.process.pid, signal.SIGKILL)
            self.process.wait(20)
            status, out, _ = self.wbctl("verify", "--dir", self.audit_dir, *self.trust())
            self.assertTrue(status == 0 or "torn" in out, out)
        self.broker()
        self.stop()
        answer = self.verify(*self.trust())
        self.assertEqual(answer["crashes"], 3)
        self.assertTrue(any("without having stopped" in note for note in answer["notes"]))
        self.assert_gapless()

    def test_half_a_record_is_seen_then_and_later(self):
        self.a_log()
        with open(self.audit_dir + "/audit.log", "a") as f:
            f.write('{"seq":99,"ts":"20')
        self.assertEqual(self.kinds(), ["torn"])
        mark = len(self.records_but_last())
        self.broker()
        self.stop()
        self.verify(*self.trust())
        start = self.records()[mark]
        self.assertEqual(start["event"], "start")
        self.assertIn("18 bytes of half a record were cut off", start["detail"])

    def records_but_last(self):
        return self.text().splitlines()[:-1]

    def test_a_signature_whose_record_was_lost(self):
        """The broker dies between asking and writing: as if its last checkpoint had never come to the file."""
        self.a_log(rotate=1 << 20)
        with open(self.audit_dir + "/audit.log", "r+b") as f:
            text = f.read()
            f.truncate(text.rstrip(b"\n").rfind(b"\n") + 1)
        self.verify(*self.trust())
        self.broker(rotate=1 << 20)
        self.stop()
        self.verify(*self.trust())

    def test_an_end_that_was_cut_off_stays_found(self):
        """Cut off while the broker was down, and written on: its next signature tells."""
        self.a_log(rotate=1 << 20)
        lines = self.text().splitlines(keepends=True)
        with open(self.audit_dir + "/audit.log", "wb") as f:
            f.writelines(lines[:-4])
        self.broker(rotate=1 << 20)
        self.ask(10)
        self.stop()
        self.assertEqual(self.kinds(), ["replaced"])
        shutil.rmtree(self.audit_dir)
        self.a_log(n=1)
        self.assertEqual(self.kinds(), ["replaced"], "begun anew")


class Key(Audit):
    def test_files(self):
        self.a_log()
        for name, mode in (("audit.key", "0o600"), ("audit.pub", "0o644"), ("audit.head", "0o644")):
            self.assertEqual(oct(os.stat(self.dir + "/state/" + name).st_mode & 0o777), mode)
        with open(self.dir + "/state/audit.key") as f:
            key = f.read()
        self.broker()
        self.stop()
        with open(self.dir + "/state/audit.key") as f:
            self.assertEqual(f.read(), key)

    def memory_holds(self, pid, number):
        """In either order of its bytes: mbedTLS has the last one first."""
        with open("/proc/%d/mem" % pid, "rb") as mem, open("/proc/%d/maps" % pid) as maps:
            for line in maps:
                begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                if line.split()[1].startswith("rw") and end - begin < 1 << 28:
                    mem.seek(begin)
                    content = mem.read(end - begin)
                    if number in content or number[::-1] in content:
                        return True
        return False

    @unittest.skipUnless(ROOT, "needs root")
    def test_the_broker_process_does_not_have_it(self):
        os.mkdir(self.dir + "/state", 0o700)
        os.chown(self.dir + "/state", 65534, 65534)
        self.broker(user="nobody")
        self.ask(2)
        for path in ("", "/audit.key", "/audit.head"):
            self.assertEqual(os.stat(self.dir + "/state" + path).st_uid, 0, path)
        links = []
        for link in glob.glob("/proc/%d/fd/*" % self.broker_pid()):
            with contextlib.suppress(FileNotFoundError):    # a connection's that has just ended
                links.append(os.readlink(link))
        self.assertTrue(links)
        self.assertFalse([link for link in links if "/state" in link])
        with open(self.dir + "/state/audit.key") as f:
            number = base64.b64decode("".join(f.read().splitlines()[1:-1]))[7:39]   # SEC1: the secret number
        self.assertTrue(self.memory_holds(self.process.pid, number), "the monitor has it, so it would be found")
        self.assertFalse(self.memory_holds(self.broker_pid(), number))
        self.stop()
        self.verify(*self.trust())

    def test_a_key_that_others_can_read_is_refused(self):
        self.a_log()
        os.chmod(self.dir + "/state/audit.key", 0o644)
        r = subprocess.run([BIN + "/wbbroker", "--config", self.dir + "/c.yaml"], stderr=subprocess.PIPE, text=True, timeout=20)
        self.assertEqual(r.returncode, 1)
        self.assertIn("audit.key", r.stderr)


class Reading(Audit):
    def rows(self, *arguments):
        status, out, err = self.wbctl("query", "--json", "--dir", self.audit_dir, *arguments)
        self.assertEqual(status, 0, err)
        return [json.loads(line) for line in out.splitlines()]

    def test_query(self):
        self.broker()
        self.ask(12)
        self.connect("a", "1.2.3.4:443")[2].close()
        self.stop()
        self.assertEqual(len(self.rows()), len(self.records()))
        self.assertEqual(len(self.rows("--decision", "deny")), 13)
        self.assertEqual(len(self.rows("--reason", "ip_literal", "--host", "1.2.3.0/24", "--vm", "a")), 1)
        self.assertEqual(len(self.rows("--host", "**.denied3.example.org")), 1)
        self.assertEqual(len(self.rows("--host", "*.org", "--event", "egress_deny", "--limit", "5")), 5)
        self.assertEqual(self.rows("--vm", "b"), [])
        self.assertEqual(self.rows("--until", "2020-01-01"), [])
        self.assertEqual(len(self.rows("--since", "1h")), len(self.records()))
        middle = self.records()[9]["ts"]
        self.assertEqual(sorted(r["seq"] for r in self.rows("--since", middle) + self.rows("--until", middle)),
                         [r["seq"] for r in self.records()])
        status, out, _ = self.wbctl("query", "--dir", self.audit_dir, "--reason", "ip_literal")
        self.assertRegex(out.splitlines()[1], r"egress_deny +deny +ip_literal +1\.2\.3\.4:443")

    def test_replay(self):
        self.broker(**self.origin())
        self.ask(3)
        self.connect("a", "localhost:80")[2].close()
        self.connect("a", "a%b:443")[2].close()
        s = self.connect("a", "origin.example.org:80")[2]
        s.sendall(b"GET /x HTTP/1.1\r\nHost: origin.example.org\r\n\r\n")
        s.recv(4096)
        s.close()
        self.stop()
        replay = ["replay", "--dir", self.audit_dir, "--policy"]
        status, out, _ = self.wbctl(*replay, self.dir + "/web.yaml")
        self.assertEqual(status, 0, out)
        self.assertIn("allow->deny: 0, deny->allow: 0", out)
        self.write("other.yaml", "isolation: trusted\nnetwork: allowlist_domain\negress_rules:\n  - {pattern: denied1.example.org}\n")
        status, out, _ = self.wbctl(*replay, self.dir + "/other.yaml")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"deny->allow +denied1\.example\.org:443 +no_rule -> allowed")
        self.assertRegex(out, r"allow->deny +origin\.example\.org:80 +allowed -> no_rule")
        self.assertIn("deny->allow: 1", out)
        self.assertIn("not replayed: ", out)
        lines = [json.loads(x) for x in self.wbctl(*replay, self.dir + "/other.yaml", "--json")[1].splitlines()]
        self.assertEqual(lines[-1]["deny_to_allow"], 1)
        self.assertEqual(len(lines) - 1, lines[-1]["deny_to_allow"] + lines[-1]["allow_to_deny"])
        self.assertEqual(self.wbctl(*replay, self.dir + "/other.yaml", "--vm", "b")[0], 0)
        self.write("bad.yaml", "network: nope\n")
        status, _, err = self.wbctl(*replay, self.dir + "/bad.yaml")
        self.assertEqual(status, 2)
        self.assertIn("bad.yaml:1:10:", err)

    def test_report(self):
        self.broker()
        self.ask(3)
        self.request(b"GET http://denied.example.org/<script>alert(1)</script>\"'&x HTTP/1.1\r\nHost: denied.example.org\r\n\r\n")
        self.stop()
        out = self.dir + "/report.html"
        self.assertEqual(self.wbctl("report", "--dir", self.audit_dir, "--out", out, *self.trust())[0], 0)
        with open(out) as f:
            page = f.read()
        self.assertIn("whole and unaltered", page)
        self.assertIn("denied1.example.org", page)
        self.assertNotIn("<script", page)
        self.assertNotRegex(page, r"(src|href)=")
        name = self.audit_dir + "/audit.log"
        with open(name, "a") as f:
            f.write(json.dumps({"seq": 1, "ts": "2026-01-02T03:04:05.678901Z", "event": "egress_deny", "decision": "deny", "reason": "no_rule",
                                "vm": "<img src=x>", "host": "\"><script>alert(1)</script>", "detail": "\u202e<b>", "via": "http", "port": 80}) + "\n")
            f.write(json.dumps({"seq": 2, "ts": "2026-01-02T03:04:05.678901Z", "event": "dns", "decision": "deny", "reason": "no_rule",
                                "vm": "b", "host": "looked-up.example.org", "via": "dns"}) + "\n")
        status, page, _ = self.wbctl("report", "--dir", self.audit_dir)
        self.assertEqual(status, 1)
        self.assertIn("<td>looked-up.example.org</td><td class=\"n\">0</td><td class=\"n\">1</td>", page)
        self.assertIn("<td>b</td><td>looked-up.example.org</td><td>no_rule</td>", page)
        self.assertIn("NOT whole", page)
        self.assertNotIn("<script", page)
        self.assertNotIn("<img", page)
        self.assertNotIn("\u202e", page)
        self.assertIn("&#60;img src=x&#62;", page)

    def test_hostile_lines_do_not_reach_the_terminal(self):
        os.mkdir(self.audit_dir)
        bad = {"seq": 1, "ts": "2026-01-02T03:04:05.678901Z", "event": "egress_deny", "decision": "deny", "reason": "no_rule", "vm": "\x1b]0;x\x07",
               "host": "a\x1b[2J\x9b\x7f", "detail": "\x1b[31m", "via": "http", "method": "\x1bM", "path": "/\x9b", "port": 80}
        turned = dict(bad, **{k: "a\u202egnp\u2066\u200f\u061c\u2028" for k in ("vm", "host", "detail", "method", "path")})
        with open(self.audit_dir + "/audit.log", "w") as f:
            for record in (bad, turned):
                f.write(json.dumps(record) + "\n" + json.dumps(record, ensure_ascii=False) + "\n")
            f.write("\x1b[2J not json\n")
        self.write("all.yaml", "isolation: trusted\nnetwork: public\n")
        for command in (["tail"], ["tail", "--json"], ["query"], ["query", "--json"], ["verify"], ["verify", "--json"], ["report"],
                        ["replay", "--policy", self.dir + "/all.yaml"], ["replay", "--json", "--policy", self.dir + "/all.yaml"]):
            _, out, err = self.wbctl(*command, "--dir", self.audit_dir)
            self.assertFalse(re.search("[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", out + err), command)
            self.assertTrue(out)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2, warnings="ignore"))
