#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signed images through the real wbctl: sign, verify, each way of tampering, OpenSSL's opinion, and what `wbctl run` gives to
QEMU. QEMU is a stand-in that shows which bytes it was given. Needs WB_BIN."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processes import until    # noqa: E402

WBCTL = os.path.join(os.environ["WB_BIN"], "wbctl")
KERNEL = os.urandom(300000)
INITRD = os.urandom(200000)

# Says that it runs, waits until the test has done its worst, and keeps what it finds behind its arguments.
QEMU = """#!/bin/sh
while [ $# -gt 1 ]; do
        case $1 in
        -kernel) kernel=$2 ;;
        -initrd) initrd=$2 ;;
        -append) append=$2 ;;
        esac
        shift
done
: >"$WB_TEST_SEEN/started"
n=0
while [ ! -e "$WB_TEST_SEEN/go" ] && [ $n -lt 300 ]; do
        sleep 0.1
        n=$((n + 1))
done
cat "$kernel" >"$WB_TEST_SEEN/kernel"
cat "$initrd" >"$WB_TEST_SEEN/initrd"
printf '%s\\n' "$append" >"$WB_TEST_SEEN/append"
{ echo x >>"$kernel"; } 2>"$WB_TEST_SEEN/writing" && : >"$WB_TEST_SEEN/written"
: >"$WB_TEST_SEEN/done"
"""


