#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that know of no proxy, in a guest without a network card.

The guest is a network namespace that has only lo, with wbagent as its first process; outside are wbbroker and the small
internet of tests/support. What is asked is DNS on the guest's loopback, and what third-party clients get: curl, git, Python,
Node.js, each without a single proxy variable. Needs WB_BIN and WB_INTERNET, and root; ends with 77 where it cannot run."""
import errno
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from processes import children, until

BIN, INTERNET = os.environ["WB_BIN"], os.environ["WB_INTERNET"]
ALLOWED, DENIED = "allowed.example.org", "denied.example.org"
POLICY = """network: allowlist_domain
isolation: trusted
egress_rules:
  - {pattern: allowed.example.org}
  - {pattern: git.example.org, ports: [8080]}
  - {pattern: raw.example.org, ports: [2222], protocol: tcp}
  - {pattern: "*.wild.example.org"}
"""
TIGHT = """network: allowlist_domain
isolation: trusted
egress_rules:
  - {pattern: git.example.org, ports: [8080]}
"""
INSPECTED = """network: allowlist_domain
isolation: trusted
egress_rules:
  - {pattern: allowed.example.org, ports: [443], http_paths: ["/fine*"]}
"""
LAUNCH = r"""
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/etc-upper /run/etc-work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc-upper,workdir=/run/etc-work /etc
rm -rf /etc/wbagent
ip link set lo up
case $WB_TEST_ROUTE in yes) ip route add local 198.18.0.0/15 dev lo src 127.0.0.1 ;; esac
exec "$@"
"""
A, PTR, MX, TXT, AAAA, SRV, HTTPS = 1, 12, 15, 16, 28, 33, 65
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, REFUSED = 0, 1, 2, 3, 5


def find_process(*words):
    """The first process of this pid namespace that has these words in its command line."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                line = f.read().split(b"\0")
        except OSError:
            continue
        if all(w.encode() in line for w in words):
            return int(pid)
    return None


# ---- DNS by hand: what a client that shares no code with the stub sends and understands

def wire_name(name):
    return b"".join(bytes([len(l)]) + l.encode() for l in name.rstrip(".").split(".") if l) + b"\0"


def question(name, qtype=A, edns=True, ident=0x4242, qclass=1):
    q = struct.pack(">HHHHHH", ident, 0x0100, 1, 0, 0, int(edns)) + wire_name(name) + struct.pack(">HH", qtype, qclass)
    return q + (b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0) if edns else b"")


class Reply:
    def __init__(self, data):
        self.data = data
        self.id, flags, qd, an, ns, ar = struct.unpack(">HHHHHH", data[:12])
        self.rcode, self.answer, self.truncated = flags & 15, bool(flags & 0x8000), bool(flags & 0x0200)
        self.errors, self.records, self.question, self.has_opt = [], [], None, False
        at = 12
        for _ in range(qd):
            end = data.index(b"\0", at) + 5
            self.question = data[at:end]
            at = end
        for _ in range(an + ns + ar):
            at += 2 if data[at] & 0xc0 else data.index(b"\0", at) + 1 - at
            rtype, _, ttl, n = struct.unpack(">HHIH", data[at:at + 10])
            rdata = data[at + 10:at + 10 + n]
            at += 10 + n
            if rtype == 41:
                self.has_opt = True
                while rdata:
                    code, length = struct.unpack(">HH", rdata[:4])
                    if code == 15:
                        self.errors.append((struct.unpack(">H", rdata[4:6])[0], rdata[6:4 + length].decode()))
                    rdata = rdata[4 + length:]
            else:
                self.records.append((rtype, ttl, rdata))
        assert at == len(data), "trailing bytes"

    def address(self):
        assert self.rcode == NOERROR and len(self.records) == 1 and self.records[0][0] == A, (self.rcode, self.records)
        return socket.inet_ntoa(self.records[0][2])


