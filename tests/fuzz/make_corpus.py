#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/corpus/{http1,socks5,client_hello} from tests/cases: a small one of every family."""
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


def main():
    seeds("http1", "http_requests.json", "bytes", 300, b"\0")
    seeds("socks5", "socks5.json", "bytes", 120)
    seeds("client_hello", "client_hello.json", "hello", 300)
    for seed, (mode, text) in ANSWERS.items():
        write("http1", seed, bytes([mode]) + text.encode())


main()