class Images(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="wb-image-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        self.image = self.path("work")
        os.mkdir(self.image)
        self.put("kernel", KERNEL)
        self.put("initrd", INITRD)
        self.put("cmdline", b"console=ttyS0 quiet\n")
        self.put("agent", b"wbagent 9.8.7\n")
        self.key = self.path("image.key")
        self.environment = {k: v for k, v in os.environ.items() if k != "WB_IMAGE_KEY"}

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def put(self, name, content):
        with open(os.path.join(self.image, name), "wb") as f:
            f.write(content)

    def get(self, name):    # a whole path is itself
        with open(os.path.join(self.image, name), "rb") as f:
            return f.read()

    def wbctl(self, *arguments, **environment):
        return subprocess.run([WBCTL, *arguments], env=dict(self.environment, **environment), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)

    def expect(self, status, *arguments, **environment):
        done = self.wbctl(*arguments, **environment)
        self.assertEqual(done.returncode, status, "%s\n%s\n%s" % (arguments, done.stdout, done.stderr))
        return done

    def sign(self, *more):
        if not os.path.exists(self.key):
            self.expect(0, "image", "sign", "--new-key", self.key)
        self.expect(0, "image", "sign", "--key", self.key, *more, self.image)

    def verify(self, status, *more, **environment):
        return self.expect(status, "image", "verify", "--key", self.key + ".pub", *more, self.image, **environment)

    def verify_json(self, status):
        return json.loads(self.verify(status, "--json").stdout)

    def assert_flaw(self, file, flaw):
        answer = self.verify_json(1)
        self.assertEqual((answer["ok"], answer["result"]), (False, "altered"))
        self.assertEqual(answer["flaws"], [{"file": file, "flaw": flaw}])
        self.assertIn(": %s: " % file, self.verify(1).stdout)


class Signing(Images):
    def test_sign_and_verify(self):
        self.sign()
        self.assertIn(": whole: image work, agent 9.8.7, signed by ", self.verify(0).stdout)
        answer = self.verify_json(0)
        self.assertEqual((answer["ok"], answer["result"], answer["name"], answer["agent"], answer["flaws"]),
                         (True, "whole", "work", "9.8.7", []))

    def test_openssl_agrees(self):
        self.sign()
        question = ["openssl", "dgst", "-sha256", "-verify", self.key + ".pub", "-signature",
                    os.path.join(self.image, "manifest.sig"), os.path.join(self.image, "manifest")]
        self.assertEqual(subprocess.run(question, capture_output=True, check=False).returncode, 0)
        der = subprocess.run(["openssl", "pkey", "-pubin", "-in", self.key + ".pub", "-outform", "DER"], capture_output=True,
                             check=True).stdout
        digest = subprocess.run(["sha256sum"], input=der, capture_output=True, check=True).stdout.split()[0].decode()
        self.assertEqual(self.verify_json(0)["key"], digest)
        self.put("manifest", self.get("manifest") + b"\n")
        self.assertNotEqual(subprocess.run(question, capture_output=True, check=False).returncode, 0)

    def test_openssl_may_make_the_key_and_the_signature(self):
        for form in (["ecparam", "-name", "prime256v1", "-genkey"],
                     ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"]):
            with self.subTest(form=form):
                subprocess.run(["openssl", *form, "-out", self.key], check=True, capture_output=True)
                os.chmod(self.key, 0o600)
                subprocess.run(["openssl", "pkey", "-in", self.key, "-pubout", "-out", self.key + ".pub"], check=True)
                self.sign()
                self.verify(0)
                os.unlink(os.path.join(self.image, "manifest.sig"))
                subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key, "-out",
                                os.path.join(self.image, "manifest.sig"), os.path.join(self.image, "manifest")], check=True)
                self.verify(0)

    def test_the_manifest_says_what_sha256sum_says(self):
        self.sign()
        lines = self.get("manifest").decode().splitlines()
        self.assertRegex(lines[0], r"^wb-image 1 name=work agent=9\.8\.7 key=[0-9a-f]{64}$")
        for line, name in zip(lines[1:], ["agent", "cmdline", "initrd", "kernel"], strict=True):
            path = os.path.join(self.image, name)
            digest = subprocess.run(["sha256sum", path], capture_output=True, check=True, text=True).stdout.split()[0]
            self.assertEqual(line, "%s  %d  %s" % (digest, os.path.getsize(path), name))

    def test_the_same_image_has_the_same_manifest(self):
        self.sign()
        before = self.get("manifest")
        again = self.path("again", "work")
        shutil.copytree(self.image, again)
        for name in reversed(sorted(os.listdir(again))):    # other inodes, times and order
            os.utime(os.path.join(again, name), (1, 1))
        self.expect(0, "image", "sign", "--key", self.key, again)
        self.assertEqual(self.get(os.path.join(again, "manifest")), before)
        self.sign("--name", "another")
        self.assertNotEqual(self.get("manifest"), before)
        self.assertEqual(self.verify_json(0)["name"], "another")

    def test_keys_have_the_modes_that_they_need(self):
        self.expect(0, "image", "sign", "--new-key", self.key, self.image)
        self.assertEqual(os.stat(self.key).st_mode & 0o7777, 0o600)
        self.verify(0)
        for mode in (0o640, 0o604, 0o620, 0o602):
            os.chmod(self.key, mode)
            self.assertIn("chmod 600", self.expect(2, "image", "sign", "--key", self.key, self.image).stderr)
        os.chmod(self.key, 0o600)
        before = self.get(self.key)
        self.expect(2, "image", "sign", "--new-key", self.key)    # is not overwritten
        os.unlink(self.key + ".pub")
        self.expect(2, "image", "sign", "--new-key", self.key)
        self.assertEqual(self.get(self.key), before)
        self.assertFalse(os.path.exists(self.key + ".pub"))

    def test_other_keys_are_refused(self):
        self.sign()
        other = self.path("other")
        for algorithm in (["EC", "-pkeyopt", "ec_paramgen_curve:secp384r1"], ["RSA"], ["ED25519"]):
            subprocess.run(["openssl", "genpkey", "-algorithm", *algorithm, "-out", other], check=True, capture_output=True)
            os.chmod(other, 0o600)
            subprocess.run(["openssl", "pkey", "-in", other, "-pubout", "-out", other + ".pub"], check=True)
            self.assertIn("P-256", self.expect(2, "image", "sign", "--key", other, self.image).stderr)
            self.assertIn("P-256", self.expect(2, "image", "verify", "--key", other + ".pub", self.image).stderr)
        self.expect(2, "image", "verify", "--key", self.key, self.image)    # the private half
        self.expect(2, "image", "sign", "--key", self.key + ".pub", self.image)
        self.verify(0)

    def test_what_is_no_image_is_not_signed(self):
        self.expect(0, "image", "sign", "--new-key", self.key)
        for breakage, undo, word in (
                (lambda p: os.symlink("kernel", p("link")), lambda p: os.unlink(p("link")), "link: not a regular file"),
                (lambda p: os.mkdir(p("sub")), lambda p: os.rmdir(p("sub")), "sub: not a regular file"),
                (lambda p: os.mkfifo(p("fifo")), lambda p: os.unlink(p("fifo")), "fifo: not a regular file"),
                (lambda p: self.put("a b", b""), lambda p: os.unlink(p("a b")), "a b: not a name"),
                (lambda p: self.put("a\nb", b""), lambda p: os.unlink(p("a\nb")), "a?b: not a name"),
                (lambda p: os.rename(p("kernel"), p("k")), lambda p: os.rename(p("k"), p("kernel")), "no kernel")):
            with self.subTest(word=word):
                breakage(lambda name: os.path.join(self.image, name))
                self.assertIn(word, self.expect(2, "image", "sign", "--key", self.key, self.image).stderr)
                self.assertFalse(os.path.exists(os.path.join(self.image, "manifest")))
                undo(lambda name: os.path.join(self.image, name))
        self.sign()
        self.verify(0)

    def test_usage(self):
        self.expect(2, "image", "sign", self.image)
        self.expect(2, "image", "sign", "--key", "a", "--new-key", "b", self.image)
        self.expect(2, "image", "sign", "--key", self.key, self.image)    # not there
        self.expect(2, "image", "verify", self.image)
        self.expect(2, "image", "verify", "--key", self.key)
        self.sign()
        self.expect(2, "image", "sign", "--key", self.key, "--name", "a/b", self.image)
        self.expect(2, "image", "verify", "--key", self.key + ".pub", self.path("nowhere"))
        for command in ("sign", "verify", "ls", "build"):
            self.assertIn("--", self.expect(0, "image", command, "--help").stdout)