class World:
    """The internet, a broker, and one guest. All of it lives in this process's namespaces."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="wb-transparent-", dir="/tmp")
        os.chmod(self.dir, 0o755)
        os.makedirs(self.dir + "/internet")
        subprocess.run([INTERNET, self.dir + "/internet", ALLOWED, "wild.example.org", "a.wild.example.org", "git.example.org"],
                       check=True, stdout=subprocess.DEVNULL)
        self.keeper = find_process("sleep", "infinity")
        self.serve_repository()
        self.start_broker()
        self.guests = []

    def behind(self, *command):
        return ["nsenter", "-t", str(self.keeper), "--net", "--", *command]

    def serve_repository(self):
        work, bare = self.dir + "/work", self.dir + "/www/repo.git"
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", work]
        os.makedirs(work)
        with open(work + "/file", "w") as f:
            f.write("hello from the repository\n")
        for command in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "x"], ["clone", "-q", "--bare", work, bare]):
            subprocess.run(git + command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(["git", "-C", bare, "update-server-info"], check=True)
        self.others = [
            subprocess.Popen(self.behind(sys.executable, "-m", "http.server", "--bind", "5.5.5.2", "--directory", self.dir + "/www", "8080"),
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
            # A server that speaks first, as SSH's does.
            subprocess.Popen(self.behind("socat", "TCP-LISTEN:2222,bind=5.5.5.2,reuseaddr,fork", "SYSTEM:echo SSH-2.0-test; cat"),
                             stderr=subprocess.DEVNULL)]

    def start_broker(self):
        for name in ("guest", "plain", "greedy"):
            os.makedirs("%s/vm/%s" % (self.dir, name))
        self.write("policy.yaml", POLICY)
        vms = [{"name": name, "backend": "runc", "transport": "unix", "path": "%s/vm/%s" % (self.dir, name), "policy": "policy.yaml"}
               for name in ("guest", "plain", "greedy")]
        self.write("c.yaml", json.dumps({
            "state_dir": self.dir + "/state", "run_dir": self.dir + "/run", "workers": 1,
            "audit": {"dir": self.dir + "/audit", "sync": "none", "required": True},
            "dns": {"servers": ["5.5.5.53"]}, "isolation": {"trust_declared": True},
            "inspect": {"upstream_ca": self.dir + "/internet/ca.pem"}, "vms": vms}))
        self.log = open(self.dir + "/broker.log", "wb")
        self.broker = subprocess.Popen([BIN + "/wbbroker", "--config", self.dir + "/c.yaml"], stderr=self.log, stdin=subprocess.DEVNULL)
        until(lambda: b"wbbroker: ready" in open(self.dir + "/broker.log", "rb").read() or self.broker.poll() is not None)

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w") as f:
            f.write(text)

    def control(self, **q):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(60)
        s.connect(self.dir + "/run/control.sock")
        s.sendall(json.dumps(q).encode() + b"\n")
        s.shutdown(socket.SHUT_WR)
        data = b""
        while part := s.recv(65536):
            data += part
        s.close()
        return json.loads(data)

    def records(self):
        with open(self.dir + "/audit/audit.log") as f:
            return [json.loads(line) for line in f]

    def stop(self):
        for g in self.guests:
            g.stop()
        self.broker.send_signal(signal.SIGTERM)
        self.broker.wait(30)
        for p in self.others:
            p.kill()
            p.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


class Guest:
    def __init__(self, world, name, *options, without=None, route=False, service=False):
        self.world, self.name = world, name
        world.guests.append(self)
        self.log = open("%s/%s.log" % (world.dir, name), "w+b")
        wrap = ("setpriv", "--bounding-set", without, "--") if without else ("sh", "-c", '"$@" & wait', "service") if service else ()
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--net", "--uts", "--fork", "--mount-proc", "--kill-child",
             "env", "WB_TEST_ROUTE=" + ("yes" if route else "no"), "sh", "-c", LAUNCH, "launch", *wrap,
             BIN + "/wbagent", "--listen", "unix:%s/vm/%s" % (world.dir, name), *options],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        until(lambda: os.path.exists("%s/vm/%s/1024" % (world.dir, name)) or self.process.poll() is not None)
        assert self.process.poll() is None, self.log_text()
        self.pid = children(self.process.pid)[0]

    def log_text(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def activate(self):
        answer = self.world.control(op="vm_activate", name=self.name)
        assert answer["ok"], (answer, self.log_text())
        return [s for s in answer["steps"] if s["name"] == "network"][0]["evidence"]

    def run(self, *command, timeout=60):
        """As a workload: in the guest, with an environment in which nothing speaks of a proxy."""
        began = time.monotonic()
        r = subprocess.run(["nsenter", "-t", str(self.pid), "--root", "--mount", "--net", "--pid", "--uts", "--", "env", "-i",
                            "PATH=" + os.environ["PATH"], "HOME=/tmp", *command],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        r.seconds = time.monotonic() - began
        return r

    def exchange(self, *messages, tcp=False, host="127.0.0.1"):
        """DNS from within: the answers to these messages, None for each that has none."""
        code = ("import socket,sys\nm=[bytes.fromhex(x) for x in sys.argv[3:]]\nh=sys.argv[2]\n"
                "f=socket.AF_INET6 if ':' in h else socket.AF_INET\n"
                "if sys.argv[1]=='tcp':\n"
                " s=socket.create_connection((h,53)); s.settimeout(8)\n"
                " s.sendall(b''.join(len(x).to_bytes(2,'big')+x for x in m)); g=s.makefile('rb')\n"
                " for x in m:\n  n=g.read(2); print(g.read(int.from_bytes(n,'big')).hex() if n else 'none')\n"
                "else:\n"
                " for x in m:\n"
                "  s=socket.socket(f,socket.SOCK_DGRAM); s.settimeout(5); s.connect((h,53)); s.send(x)\n"
                "  try: print(s.recv(65535).hex())\n"
                "  except OSError: print('none')\n")
        r = self.run(PYTHON, "-c", code, "tcp" if tcp else "udp", host, *[m.hex() for m in messages])
        assert r.returncode == 0, r.stderr
        return [None if line == "none" else Reply(bytes.fromhex(line)) for line in r.stdout.split()]

    def ask(self, name, qtype=A, **more):
        return self.exchange(question(name, qtype, **more))[0]

    def forwarder_fds(self):
        for pid in children(self.pid):
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                if b"--forwarder" in f.read():
                    return len(os.listdir("/proc/%d/fd" % pid))
        return None

    def stop(self):
        self.process.kill()         # --kill-child: the namespace goes with it
        self.process.wait()
        path = "%s/vm/%s/1024" % (self.world.dir, self.name)
        if os.path.exists(path):
            os.unlink(path)


PYTHON = os.path.realpath(sys.executable)
world = guest = None


class Case(unittest.TestCase):
    def setUp(self):
        answer = world.control(op="vm_policy", name="guest", policy=POLICY)
        self.assertTrue(answer["ok"], answer)

    def assert_fails_at_once(self, r, *words):
        self.assertNotEqual(r.returncode, 0, r.stdout)
        self.assertLess(r.seconds, 8, "it took too long to fail")
        self.assertTrue(any(w in r.stderr + r.stdout for w in words), r.stderr + r.stdout)


class Programs(Case):
    def test_curl(self):
        r = guest.run("curl", "-sS", "http://%s/" % ALLOWED)
        self.assertEqual(r.stdout, "Hello from %s.\n" % ALLOWED, r.stderr)
        r = guest.run("curl", "-sS", "--cacert", world.dir + "/internet/ca.pem", "https://%s/" % ALLOWED)
        self.assertEqual(r.stdout, "Hello from %s.\n" % ALLOWED, r.stderr)
        until(lambda: any(x["event"] == "egress_open" and x["host"] == ALLOWED and x["via"] == "transparent" for x in world.records()))
        for scheme in ("http", "https"):
            r = guest.run("curl", "-sS", "%s://%s/" % (scheme, DENIED))
            self.assertEqual(r.returncode, 6)       # could not resolve host
            self.assert_fails_at_once(r, "Could not resolve host")

    def test_git(self):
        target = world.dir + "/clone"
        r = guest.run("git", "clone", "http://git.example.org:8080/repo.git", target)
        self.assertEqual(r.returncode, 0, r.stderr)
        with open(target + "/file") as f:
            self.assertEqual(f.read(), "hello from the repository\n")
        shutil.rmtree(target)
        r = guest.run("git", "clone", "http://%s/repo.git" % DENIED, target)
        self.assert_fails_at_once(r, "Could not resolve host")

    def test_python(self):
        code = "import sys,urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode())"
        r = guest.run(PYTHON, "-c", code, "http://%s/" % ALLOWED)
        self.assertEqual(r.stdout.strip(), "Hello from %s." % ALLOWED, r.stderr)
        r = guest.run(PYTHON, "-c", code, "http://%s/" % DENIED)
        self.assert_fails_at_once(r, "Name or service not known", "No address associated")

    @unittest.skipUnless(os.path.exists("/usr/lib/apt/apt-helper"), "needs apt")
    def test_apt(self):
        """Which asks for SRV records first."""
        r = guest.run("/usr/lib/apt/apt-helper", "-o", "APT::Sandbox::User=root", "download-file", "http://%s/" % ALLOWED, world.dir + "/apt-file")
        self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
        r = guest.run("/usr/lib/apt/apt-helper", "-o", "APT::Sandbox::User=root", "download-file", "http://%s/" % DENIED, world.dir + "/apt-file")
        self.assert_fails_at_once(r, "Could not resolve")

    @unittest.skipUnless(shutil.which("node"), "needs node")
    def test_node(self):
        code = ("fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t.trim()))"
                ".catch(e => { console.error(e.cause ? e.cause.code : e); process.exit(3) })")
        r = guest.run("node", "-e", code, "http://%s/" % ALLOWED)
        self.assertEqual(r.stdout.strip(), "Hello from %s." % ALLOWED, r.stderr)
        r = guest.run("node", "-e", code, "http://%s/" % DENIED)
        self.assertEqual(r.returncode, 3)
        self.assert_fails_at_once(r, "ENOTFOUND")

    def test_a_server_that_speaks_first(self):
        code = ("import socket; s=socket.create_connection(('raw.example.org',2222),20); f=s.makefile('rwb')\n"
                "print(f.readline().decode().strip()); f.write(b'echo\\n'); f.flush(); print(f.readline().decode().strip())\n"
                "s.shutdown(socket.SHUT_WR); print(len(s.recv(10)))")
        r = guest.run(PYTHON, "-c", code)
        self.assertEqual(r.stdout.split(), ["SSH-2.0-test", "echo", "0"], r.stderr)

    def test_addresses_that_are_no_names_lead_nowhere(self):
        r = guest.run("curl", "-sS", "http://5.5.5.2/")
        self.assert_fails_at_once(r, "Network is unreachable", "Couldn't connect", "Failed to connect")
        r = guest.run("curl", "-sS", "http://198.18.77.77/")        # of the pool, and given to nobody
        self.assert_fails_at_once(r, "reset by peer", "Couldn't connect", "Failed to connect")


class Refusals(Case):
    """An allowed name on a port that is not: any port reaches the host's decision, and the client hears of it."""

    def test_http_is_told_why(self):
        r = guest.run("curl", "-sS", "-i", "http://%s:81/" % ALLOWED)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("HTTP/1.1 403", r.stdout)
        self.assertIn("port_not_allowed", r.stdout)
        self.assertLess(r.seconds, 5)

    def test_tls_is_alerted(self):
        r = guest.run("curl", "-sS", "https://%s:444/" % ALLOWED)
        self.assert_fails_at_once(r, "alert access denied", "access_denied")

    def test_others_are_reset(self):
        code = ("import socket,sys\ns=socket.create_connection((sys.argv[1],2222),20)\n"
                "try: print(s.recv(1))\nexcept OSError as e: print(e.errno)")
        r = guest.run(PYTHON, "-c", code, ALLOWED)
        self.assertEqual(r.stdout.strip(), str(errno.ECONNRESET), r.stderr)
        self.assertLess(r.seconds, 5)
        until(lambda: any(x["event"] == "egress_deny" and x.get("port") == 2222 and x["reason"] == "port_not_allowed" and
                          x["host"] == ALLOWED and x["via"] == "transparent" for x in world.records()))


