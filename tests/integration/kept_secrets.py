#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Secrets that the broker keeps for a VM, with a real agent over unix sockets, and with hostile ones. As root. Needs WB_BIN."""
import base64
import importlib.machinery
import importlib.util
import json
import os
import re
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from broker_process import BIN, ROOT, Case, children, until    # noqa: E402

HAS_AGENT = ROOT and os.path.exists(BIN + "/wbagent") and shutil.which("nsenter")


def load_agent():
    """The agent's own tests: how one is started, and the wire by hand."""
    sys.argv = [sys.argv[0], BIN + "/wbagent", BIN + "/wbctl"]
    loader = importlib.machinery.SourceFileLoader("test_agent", HERE + "/agent/test_agent")
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("test_agent", loader))
    loader.exec_module(module)
    return module


t = load_agent() if HAS_AGENT else None


class Kept(Case):
    def setUp(self):
        super().setUp()
        self.values = []
        self.texts = []                     # all that the programs have said

    def wbctl(self, *arguments, code=0, stdin=None):
        r = subprocess.run([BIN + "/wbctl", *arguments], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                           env=dict(os.environ, WB_SOCKET=self.dir + "/run/control.sock"), cwd=self.dir, timeout=60)
        self.texts.append(r.stderr)
        self.assertEqual(r.returncode, code, r.stdout + r.stderr)
        return r

    def value(self):
        self.values.append(secrets.token_hex(20))
        return self.values[-1]

    def put(self, name, *options, code=0, vm="a"):
        value = self.value()
        return value, self.wbctl("secret", "put", "--vm", vm, name + "=-", *options, stdin=value, code=code)

    def rm(self, *names, code=0):
        return self.wbctl("secret", "rm", "--vm", "a", *names, code=code)

    def ls(self):
        return {s["name"]: s for s in json.loads(self.wbctl("secret", "ls", "--vm", "a", "--json").stdout)}

    def states(self):
        return {name: (s["guest"], s["kept"]) for name, s in self.ls().items()}

    def uses(self, event="secret_use", n=0):
        """Once there are n: a record may come a moment later than what it tells of."""
        def read():
            return [(r["vm"], r["detail"], r.get("gen", 0)) for r in self.records() if r["event"] == event and r["decision"] == "allow"]
        until(lambda: len(read()) >= n)
        return read()

    def assert_said_nowhere(self, *more):
        """No value, and no base64 of one, stands in what was written."""
        text = "".join(self.texts) + self.log_text() + json.dumps(self.records()) + "".join(more)
        for value in self.values:
            self.assertNotIn(value, text)
            self.assertNotIn(base64.b64encode(value.encode()).decode(), text)