class Tampering(Images):
    def setUp(self):
        super().setUp()
        self.put("notes", b"read me\n")
        self.sign()

    def test_altered(self):
        for name in ("kernel", "initrd", "cmdline", "notes", "agent"):
            content = self.get(name)
            for other in (bytes([content[0] ^ 1]) + content[1:], content[:-1], content + b"x", b""):
                self.put(name, other)
                self.assert_flaw(name, "altered")
            self.put(name, content)
        self.verify(0)

    def test_missing_and_extra(self):
        os.rename(os.path.join(self.image, "notes"), os.path.join(self.image, ".notes"))
        self.assertEqual(self.verify_json(1)["flaws"],
                         [{"file": "notes", "flaw": "missing"}, {"file": ".notes", "flaw": "extra"}])
        os.rename(os.path.join(self.image, ".notes"), os.path.join(self.image, "notes"))
        os.mkdir(os.path.join(self.image, "more"))
        self.assert_flaw("more", "extra")

    def test_a_link_to_the_same_bytes(self):
        os.rename(os.path.join(self.image, "kernel"), self.path("kernel"))
        os.symlink(self.path("kernel"), os.path.join(self.image, "kernel"))
        self.assert_flaw("kernel", "not_regular")

    def test_names_steer_no_terminal(self):
        self.put("\x1b[2J", b"")
        self.assertNotIn("\x1b", self.verify(1).stdout)
        os.unlink(os.path.join(self.image, "\x1b[2J"))
        self.put(os.fsdecode(b"\xff\xfe"), b"")
        self.assertEqual(self.verify_json(1)["flaws"], [{"file": "?", "flaw": "extra"}])

    def test_swapped_files(self):
        kernel, initrd = self.get("kernel"), self.get("initrd")
        self.put("kernel", initrd)
        self.put("initrd", kernel)
        self.assertEqual([f["file"] for f in self.verify_json(1)["flaws"]], ["initrd", "kernel"])

    def test_an_altered_manifest(self):
        manifest = self.get("manifest")
        for other in (manifest.replace(b"name=work", b"name=WORK"), manifest + b"\n", manifest[:-1], b"", b"\0" * 100,
                      b"x" * 1000000):
            self.put("manifest", other)
            self.assertEqual(self.verify_json(1)["result"], "bad_signature")
        self.put("manifest", manifest)
        signature = self.get("manifest.sig")
        for other in (signature[:-1], signature + b"\0", b"", b"x" * 1000000, signature[::-1]):
            self.put("manifest.sig", other)
            self.assertEqual(self.verify_json(1)["result"], "bad_signature")
        for name in ("manifest.sig", "manifest"):
            os.unlink(os.path.join(self.image, name))
            self.assertEqual(self.verify_json(1)["result"], "unsigned")
            self.assertIn("not signed: no %s" % name, self.verify(1).stdout)

    def test_a_signed_manifest_that_is_none(self):
        lines = self.get("manifest").splitlines(keepends=True)
        zeros = b"0" * 64
        for other, line in ((b"".join(lines).replace(b"\n", b"\r\n"), 1), (b"".join(lines[:3] + [lines[2]] + lines[3:]), 4),
                            (b"".join([lines[0], lines[2], lines[1]] + lines[3:]), 3),
                            (b"".join(lines) + zeros + b"  1  z/../../../etc/passwd\n", 7),
                            (b"".join(lines) + zeros + b"  1  ..\n", 7), (b"".join(lines[:1] + lines[3:]), 0)):
            self.put("manifest", other)
            subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key, "-out", os.path.join(self.image, "manifest.sig"),
                            os.path.join(self.image, "manifest")], check=True)
            self.assertEqual(self.verify_json(1)["result"], "invalid_manifest")
            self.assertIn("manifest:%d: " % line, self.verify(1).stdout)

    def test_another_key(self):
        other = self.path("other.key")
        self.expect(0, "image", "sign", "--new-key", other)
        done = self.expect(1, "image", "verify", "--key", other + ".pub", self.image)
        self.assertIn("not signed by a key that was given", done.stdout)
        self.expect(0, "image", "verify", "--key", other + ".pub", "--key", self.key + ".pub", self.image)
        self.expect(1, "image", "verify", self.image, WB_IMAGE_KEY=other + ".pub")
        self.expect(0, "image", "verify", self.image, WB_IMAGE_KEY=other + ".pub:" + self.key + ".pub")
        self.verify(0, WB_IMAGE_KEY="/nowhere")    # --key instead of it
        self.expect(2, "image", "verify", self.image, WB_IMAGE_KEY="/nowhere")