class Dns(Case):
    def test_denied_says_why(self):
        r = guest.ask(DENIED)
        self.assertEqual(r.rcode, NXDOMAIN)
        self.assertEqual(r.errors[0], (15, "no_rule"))
        self.assertIn("pattern: ", r.errors[1][1])      # what would allow it
        self.assertEqual(guest.ask("localhost").errors[0], (15, "floor_name"))
        self.assertEqual(guest.ask(DENIED, AAAA).rcode, NXDOMAIN)
        self.assertEqual(guest.ask(DENIED, HTTPS).rcode, NXDOMAIN)
        plain = guest.ask(DENIED, edns=False)
        self.assertEqual((plain.rcode, plain.has_opt), (NXDOMAIN, False))
        until(lambda: any(x["event"] == "dns" and x["decision"] == "deny" and x["host"] == DENIED and x["reason"] == "no_rule" and
                          x["via"] == "dns" and x["vm"] == "guest" for x in world.records()))

    def test_denied_names_go_nowhere(self):
        guest.ask("secret-data.%s" % DENIED)
        guest.ask("also-allowed.wild.example.org")
        with open(world.dir + "/internet/dns.log") as f:
            log = f.read()
        self.assertNotIn("secret-data", log)
        self.assertNotIn("also-allowed", log)           # only who connects has it looked up

    def test_allowed_has_one_address(self):
        first = guest.ask(ALLOWED)
        self.assertRegex(first.address(), r"^198\.1[89]\.")
        self.assertLessEqual(first.records[0][1], 60)
        self.assertEqual(guest.ask(ALLOWED.upper() + ".").address(), first.address())
        self.assertNotEqual(guest.ask("git.example.org").address(), first.address())
        for qtype in (AAAA, HTTPS):
            r = guest.ask(ALLOWED, qtype)
            self.assertEqual((r.rcode, r.records, r.errors), (NOERROR, [], []))
        until(lambda: any(x["event"] == "dns" and x["decision"] == "allow" and x["host"] == ALLOWED for x in world.records()))

    def test_other_types(self):
        for qtype in (TXT, MX, SRV, 255):
            self.assertEqual(guest.ask(ALLOWED, qtype).rcode, REFUSED)
        self.assertEqual(guest.ask(ALLOWED, TXT, qclass=3).rcode, REFUSED)
        address = guest.ask(ALLOWED).address()
        reverse = ".".join(reversed(address.split("."))) + ".in-addr.arpa"
        r = guest.ask(reverse, PTR)
        self.assertEqual((r.rcode, r.records[0][2]), (NOERROR, wire_name(ALLOWED)))
        self.assertEqual(guest.ask("4.3.2.1.in-addr.arpa", PTR).rcode, NXDOMAIN)

    def test_case_is_kept(self):
        r = guest.ask("aLLoWeD.exAMPLE.org")
        self.assertEqual(r.question[:-4], wire_name("aLLoWeD.exAMPLE.org"))
        r.address()

    def test_tcp_and_ipv6(self):
        replies = guest.exchange(question(ALLOWED, ident=1), question(DENIED, ident=2), question(ALLOWED, TXT, ident=3), tcp=True)
        by_id = {r.id: r for r in replies}
        self.assertRegex(by_id[1].address(), r"^198\.1[89]\.")
        self.assertEqual(by_id[2].rcode, NXDOMAIN)
        self.assertEqual(by_id[3].rcode, REFUSED)
        self.assertRegex(guest.exchange(question(ALLOWED), host="::1")[0].address(), r"^198\.1[89]\.")

    def test_hostile_messages(self):
        good = question(ALLOWED)
        head = good[:12]
        pointer = head[:4] + struct.pack(">HHHH", 1, 0, 0, 0) + b"\xc0\x0c" + struct.pack(">HH", A, 1)
        two = head[:4] + struct.pack(">HHHH", 2, 0, 0, 0) + 2 * (wire_name(ALLOWED) + struct.pack(">HH", A, 1))
        replies = guest.exchange(pointer, two, good + b"x", good[:-3], question(ALLOWED)[:2] + b"\x28" + question(ALLOWED)[3:])
        self.assertEqual([r.rcode for r in replies], [FORMERR] * 4 + [4])
        dot_in_label = head[:4] + struct.pack(">HHHH", 1, 0, 0, 0) + b"\x13" + ALLOWED.encode() + b"\0" + struct.pack(">HH", A, 1)
        self.assertEqual(guest.exchange(dot_in_label)[0].rcode, NXDOMAIN)
        answer = good[:2] + b"\x81\x80" + good[4:]
        self.assertEqual(guest.exchange(answer, good)[0], None)     # and the stub is well
        guest.ask(ALLOWED).address()