@unittest.skipUnless(HAS_AGENT, "needs root, and wbagent")
class WithAgent(Kept):
    def setUp(self):
        super().setUp()
        self.agent = t.World()
        self.config([self.vm("a", agent=True, path=self.agent.dir)], user="nobody")
        self.start()

    def tearDown(self):
        self.assert_said_nowhere(self.agent.log_text())
        self.agent.stop()
        super().tearDown()

    def resume(self):
        self.wbctl("vm", "resume", "a")

    def read(self, name, code=0):
        """What an exec finds of it."""
        return self.wbctl("exec", "--vm", "a", "--secret", name, "--", "sh", "-c", "cat $%s_FILE" % name, code=code)

    def test_put_before_activation_and_again_after_each(self):
        value, _ = self.put("TOKEN")
        self.assertEqual(self.states(), {"TOKEN": ("absent", True)})
        for generation in 1, 2:
            self.resume()
            self.assertEqual(self.read("TOKEN").stdout, value)
            self.assertEqual(self.states(), {"TOKEN": ("held", True)})
            self.wbctl("vm", "quiesce", "a")
            self.assertEqual(self.states(), {"TOKEN": ("absent", True)})
            self.assertIn("not_ready", self.read("TOKEN", code=125).stderr)
            self.assertEqual(self.uses(n=generation)[-1], ("a", "TOKEN", generation))
        self.assertEqual(self.uses("secret_put", 1), [("a", "TOKEN", 0)])
        self.assertEqual(len(self.uses()), 2)
        self.stop()

    def test_put_while_active_replace_and_remove(self):
        self.resume()
        first, _ = self.put("TOKEN")
        self.assertEqual(self.read("TOKEN").stdout, first)
        second, _ = self.put("TOKEN")
        self.assertEqual(self.read("TOKEN").stdout, second)
        self.put("OTHER", "--ttl", "1h")
        self.assertEqual(self.states(), {"TOKEN": ("held", True), "OTHER": ("held", True)})
        self.assertIsNone(self.ls()["TOKEN"]["left_ms"])
        self.assertTrue(3590000 < self.ls()["OTHER"]["left_ms"] <= 3600001)
        self.assertRegex(self.wbctl("secret", "ls", "--vm", "a").stdout, r"OTHER +3\d+\.\d s left +guest: held +broker: kept")
        self.rm("TOKEN")
        self.assertIn("secret_expired", self.read("TOKEN", code=125).stderr)
        self.assertEqual(list(self.ls()), ["OTHER"])
        self.rm("TOKEN", code=1)
        self.rm("NEVER", code=1)
        self.assertEqual(self.uses("secret_put", 3), [("a", n, 1) for n in ("TOKEN", "TOKEN", "OTHER")])
        self.assertEqual(self.uses(n=3), self.uses("secret_put"))
        self.wbctl("vm", "quiesce", "a")
        self.resume()
        self.assertIn("secret_unknown", self.read("TOKEN", code=125).stderr)
        self.assertEqual(len(self.read("OTHER").stdout), 40)
        self.stop()

    def test_time_is_up_at_the_broker_and_in_the_guest(self):
        self.resume()
        self.put("TOKEN", "--ttl", "1500ms")
        self.assertEqual(self.agent.info()["facts"]["secrets"], "1")
        until(lambda: not self.ls(), 10)
        self.assertEqual(self.agent.info()["facts"]["secrets"], "0")
        self.assertIn("secret_expired", self.read("TOKEN", code=125).stderr)
        # One that is put for an activation has what is left of its time there.
        self.wbctl("vm", "quiesce", "a")
        self.put("TOKEN", "--ttl", "30s")
        self.put("SHORT", "--ttl", "200ms")
        time.sleep(0.5)
        self.resume()
        left = next(s for s in json.loads(self.wbctl("secret", "ls", "--unix", self.agent.dir, "--json").stdout))
        self.assertEqual(left["name"], "TOKEN")
        self.assertTrue(20000 < left["left_ms"] < 29600, left)
        self.assertEqual(list(self.ls()), ["TOKEN"])
        self.stop()

    def test_those_of_one_activation_stay_so(self):
        kept, own = self.put("BOTH")[0], self.value()
        answer = self.control(op="vm_activate", name="a", secrets={"ONE": base64.b64encode(own.encode()).decode(),
                                                                     "BOTH": base64.b64encode(own.encode()).decode()})
        self.assertTrue(answer["ok"], answer)
        self.assertEqual((self.read("ONE").stdout, self.read("BOTH").stdout), (own, own))
        self.assertEqual(self.states(), {"BOTH": ("unsure", True), "ONE": ("held", False)})
        self.assertEqual(sorted(self.uses(n=2)), [("a", "BOTH", 1), ("a", "ONE", 1)])
        self.assertRegex(self.wbctl("secret", "ls", "--vm", "a").stdout, r"ONE +next quiesce +guest: held +broker: not kept")
        self.rm("ONE")
        self.assertIn("secret_expired", self.read("ONE", code=125).stderr)
        self.resume()
        self.assertEqual(self.read("BOTH").stdout, kept)
        self.assertIn("secret_unknown", self.read("ONE", code=125).stderr)
        self.stop()

    def test_where_a_value_is_not(self):
        self.put("A")
        self.resume()
        self.put("B")
        self.rm("B")
        self.read("A")
        for pid in (self.process.pid, self.broker_pid(), self.agent.pid):
            for name in ("environ", "cmdline"):
                with open("/proc/%d/%s" % (pid, name), "rb") as f:
                    text = f.read()
                for v in self.values:
                    self.assertNotIn(v.encode(), text)
        self.stop()

    @unittest.skipIf(HAS_AGENT and t.SANITIZED, "shadow memory and quarantines say nothing")
    def test_where_in_memory_a_value_is(self):
        """Large ones: little of what is freed without care would be used again at once."""
        kept, gone, own = [secrets.token_hex(15000) for _ in range(3)]
        self.values += [kept, gone, own]
        self.wbctl("secret", "put", "--vm", "a", "A=-", stdin=kept)
        self.resume()
        self.wbctl("secret", "put", "--vm", "a", "B=-", stdin=gone)
        self.rm("B")
        self.assertTrue(self.control(op="vm_activate", name="a", secrets={"O": base64.b64encode(own.encode()).decode()})["ok"])
        half = socket.socket(socket.AF_UNIX)
        half.connect(self.dir + "/run/control.sock")
        half.sendall(b'{"op":"secret_put","name":"a","secret":"C","value":"' + base64.b64encode(own.encode()))
        half.close()
        self.assertEqual(self.read("A").stdout, kept)
        broker = self.broker_pid()
        # The broker's process gives no core and cannot be traced: its files are root's, not nobody's.
        self.assertEqual(os.stat("/proc/%d/fd" % broker).st_uid, 0)
        self.assertNotEqual(re.search(r"Uid:\s+(\d+)", open("/proc/%d/status" % broker).read()).group(1), "0")
        self.assertRegex(open("/proc/%d/limits" % broker).read(), r"Max locked memory +(268435456 |(\d+) +\2 )")    # as much as may be
        # Once, in memory that is locked and left out of dumps; nothing of it elsewhere, and nothing of those that went.
        found = mappings_with(broker, parts(kept, bytes))
        self.assertEqual([sorted({"lo", "dd"} & set(flags)) for flags in found], [["dd", "lo"]])
        self.assertEqual(mappings_with(broker, parts(gone, bytes) + parts(own, bytes)), [])
        self.assertEqual(mappings_with(broker, parts(kept, base64.b64encode) + parts(gone, base64.b64encode) + parts(own, base64.b64encode)), [])
        self.assertEqual(mappings_with(self.process.pid, parts(kept, bytes) + parts(kept, base64.b64encode)), [])
        self.rm("A")
        self.assertEqual(mappings_with(broker, parts(kept, bytes)), [])
        self.stop()

    def test_the_vms_removal_the_broker_and_a_reload_take_them(self):
        self.put("TOKEN")
        self.config([], user="nobody")
        self.reload()
        self.wbctl("secret", "ls", "--vm", "a", code=1)
        self.config([self.vm("a", agent=True, path=self.agent.dir)], user="nobody")
        self.reload()
        self.assertEqual(self.ls(), {})
        # A reload that leaves the VM alone leaves its secrets alone.
        value, _ = self.put("TOKEN")
        self.write("none.yaml", "isolation: trusted\nnetwork: none\n# another\n")
        self.reload()
        self.resume()
        self.assertEqual(self.read("TOKEN").stdout, value)
        self.stop()
        self.start()
        self.assertEqual(self.ls(), {})
        self.resume()
        self.assertIn("secret_unknown", self.read("TOKEN", code=125).stderr)
        self.stop()

    def test_the_guest_alone(self):
        """With another TARGET than --vm it stays between wbctl and the guest."""
        self.resume()
        value = self.value()
        self.wbctl("secret", "put", "--unix", self.agent.dir, "TOKEN=-", stdin=value)
        self.assertEqual(self.read("TOKEN").stdout, value)
        self.assertEqual(self.uses("secret_put"), [])
        self.assertEqual(self.states(), {"TOKEN": ("held", False)})
        self.stop()

    def test_a_full_disk_keeps_them_back(self):
        self.stop()
        os.rename(self.audit_dir, self.audit_dir + ".before")
        os.mkdir(self.audit_dir)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=777", "wb-test", self.audit_dir], check=True)
        try:
            self.start()
            self.put("KEPT")
            with open(self.audit_dir + "/ballast", "wb", buffering=0) as f:
                try:
                    while True:
                        f.write(b"x" * 4096)
                except OSError:
                    pass
            until(lambda: self.refused("secret_put", secret="TOKEN", value="YWJj"))
            self.assertIn("audit_unavailable", self.put("TOKEN", code=1)[1].stderr)
            answer = self.control(op="vm_activate", name="a")
            self.assertEqual((answer["ok"], answer.get("reason")), (False, "audit_unavailable"))
            self.assertEqual(self.agent.info()["facts"]["secrets"], "0")
            os.unlink(self.audit_dir + "/ballast")
            until(lambda: self.control(op="vm_activate", name="a")["ok"])
            self.assertEqual(len(self.read("KEPT").stdout), 40)
            self.stop()
            self.assert_gapless()
            self.assert_said_nowhere()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            time.sleep(0.2)
            subprocess.run(["umount", "-l", self.audit_dir], check=True)
            self.audit_dir += ".before"

    def refused(self, op, **more):
        return self.control(op=op, name="a", **more).get("reason") == "audit_unavailable"