class Listing(Images):
    def test_ls_says_who_signed(self):
        self.image = self.path("cache", "wb", "microvm", "0123")
        shutil.copytree(self.path("work"), self.image)
        shutil.copytree(self.path("work"), self.path("cache", "wb", "microvm", "4567"))
        self.sign()
        fingerprint = self.get("manifest").split(b"key=")[1][:64].decode()
        cache = {"XDG_CACHE_HOME": self.path("cache")}

        def listed(*more, **environment):
            rows = json.loads(self.expect(0, "image", "ls", "--json", *more, **cache, **environment).stdout)
            return {os.path.basename(row["directory"]): (row["key"], row["result"]) for row in rows}

        self.assertEqual(listed(), {"0123": (fingerprint, None), "4567": (None, None)})
        self.assertEqual(listed("--key", self.key + ".pub"), {"0123": (fingerprint, "whole"), "4567": (None, "unsigned")})
        self.assertIn(fingerprint[:16], self.expect(0, "image", "ls", **cache).stdout)
        self.put("initrd", b"other")
        self.assertEqual(listed(WB_IMAGE_KEY=self.key + ".pub")["0123"], (fingerprint, "altered"))
        self.assertIn(fingerprint[:16] + " altered", self.expect(0, "image", "ls", "--key", self.key + ".pub", **cache).stdout)