class Life(Case):
    def test_a_tighter_policy_holds_at_once(self):
        guest.ask(ALLOWED).address()
        self.assertTrue(world.control(op="vm_policy", name="guest", policy=TIGHT)["ok"])
        self.assertEqual(guest.ask(ALLOWED).errors[0], (15, "no_rule"))
        self.assert_fails_at_once(guest.run("curl", "-sS", "http://%s/" % ALLOWED), "Could not resolve host")

    def test_quiesce_and_activate(self):
        before = guest.ask(ALLOWED).address()
        self.assertTrue(world.control(op="vm_quiesce", name="guest")["ok"])
        self.assertEqual(guest.exchange(question(ALLOWED)), [None])
        evidence = guest.activate()
        self.assertEqual(evidence["transparent"], "all ports")
        self.assertIn(evidence["steering"], ("sk_lookup", "nftables"))
        self.assertEqual(guest.ask(ALLOWED).address(), before)
        self.assertIn("Hello", guest.run("curl", "-sS", "http://%s/" % ALLOWED).stdout)

    def test_workloads_may_have_any_port(self):
        guest.run("curl", "-sS", "http://%s/" % ALLOWED)
        code = ("import socket,sys\nfor p in (80,443,8080,22):\n s=socket.socket(); s.setsockopt(1,2,1); s.bind(('0.0.0.0',p)); s.listen()\n"
                " c=socket.create_connection(('127.0.0.1',p)); s.accept()\n"
                "import urllib.request as u; print(u.urlopen('http://%s/', timeout=20).read().decode())" % ALLOWED)
        r = guest.run(PYTHON, "-c", code)
        self.assertEqual(r.stdout.strip(), "Hello from %s." % ALLOWED, r.stderr)

    def test_nothing_is_left_of_connections(self):
        code = ("import socket,sys\nh=socket.gethostbyname('%s')\n"
                "def go(p,data,read):\n s=socket.create_connection((h,p),20)\n s.sendall(data)\n s.settimeout(5)\n"
                " try:\n  while read and s.recv(4096): pass\n except OSError: pass\n s.close()\n"
                "for i in range(60):\n go(80,b'GET / HTTP/1.0\\r\\nHost: %s\\r\\n\\r\\n',True); go(81,b'GET / HTTP/1.0\\r\\n\\r\\n',True)\n"
                " go(80,b'',False); go(81,b'',False); go(444,b'\\x16\\x03\\x01',True)" % (ALLOWED, ALLOWED))
        before = guest.forwarder_fds()
        r = guest.run(PYTHON, "-c", code, timeout=120)
        self.assertEqual(r.returncode, 0, r.stderr)
        until(lambda: guest.forwarder_fds() <= before + 1)

    def test_names_are_answered_in_a_full_house(self):
        """As many connections as there may be, and one more that waits."""
        code = ("import socket,sys,time\nc=[socket.create_connection(('127.0.0.1',3128),20) for _ in range(513)]\ntime.sleep(0.5)\n"
                "m=bytes.fromhex(sys.argv[1])\ns=socket.create_connection(('127.0.0.1',53),20); s.settimeout(10)\n"
                "s.sendall(len(m).to_bytes(2,'big')+m); print(len(s.recv(500))>40)")
        before = guest.forwarder_fds()
        r = guest.run(PYTHON, "-c", code, question(ALLOWED).hex())
        self.assertEqual(r.stdout.strip(), "True", r.stderr)
        until(lambda: guest.forwarder_fds() <= before + 1)
        self.assertIn("Hello", guest.run("curl", "-sS", "http://%s/" % ALLOWED).stdout)

    def test_a_killed_forwarder_comes_back(self):
        before = guest.ask(ALLOWED).address()
        for pid in children(guest.pid):
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                if b"--forwarder" in f.read():
                    os.kill(pid, signal.SIGKILL)
        self.assertEqual(guest.ask(ALLOWED).address(), before)
        self.assertIn("Hello", guest.run("curl", "-sS", "http://%s/" % ALLOWED).stdout)