def parts(value, code):
    """Pieces of it as they stand in its bytes or in their base64."""
    return [code(value[i:i + 36].encode()) for i in range(0, len(value) - 36, 900)]


def mappings_with(pid, needles):
    """The flags of each mapping of a process that holds one of them."""
    found, spans, here = [], [], None
    with open("/proc/%d/smaps" % pid) as f:
        for line in f:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) (r)?", line)
            if m:
                here = (int(m.group(1), 16), int(m.group(2), 16), m.group(3) and "[v" not in line)
            elif line.startswith("VmFlags:"):
                spans.append((*here, line.split()[1:]))
    with open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for begin, end, readable, flags in spans:
            if not readable:
                continue
            mem.seek(begin)
            try:
                data = mem.read(end - begin)
            except OSError:
                continue
            if any(n in data for n in needles):
                found.append(flags)
    return found


class FakeAgent:
    """An agent by hand: each conversation's first message goes to `answer`, which sends what it likes."""

    def __init__(self, path, answer):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        os.chmod(path, 0o666)
        self.listener.listen(16)
        self.answer = answer
        self.seen = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.converse, args=(c,), daemon=True).start()

    def converse(self, c):
        head = c.recv(4, socket.MSG_WAITALL)
        if len(head) == 4:
            body = c.recv(struct.unpack(">I", head)[0], socket.MSG_WAITALL)
            number = body[0] >> 3 if body[0] < 0x80 else (body[0] & 0x7f | body[1] << 7) >> 3
            self.seen.append(number)
            try:
                self.answer(c, number, body)
            except OSError:
                pass
        c.close()

    def close(self):
        self.listener.close()