class Booting(Images):
    """`wbctl run` up to QEMU, which is a script here."""

    def setUp(self):
        super().setUp()
        self.sign()
        self.seen = self.path("seen")
        os.mkdir(self.seen)
        os.chmod(self.seen, 0o1777)
        os.mkdir(self.path("bin"))
        with open(self.path("bin", "qemu-system-x86_64"), "w", encoding="utf-8") as f:
            f.write(QEMU)
        os.chmod(self.path("bin", "qemu-system-x86_64"), 0o755)
        self.environment.update(PATH=self.path("bin") + ":" + os.environ["PATH"], WB_TEST_SEEN=self.seen,
                                WB_IMAGE_KEY="", WB_SOCKET="")

    def run_arguments(self, *more):
        return ["run", "--allow-unverified", "--image", self.image, *more, "--", "true"]

    def found(self, name):
        return self.get(os.path.join(self.seen, name))

    def boot(self, meanwhile, *more):
        with subprocess.Popen([WBCTL, *self.run_arguments(*more)], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
            until(lambda: run.poll() is not None or os.path.exists(os.path.join(self.seen, "started")), seconds=60)
            meanwhile()
            self.put(os.path.join(self.seen, "go"), b"")
            errors = run.communicate(timeout=60)[1]
        self.assertEqual(run.returncode, 125)    # this QEMU runs no guest
        self.assertTrue(os.path.exists(os.path.join(self.seen, "done")), errors)

    def swap(self):
        """In place, and by another file of the same name."""
        self.put("kernel", b"other" * 60000)
        with open(self.path("initrd"), "wb") as f:
            f.write(b"other" * 40000)
        os.rename(self.path("initrd"), os.path.join(self.image, "initrd"))
        self.put("cmdline", b"init=/bin/sh\n")

    def test_what_was_verified_boots_whatever_comes_later(self):
        self.boot(self.swap, "--image-key", self.key + ".pub")
        self.assertEqual(self.found("kernel"), KERNEL)
        self.assertEqual(self.found("initrd"), INITRD)
        self.assertEqual(self.found("append").split()[:2], [b"console=ttyS0", b"quiet"])
        self.assertFalse(os.path.exists(os.path.join(self.seen, "written")))

    def test_without_a_key_the_files_are_what_they_are(self):
        """The same swap reaches the guest: this test would see it above."""
        os.unlink(os.path.join(self.image, "manifest.sig"))
        self.boot(self.swap)
        self.assertEqual(self.found("kernel"), b"other" * 60000)

    def assert_refused(self, words, *more, **environment):
        done = self.expect(125, *self.run_arguments(*more), **environment)
        self.assertIn(words, done.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.seen, "started")))

    def test_what_is_not_whole_does_not_boot(self):
        key = ("--image-key", self.key + ".pub")
        self.put("initrd", INITRD[::-1])
        self.assert_refused("initrd: altered", *key)
        self.assert_refused("initrd: altered", WB_IMAGE_KEY=self.key + ".pub")
        self.put("initrd", INITRD)
        self.put("more", b"")
        self.assert_refused("more: not in the manifest", *key)
        os.unlink(os.path.join(self.image, "more"))
        self.assert_refused("No such file", "--image-key", self.path("nowhere"))
        other = self.path("other.key")
        self.expect(0, "image", "sign", "--new-key", other)
        self.assert_refused("not signed by a key that was given", "--image-key", other + ".pub")
        os.unlink(os.path.join(self.image, "manifest.sig"))
        self.assert_refused("not signed: no manifest.sig", *key)


if __name__ == "__main__":
    unittest.main()