class OtherWays(Case):
    """Guests that may do less than one's own kernel lets them, as in a container."""

    def check(self, g):
        # It may not mount over /etc/resolv.conf either.
        g.run("sh", "-c", "cp /run/wbagent/resolv.conf /etc/resolv.conf")
        self.assertIn("Hello", g.run("curl", "-sS", "http://%s/" % ALLOWED).stdout)
        self.assertIn("Hello", g.run("curl", "-sSk", "https://%s/" % ALLOWED).stdout)
        self.assert_fails_at_once(g.run("curl", "-sS", "http://%s/" % DENIED), "Could not resolve host")

    def test_nftables_where_no_program_may_be_loaded(self):
        g = Guest(world, "plain", without="-bpf,-sys_admin")
        self.addCleanup(g.stop)
        for _ in range(2):      # and again: the table of the life before is gone
            evidence = g.activate()
            if "none" in evidence["steering"]:
                self.skipTest("no nf_tables with nat and redir in this kernel")
            self.assertEqual((evidence["transparent"], evidence["steering"]), ("all ports", "nftables"))
            self.check(g)
            self.assertIn("port_not_allowed", g.run("curl", "-sS", "http://%s:81/" % ALLOWED).stdout)
            r = g.run("curl", "-sS", "http://127.0.0.1:3129/")      # nobody was meant
            self.assertNotEqual(r.returncode, 0)
        self.assertTrue(world.control(op="vm_quiesce", name="plain")["ok"])

    def test_a_listener_for_each_port_of_the_policy(self):
        g = Guest(world, "plain", without="-bpf,-sys_admin,-net_admin", route=True)
        self.addCleanup(g.stop)
        evidence = g.activate()
        self.assertRegex(evidence["transparent"], r"^ports( \d+)*$")
        for port in ("80", "443", "8080", "2222"):
            self.assertIn(port, evidence["transparent"].split())
        self.check(g)

    def test_without_a_route_there_is_the_proxy(self):
        g = Guest(world, "plain", without="-bpf,-sys_admin,-net_admin")
        self.addCleanup(g.stop)
        self.assertRegex(g.activate()["transparent"], "^none: no route: ")
        self.assertIn("Hello", g.run("curl", "-sS", "-x", "http://127.0.0.1:3128", "http://%s/" % ALLOWED).stdout)

    def test_a_service_takes_nothing_that_it_was_not_asked_for(self):
        for options, wanted in (((), False), (("--transparent",), True)):
            g = Guest(world, "plain", *options, service=True)
            try:
                evidence = g.activate()
                self.assertEqual("dns" in evidence, wanted)
                self.assertEqual("198.18.0.0/15" in g.run("ip", "route", "show", "table", "local").stdout, wanted)
                self.assertEqual(g.run("grep", "-q", "wbagent", "/etc/resolv.conf").returncode == 0, wanted)
            finally:
                g.stop()

    def test_no_proxy_variables(self):
        for options, wanted in (((), True), (("--no-proxy-variables",), False)):
            g = Guest(world, "plain", *options)
            try:
                g.activate()
                r = subprocess.run([BIN + "/wbctl", "exec", "--unix", world.dir + "/vm/plain", "--", "/usr/bin/env"],
                                   stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
                self.assertEqual(r.returncode, 0, r.stderr)
                self.assertEqual("proxy=" in r.stdout.lower(), wanted, r.stdout)
                if not wanted:
                    r = subprocess.run([BIN + "/wbctl", "exec", "--unix", world.dir + "/vm/plain", "--", "curl", "-sS", "http://%s/" % ALLOWED],
                                       stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
                    self.assertIn("Hello", r.stdout, r.stderr)
            finally:
                g.stop()


class Intercepted(Case):
    """The guest gets the CA with its activation, where its policy may need it."""

    def setUp(self):
        super().setUp()
        self.guest = Guest(world, "plain")
        self.addCleanup(self.guest.stop)
        self.addCleanup(lambda: world.control(op="vm_policy", name="plain", policy=POLICY))

    def execute(self, *command):
        return subprocess.run([BIN + "/wbctl", "exec", "--unix", world.dir + "/vm/plain", "--", *command], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)

    def set_policy(self, policy):
        answer = world.control(op="vm_policy", name="plain", policy=policy)
        self.assertTrue(answer["ok"], answer)

    def fetch(self, path, *more):
        return self.execute("curl", "-sS", "-w", "%{http_code}", *more, "https://%s%s" % (ALLOWED, path))

    def test_a_guest_trusts_what_it_is_given(self):
        self.set_policy(INSPECTED)
        self.assertEqual(self.guest.activate()["ca_file"], "/run/wbagent/ca.pem")
        env = self.execute("env").stdout
        for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"):
            self.assertIn(name + "=/run/wbagent/ca.pem\n", env)
        for more in ((), ("--noproxy", "*")):     # by the proxy, and led there by the name
            r = self.fetch("/fine", *more)
            self.assertEqual(r.stdout, "Hello from %s.\n200" % ALLOWED, r.stderr)
            r = self.fetch("/secret", *more)
            self.assertTrue(r.stdout.endswith("403") and "path_not_allowed" in r.stdout, r.stdout + r.stderr)
        code = "import sys,urllib.request as u; print(u.urlopen(sys.argv[1], timeout=20).read().decode())"
        r = self.execute(PYTHON, "-c", code, "https://%s/fine" % ALLOWED)
        self.assertEqual(r.stdout.strip(), "Hello from %s." % ALLOWED, r.stderr)
        records = [x for x in world.records() if x["event"] == "request" and x["vm"] == "plain"]
        self.assertEqual([(x["via"], x["path"], x["decision"]) for x in records][:2],
                         [("inspect", "/fine", "allow"), ("inspect", "/secret", "deny")])
        with open(world.dir + "/internet/origin.log") as f:
            self.assertNotIn("/secret", f.read())
        self.assertEqual(self.execute("grep", "-c", "PRIVATE", "/run/wbagent/ca.pem").stdout, "0\n")

    def test_an_address_has_no_server_name(self):
        """Its certificate is for the address; the origin's is for names alone, and so is not this server's."""
        self.set_policy(INSPECTED + '  - {pattern: 5.5.5.2, ports: [443], http_paths: ["/fine"]}\n')
        self.guest.activate()
        r = self.execute("curl", "-sS", "-w", "%{http_code}", "https://5.5.5.2/fine")
        self.assertTrue(r.stdout.endswith("502") and "is for another name" in r.stdout, r.stdout + r.stderr)
        r = self.execute("curl", "-sS", "-w", "%{http_code}", "https://5.5.5.2/other")
        self.assertTrue(r.stdout.endswith("403"), r.stdout + r.stderr)

    def test_a_guest_without_it(self):
        evidence = self.guest.activate()
        self.assertNotIn("ca_file", evidence)
        self.assertNotIn("SSL_CERT_FILE", self.execute("env").stdout)
        self.set_policy(INSPECTED)
        r = self.fetch("/fine", "--cacert", world.dir + "/internet/ca.pem")
        self.assertNotEqual(r.returncode, 0)
        denied = until(lambda: [x for x in world.records() if x.get("reason") == "inspection_required" and x["vm"] == "plain"])
        self.assertIn("activate it again", denied[-1]["detail"])
        self.guest.activate()
        self.assertEqual(self.fetch("/fine").stdout, "Hello from %s.\n200" % ALLOWED)

    def test_a_rotation_waits_for_the_next_activation(self):
        self.set_policy(INSPECTED)
        self.guest.activate()
        self.assertEqual(self.fetch("/fine").stdout[-3:], "200")
        before = self.execute("cat", "/run/wbagent/ca.pem").stdout
        new = world.control(op="ca_rotate")["ca"]["certificate"]
        self.assertEqual(self.fetch("/fine").stdout[-3:], "200")
        self.guest.activate()
        self.assertEqual(self.fetch("/fine").stdout[-3:], "200")
        after = self.execute("cat", "/run/wbagent/ca.pem").stdout
        self.assertNotIn(new.strip(), before)
        self.assertIn(new.strip(), after)


class Budget(Case):
    def test_made_up_names_run_out(self):
        """Names that a wildcard allows are a way out by themselves; there are only so many in a minute."""
        greedy = Guest(world, "greedy")
        self.addCleanup(greedy.stop)
        greedy.activate()
        greedy.ask(ALLOWED).address()
        names = ["x%d.wild.example.org" % i for i in range(400)]
        replies = greedy.exchange(*[question(n) for n in names])
        refused = [r for r in replies if r.rcode == SERVFAIL]
        self.assertGreater(len(refused), 100)
        self.assertEqual(refused[0].errors[0][1], "rate_limited")
        greedy.ask(ALLOWED).address()        # a name that was asked for in this minute goes on
        limited = [x for x in world.records() if x["event"] == "dns" and x["reason"] == "rate_limited"]
        self.assertIn(len(limited), (1, 2))         # not a record for each


def inside():
    global world, guest
    world = World()
    try:
        guest = Guest(world, "guest")
        evidence = guest.activate()
        print(evidence)
        assert evidence["resolv_conf"] == "/run/wbagent/resolv.conf", evidence
        result = unittest.main(exit=False, argv=[sys.argv[0]] + sys.argv[2:]).result
        if not result.wasSuccessful():
            print(guest.log_text())
            with open(world.dir + "/broker.log", errors="replace") as f:
                print(f.read()[-6000:])
        return 0 if result.wasSuccessful() else 1
    finally:
        world.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(inside())
    if os.geteuid() != 0 or not all(shutil.which(x) for x in ("dnsmasq", "socat", "openssl", "unshare", "setpriv", "curl", "git")):
        print("needs root, and dnsmasq, socat, openssl, curl, git")
        sys.exit(77)
    os.execvp("unshare", ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc", PYTHON,
                          os.path.abspath(__file__), "--inside", *sys.argv[1:]])