INFO, ACTIVATE, QUIESCE, PUT, REVOKE, LIST = 1, 2, 3, 64, 65, 66


@unittest.skipUnless(HAS_AGENT, "needs root, and wbagent")
class Hostile(Kept):
    """What the guest answers is its own affair; the broker goes on, and says no value."""

    def setUp(self):
        super().setUp()
        self.config([self.vm("a", agent=True), self.vm("b", agent=False), self.vm("c", agent=True)])
        self.start()
        self.say = {}
        self.generation = 0
        self.agent = FakeAgent(self.dir + "/vm/a/1024", self.answer)
        self.hold = threading.Event()

    def tearDown(self):
        self.assert_said_nowhere()
        self.agent.close()
        super().tearDown()

    def answer(self, c, number, body):
        if number == INFO:
            c.sendall(t.frame(t.field(3, t.field(1, b"x") + t.field(2, b"closed") + t.field(3, self.generation))))
        elif number == ACTIVATE:
            self.hold.wait(20)
            self.generation += 1
            c.sendall(t.frame(t.field(5, t.field(1, 1) + t.field(3, self.generation))))
        else:
            c.sendall(self.say.get(number, t.frame(t.field(2, b""))))

    def activate(self):
        self.hold.set()
        answer = self.control(op="vm_activate", name="a")
        self.assertTrue(answer["ok"], answer)

    def error(self, reason, detail=b""):
        return t.frame(t.field(1, t.field(1, reason) + t.field(2, detail)))

    def test_a_guest_that_repeats_the_secret(self):
        self.activate()
        value = self.value()
        for say in self.error(value.encode(), value.encode()), self.error(b"internal", value.encode()), self.error(b"not_ready", value.encode()), \
                t.frame(t.field(3, t.field(1, value.encode()))), b"\xff\xff\xff\xff", value.encode() * 2000, b"":
            self.say[PUT] = say
            answer = self.control(op="secret_put", name="a", secret="TOKEN", value=base64.b64encode(value.encode()).decode())
            self.texts.append(json.dumps(answer))
            self.assertFalse(answer["ok"], say)
            self.assertIn("the broker keeps it", answer["error"])
        self.say[LIST] = t.frame(t.field(72, t.field(1, t.field(1, b"TOKEN")) + t.field(2, b"mlock")))
        self.assertEqual(self.states(), {"TOKEN": ("unsure", True)})
        # It is given with the next activation all the same.
        self.activate()
        self.assertEqual(self.states(), {"TOKEN": ("held", True)})
        self.stop()

    def test_a_guest_that_claims_much(self):
        self.activate()
        entries = b"".join(t.field(1, t.field(1, b"\xc3\xa9 %d" % i) + t.field(2, 2 ** 64 - 1)) for i in range(900))
        self.say[LIST] = t.frame(t.field(72, entries))
        listed = self.control(op="secret_ls", name="a")["secrets"]
        self.assertEqual(len(listed), 64)
        self.assertEqual((listed[0]["left_ms"], listed[0]["kept"]), (2 ** 63 - 1, False))
        self.assertEqual(len(self.wbctl("secret", "ls", "--vm", "a").stdout.splitlines()), 64)
        self.say[LIST] = b"junk"
        self.put("TOKEN")
        r = self.wbctl("secret", "ls", "--vm", "a", "--json")
        self.assertIn("could not be asked", r.stderr)
        self.assertEqual([(s["name"], s["guest"]) for s in json.loads(r.stdout)], [("TOKEN", "held")])
        self.stop()

    def test_one_that_cannot_be_revoked_stays_told(self):
        self.activate()
        self.put("TOKEN")
        self.say[REVOKE] = self.error(b"internal")
        self.say[LIST] = t.frame(t.field(72, t.field(1, t.field(1, b"TOKEN"))))
        self.assertIn("the guest may still have it", self.rm("TOKEN", code=125).stderr)
        self.assertEqual(self.states(), {"TOKEN": ("unsure", False)})
        del self.say[REVOKE]
        self.rm("TOKEN")
        self.say[LIST] = t.frame(t.field(72, b""))
        self.assertEqual(self.states(), {})
        # Its time is up: the guest is told, and nobody waits for it.
        self.put("SHORT", "--ttl", "100ms")
        until(lambda: self.agent.seen.count(REVOKE) == 3)
        self.assertEqual(self.control(op="secret_ls", name="a")["secrets"], [])
        self.stop()

    def test_a_put_during_an_activation_waits_for_it(self):
        self.put("BEFORE")
        answers = []
        resume = threading.Thread(target=lambda: answers.append(self.control(op="vm_activate", name="a")))
        resume.start()
        until(lambda: ACTIVATE in self.agent.seen)
        put = threading.Thread(target=lambda: answers.append(self.control(op="secret_put", name="a", secret="LATE", value="YWJj")))
        remove = threading.Thread(target=lambda: answers.append(self.control(op="secret_rm", name="a", secret="BEFORE")))
        put.start()
        until(lambda: "secret 'LATE' put" in self.log_text())
        remove.start()
        until(lambda: "secret 'BEFORE' removed" in self.log_text())
        self.assertEqual(answers, [])
        self.hold.set()
        for thread in resume, put, remove:
            thread.join(20)
        self.assertEqual([a["ok"] for a in answers], [True] * 3, answers)
        self.assertEqual(sorted(self.agent.seen[2:]), [PUT, REVOKE])
        self.assertEqual(self.uses(n=2), [("a", "BEFORE", 1), ("a", "LATE", 1)])
        self.stop()

    def test_a_removal_ends_what_is_under_way(self):
        self.activate()
        self.say[PUT] = b""
        quiet = threading.Event()
        answer = self.answer
        self.agent.answer = lambda c, n, body: quiet.wait(20) if n == PUT else answer(c, n, body)
        answers = []
        puts = [threading.Thread(target=lambda: answers.append(self.control(op="secret_put", name="a", secret="S", value="YWJj"))) for _ in range(5)]
        for p in puts:
            p.start()
        until(lambda: PUT in self.agent.seen and self.log_text().count("secret 'S' put") == 5)
        self.assertTrue(self.control(op="vm_rm", name="a")["ok"])
        for p in puts:
            p.join(20)
        quiet.set()
        self.assertEqual([a["ok"] for a in answers], [False] * 5)
        self.assertIn("removed or revoked", answers[0]["error"])
        self.stop()

    def test_a_guest_that_is_not_there(self):
        self.activate()
        self.agent.close()
        os.unlink(self.dir + "/vm/a/1024")
        began = time.monotonic()
        self.assertIn("the broker keeps it", self.put("TOKEN", code=125)[1].stderr)
        self.assertLess(time.monotonic() - began, 15)
        self.stop()

    def test_what_is_refused(self):
        for more in {}, {"secret": "A-B", "value": ""}, {"secret": "9", "value": ""}, {"secret": 1, "value": ""}, {"secret": "A"}, \
                {"secret": "A", "value": 1}, {"secret": "A", "value": "a"}, {"secret": "A", "value": "####"}, \
                {"secret": "A", "value": "YQ==", "ttl_ms": 0}, {"secret": "A", "value": "YQ==", "ttl_ms": "1s"}, \
                {"secret": "A", "value": "A" * 4 * 21846}, {"secret": "A" * 129, "value": ""}:
            answer = self.control(op="secret_put", name="a", **more)
            self.assertEqual((answer["ok"], answer.get("invalid")), (False, True), more)
        self.assertEqual(self.control(op="secret_put", name="nope", secret="A", value="")["absent"], True)
        self.assertIn("without an agent", self.control(op="secret_put", name="b", secret="A", value="YQ==")["error"])
        self.assertEqual(self.control(op="secret_ls", name="b")["secrets"], [])
        self.assertTrue(self.control(op="vm_revoke", name="c")["ok"])
        self.assertEqual(self.control(op="secret_put", name="c", secret="A", value="YQ==")["reason"], "revoked")
        self.assertEqual([r for r in self.records() if r["event"].startswith("secret_")], [])
        # Bounds: as many as a guest takes, and what one message holds.
        for i in range(64):
            self.assertTrue(self.control(op="secret_put", name="a", secret="S%d" % i, value="YQ==")["ok"])
        self.assertIn("64 secrets already", self.control(op="secret_put", name="a", secret="S64", value="YQ==")["error"])
        large = base64.b64encode(b"x" * 65536).decode()
        answers = [self.control(op="secret_put", name="a", secret="S%d" % i, value=large) for i in range(8)]
        self.assertEqual([a["ok"] for a in answers], [True] * 7 + [False])
        self.assertIn("524288 bytes", answers[7]["error"])
        # Beside 60 of its own an activation has no place for them.
        self.hold.set()
        answer = self.control(op="vm_activate", name="a", secrets={"O%d" % i: "YQ==" for i in range(60)})
        self.assertFalse(answer["ok"])
        self.assertIn("too many secrets", answer["error"])
        self.activate()
        self.stop()

    @unittest.skipIf(HAS_AGENT and t.SANITIZED, "whose runtime makes mlock() do nothing")
    def test_nothing_is_kept_in_memory_that_may_be_swapped(self):
        self.stop()
        for path in self.dir, self.dir + "/run", self.dir + "/state", self.audit_dir, *(self.dir + "/vm/" + x for x in "abc"):
            subprocess.run(["chown", "-R", "65534:65534", path], check=True)
        self.start(prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", "--memlock=0:0"))
        self.assertIn("RLIMIT_MEMLOCK", self.put("TOKEN", code=125)[1].stderr)
        self.assertEqual([r for r in self.records() if r["event"] == "secret_put"], [])
        self.hold.set()
        self.assertTrue(self.control(op="vm_activate", name="a", secrets={"ONE": "YQ=="})["ok"])
        self.assertEqual(self.uses(n=1), [("a", "ONE", 1)])
        self.stop()

    def test_wbctl_says_what_is_wrong(self):
        value = self.value() * 1700
        self.values[-1] = value[:40]
        self.write("large", value)
        for target in ("--vm", "a"), ("--unix", self.dir + "/vm/a"):
            self.assertIn("large: a secret is at most 65536 bytes", self.wbctl("secret", "put", *target, "T=large", code=2).stderr)
            self.assertIn("nowhere: No such file", self.wbctl("secret", "put", *target, "T=nowhere", code=2).stderr)
            self.wbctl("secret", "put", *target, "T-T=large", code=2)
            self.wbctl("secret", "put", *target, "T", code=2)
        self.wbctl("secret", "put", "--vm", "a", "--timeout", "3s", "T=c.yaml", code=2)
        self.wbctl("secret", "put", "--vm", "a", "--unix", ".", "T=c.yaml", code=2)
        self.wbctl("secret", "put", "--vm", "nope", "T=c.yaml", code=1)
        self.wbctl("secret", "rm", "--vm", "a", code=2)
        for action in "put", "rm", "ls":
            self.assertIn("broker", self.wbctl("secret", action, "--help").stdout)
        self.stop()


if __name__ == "__main__":
    sys.exit(unittest.main(argv=sys.argv[:1], verbosity=2, warnings="ignore"))
