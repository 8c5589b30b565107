#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/corpus/{http1,socks5,client_hello} from tests/cases, a small one of every family, and those of corpus/exec
and corpus/handshake_join."""
import base64
import json
import pathlib
import re

HERE = pathlib.Path(__file__).parent
CASES = HERE.parent / "cases"
ANSWERS = {  # mode byte (see fuzz_http1.c) and text; the cases have no origin's bytes
    "answer-length": (1, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
    "answer-chunked": (1, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nA: b\r\n\r\n"),
    "answer-until-close": (1, "HTTP/1.0 200 OK\r\n\r\nhello"),
    "answer-old-client": (65, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "answer-head": (17, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close, x\r\nX: y\r\n\r\n"),
    "answer-101": (33, "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nraw"),
    "answer-103": (1, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "tunnel-origin-form": (10, "GET /p?q HTTP/1.1\r\nHost: a.example\r\n\r\n"),
    "tunnel-tls": (6, "POST /p HTTP/1.1\r\nHost: a.example:443\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"),
    "tunnel-asterisk": (2, "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n"),
    "tunnel-ssh": (10, "SSH-2.0-OpenSSH_9.6\r\n"),
}


def part(p):
    if isinstance(p, str):
        return p.encode("latin-1")
    if "hex" in p:
        return bytes.fromhex(p["hex"])
    if "base64" in p:
        return base64.b64decode(p["base64"])
    return p["repeat"].encode("latin-1") * p["times"]


def whole(case, key):
    if key + "64" in case:
        return base64.b64decode(case[key + "64"])
    value = case[key]
    return b"".join(map(part, value)) if isinstance(value, list) else part(value)


def write(name, seed, content):
    directory = HERE / "corpus" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / seed).write_bytes(content)


def seeds(name, file, key, most_bytes, prefix=b""):
    families = set()
    for case in json.loads((CASES / file).read_text()):
        content = whole(case, key)
        family = "-".join(re.sub(r"-\d+$", "", case["id"]).split("-")[:2])
        if family not in families and 0 < len(content) <= most_bytes:
            families.add(family)
            write(name, case["id"], prefix + content)


# The steps of fuzz_exec.c. Hosts and commands are counted from 0.
def start(flags=0, kind=1, window=2, host=0):
    return bytes([0, host << 4, flags, kind, window])


def more(*sizes, last=True, host=0):
    return bytes([0, host << 4 | 1, len(sizes), *sizes, not last])


def host(step, *args, number=0):
    steps = {"input": 2, "credit": 3, "signal": 4, "attach": 5, "ask": 6, "anything": 7, "leave": 8, "read": 9}
    return bytes([0, number << 4 | steps[step], *args])


def command(step, detail=0, number=0):
    steps = {"fail": 0, "keeper": 1, "close": 2, "read": 3, "end": 5, "gone": 6, "run": 7, "write": 10}
    return bytes([9, number << 4 | steps[step], detail])


READ, OUT, ERR, RUN, END, GONE = host("read", 255), command("write", 200), command("write", 201), command("run"), command("end", 3), command("gone")
TIME = bytes([15, 7])
EXECS = {
    "plain": start() + RUN + OUT + ERR + READ + OUT + END + GONE + READ,
    "input": start() + RUN + READ + host("input", 0, 8) + command("read", 255) + host("input", 3, 4) + command("read", 255) * 4 + READ + END + GONE + READ,
    "credit": start(window=1) + RUN + OUT * 3 + READ + host("credit", 0, 1) + READ + host("credit", 0, 2) + READ + END + GONE + READ,
    "large": start(8, 5) + more(0, 0, 1, last=False) + more(0, 2, 3) + RUN + OUT + END + GONE + READ,
    "too-large": start(8) + more(*[0] * 7, last=False) * 10,
    "half": start(8, 5) + more(0, last=False) + host("leave"),
    "left": start() + RUN + OUT + host("leave") + TIME,
    "attach": start(1) + RUN + OUT + READ + host("attach", 0, 0, 0, 0, 2, number=1) + OUT + ERR + host("read", 255, number=1) + END + GONE + host("read", 255, number=1),
    "again": start(1) + RUN + OUT * 4 + END + GONE + host("attach", 0, 9, 0, 3, 3, number=2) + host("read", 255, number=2) * 2,
    "stalled": start(1) + RUN + host("attach", 0, 0, 0, 0, 0, number=1) + OUT * 40 + TIME + OUT * 4 + host("credit", 0, 2, number=1) + host("read", 255, number=1),
    "killed": start() + RUN + OUT + host("ask", 2, 0, 0, number=3) + READ + READ,
    "signalled": start() + host("signal", 15) + RUN + READ + host("signal", 15) + command("end", 15) + GONE + READ,
    "early": start() + host("signal", 9) + END + GONE + READ,
    "failed": start() + command("fail", 9) + READ + start(host=1) + command("fail", 74) + host("read", 255, number=1),
    "background": start() + RUN + OUT + END + READ + OUT + TIME + READ + host("ask", 0, 0, 0, number=1) + GONE,
    "terminal": start(4) + RUN + OUT + READ + host("signal", 40) + host("input", 0, 1) + command("read", 255) + host("input", 3, 0) + END + GONE + READ,
    "timeout": start(16) + RUN + OUT + TIME + READ,
    "closed": start() + RUN + command("close", 1) + TIME + ERR + READ + command("close", 2) + command("close", 0) + host("input", 0, 4) + END + GONE + READ,
    "keeper": start() + command("keeper") + host("signal", 3) + GONE + READ + start(host=1) + RUN + command("keeper") + GONE + host("read", 255, number=1),
    "many": b"".join(start(1, host=i % 4) + host("leave", number=i % 4) for i in range(10)) + b"".join(command("run", number=i) + command("end", i, number=i) for i in range(8)),
    "limits": start(32, 2) + RUN + host("ask", 1, 0, 0, number=1) + host("ask", 5, 0, 0, number=1) + start(32, 15, host=2) + start(96, 1, host=3) + END + GONE,
    "anything": host("anything", 5, 0x2a, 3, 0x0a, 1, 0x61) + RUN + READ + host("anything", 2, 0xff, 0xff),
}


def record(kind, payload):
    return bytes([kind, 3, 3]) + len(payload).to_bytes(2, "big") + payload


HELLO, DONE, LONG = b"\x02\0\0\x03abc", b"\x0e\0\0\0", b"\x0b\0\x3f\xfc"
HANDSHAKES = {
    "whole": record(22, HELLO) + record(22, DONE),
    "cut": record(22, HELLO[:2]) + record(22, HELLO[2:5]) + record(22, HELLO[5:] + DONE),
    "packed": record(22, HELLO + DONE + HELLO[:1]) + record(22, HELLO[1:]),
    "alert": record(21, b"\1\x70") + record(22, HELLO),
    "alert-inside": record(22, HELLO[:1]) + record(21, b"\1\x70"),
    "over": record(22, DONE) + record(20, b"\1") + record(22, b"sealed"),
    "long": record(22, LONG + bytes(100)),
    "too-long": record(22, b"\x0b\0\x40\0"),
    "no-tls": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


def main():
    for seed, content in HANDSHAKES.items():
        write("handshake_join", seed, content)
    for seed, steps in EXECS.items():
        for cgroups in 0, 1:
            write("exec", "%s-%d" % (seed, cgroups), bytes([cgroups]) + steps)
    seeds("http1", "http_requests.json", "bytes", 300, b"\0")
    seeds("socks5", "socks5.json", "bytes", 120)
    seeds("client_hello", "client_hello.json", "hello", 300)
    for seed, (mode, text) in ANSWERS.items():
        write("http1", seed, bytes([mode]) + text.encode())


main()
