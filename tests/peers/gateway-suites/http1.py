#!/usr/bin/env python3
"""Sends malformed and ambiguous requests, and checks what the server behind the Gateway received.

    tests/peers/gateway-suites/http1.py ADDRESS PORT REQUESTS RESULTS

A probe is `reject` (an error, and nothing is passed on), `forward` (exactly one request is passed on), or `either`. Whatever is passed on has to have
one meaning: the server behind reports anything else, and none of its requests may be one that was hidden in another (`/smuggled`).
"""

import json
import pathlib
import re
import socket
import struct
import sys
import time

REJECT, FORWARD, EITHER = "reject", "forward", "either"
SMUGGLED = b"GET /smuggled-@@ HTTP/1.1\r\nHost: x.example\r\n\r\n"


def post(headers, body=b"", host=b"Host: x.example\r\n"):
    return b"POST /probe-@@ HTTP/1.1\r\n" + host + headers + b"\r\n" + body


def get(headers=b"", target=b"/probe-@@", version=b"HTTP/1.1", host=b"Host: x.example\r\n", method=b"GET"):
    return method + b" " + target + b" " + version + b"\r\n" + host + headers + b"\r\n"


def lengths():
    # RFC 9112 permits to ignore Content-Length here, if the connection is closed: what follows is not read.
    hidden = b"0\r\n\r\n" + SMUGGLED
    yield "Content-Length before Transfer-Encoding", EITHER, post(b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(hidden), hidden)
    yield "Transfer-Encoding before Content-Length", EITHER, post(b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n" % len(hidden), hidden)
    yield "Content-Length 0 beside Transfer-Encoding", EITHER, post(b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", b"5\r\nhello\r\n" + hidden)
    yield "two different Content-Lengths", REJECT, post(b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(SMUGGLED), SMUGGLED)
    yield "two equal Content-Lengths", EITHER, post(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello")
    yield "a list of equal lengths", EITHER, post(b"Content-Length: 5, 5\r\n", b"hello")
    yield "a list of different lengths", REJECT, post(b"Content-Length: 0, %d\r\n" % len(SMUGGLED), SMUGGLED)
    for value in (b"+5", b"-5", b"0x5", b"5 5", b"5;", b"\"5\"", b"5.0", b"1e1", b"", b"18446744073709551621", b"\x0b5", b"5\x00"):
        yield f"Content-Length {value!r}", REJECT, post(b"Content-Length: " + value + b"\r\n", b"hello")
    yield "Content-Length with a space before the colon", REJECT, post(b"Content-Length : 5\r\n", b"hello")
    yield "Content-Length in a folded line", REJECT, post(b"Content-Length:\r\n 5\r\n", b"hello")
    yield "Content_Length", EITHER, post(b"Content_Length: %d\r\nContent-Length: 5\r\n" % len(SMUGGLED), b"hello")
    yield "GET with a body", FORWARD, get(b"Content-Length: 5\r\n") + b"hello"


def codings():
    body = b"0\r\n\r\n"
    for value in (b"xchunked", b"identity", b"chunked, identity", b"chunked, chunked", b"chunked;q=1", b"\x0bchunked", b"\"chunked\"", b"", b"gzip",
                  b"chunked\x00", b"x, chunked x"):
        yield f"Transfer-Encoding {value!r}", REJECT, post(b"Transfer-Encoding: " + value + b"\r\n", body + SMUGGLED)
    yield "Transfer-Encoding gzip, chunked", EITHER, post(b"Transfer-Encoding: gzip, chunked\r\n", body)
    yield "Transfer-Encoding CHUNKED", EITHER, post(b"Transfer-Encoding: CHUNKED\r\n", b"5\r\nhello\r\n0\r\n\r\n")
    yield "Transfer-Encoding twice", REJECT, post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", body + SMUGGLED)
    yield "Transfer-Encoding twice, equal", EITHER, post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", body)
    yield "Transfer-Encoding with a space before the colon", REJECT, post(b"Transfer-Encoding : chunked\r\n", body + SMUGGLED)
    yield "Transfer-Encoding with a tab before the colon", REJECT, post(b"Transfer-Encoding\t: chunked\r\n", body + SMUGGLED)
    yield "Transfer-Encoding in a folded line", REJECT, post(b"Transfer-Encoding:\r\n chunked\r\n", body + SMUGGLED)
    yield "Transfer-Encoding behind a folded line", REJECT, post(b"X: y\r\n Transfer-Encoding: chunked\r\n", body)
    yield "Transfer-Encoding of HTTP/1.0", REJECT, b"POST /probe-@@ HTTP/1.0\r\nHost: x.example\r\nTransfer-Encoding: chunked\r\n\r\n" + body + SMUGGLED
    yield "Transfer-Encoding behind a bare CR", REJECT, post(b"X: y\rTransfer-Encoding: chunked\r\n", body + SMUGGLED)
    yield "Transfer-Encoding behind a bare LF", EITHER, post(b"X: y\nTransfer-Encoding: chunked\r\n", body)
    yield "Transfer_Encoding", EITHER, post(b"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n", b"hello")


def chunks():
    chunked = b"Transfer-Encoding: chunked\r\n"
    yield "chunks", FORWARD, post(chunked, b"5\r\nhello\r\n0\r\n\r\n")
    yield "a chunk extension", EITHER, post(chunked, b"5;a=b\r\nhello\r\n0\r\n\r\n")
    yield "a long chunk extension", EITHER, post(chunked, b"5;" + b"a" * 70000 + b"\r\nhello\r\n0\r\n\r\n")
    yield "a bare LF in a chunk extension", EITHER, post(chunked, b"5;a\nb\r\nhello\r\n0\r\n\r\n")
    yield "trailers", FORWARD, post(chunked, b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n")
    yield "Content-Length as a trailer", EITHER, post(chunked, b"5\r\nhello\r\n0\r\nContent-Length: 50\r\nHost: evil.example\r\n\r\n")
    for size in (b"-5", b"+5", b"0x5", b"fffffffffffffffff", b"5 5", b"", b"g", b"5\x00"):
        yield f"a chunk of size {size!r}", REJECT, post(chunked, size + b"\r\nhello\r\n0\r\n\r\n")
    yield "a chunk that is longer than its size", REJECT, post(chunked, b"4\r\nhello\r\n0\r\n\r\n")
    yield "a chunk that ends with a bare LF", EITHER, post(chunked, b"5\r\nhello\n0\r\n\r\n")
    yield "a chunk size that ends with a bare LF", EITHER, post(chunked, b"5\nhello\r\n0\r\n\r\n")
    yield "a chunk size that ends with a bare CR", REJECT, post(chunked, b"5\rhello\r\n0\r\n\r\n")


def heads():
    yield "no Host", REJECT, get(host=b"")
    yield "two Hosts", REJECT, get(host=b"Host: x.example\r\nHost: y.example\r\n")
    for value in (b"", b"a b", b"x.example/evil", b"user@x.example", b"x.example:80:80", b"x.example:port", b"x<y", b"x.example\\"):
        yield f"Host {value!r}", REJECT if value else EITHER, get(host=b"Host: " + value + b"\r\n")
    yield "an empty header name", REJECT, get(b": x\r\n")
    yield "a space in a header name", REJECT, get(b"a b: x\r\n")
    yield "a header without a colon", REJECT, get(b"abc\r\n")
    yield "NUL in a header", REJECT, get(b"X: a\x00b\r\n")
    yield "a bare CR in a header", REJECT, get(b"X: a\rb\r\n")
    yield "white space before the first header", REJECT, get(host=b" Host: x.example\r\n")
    yield "a folded header", REJECT, get(b"X: a\r\n b\r\n")
    yield "a header of 100 kB", REJECT, get(b"X: " + b"a" * 100_000 + b"\r\n")
    yield "1000 headers", REJECT, get(b"".join(b"X-%d: a\r\n" % number for number in range(1000)))
    yield "a target of 70 kB", REJECT, get(target=b"/" + b"a" * 70_000)
    yield "Latin-1 in a header", EITHER, get(b"X: \xe4\r\n")
    for version in (b"HTTP/1.2", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/1.1x", b"http/1.1", b"HTTP/01.1", b"HTTP/1.", b"ICAP/1.0"):
        yield f"version {version!r}", EITHER if version == b"HTTP/1.2" else REJECT, get(version=version)
    yield "HTTP/0.9", REJECT, b"GET /probe-@@\r\n"
    yield "HTTP/1.0 without Host", EITHER, get(version=b"HTTP/1.0", host=b"")
    yield "an empty line before the request", EITHER, b"\r\n" + get()
    yield "two spaces in the request line", REJECT, b"GET  /probe-@@ HTTP/1.1\r\nHost: x.example\r\n\r\n"
    yield "a tab in the request line", REJECT, b"GET\t/probe-@@\tHTTP/1.1\r\nHost: x.example\r\n\r\n"
    yield "a space in the target", REJECT, get(target=b"/probe-@@ x")
    yield "a target without a slash", REJECT, get(target=b"probe-@@")
    yield "the target *", EITHER, get(target=b"*")
    yield "a fragment in the target", EITHER, get(target=b"/probe-@@#x")
    yield "eight bits in the target", EITHER, get(target=b"/probe-@@\xff")
    yield "NUL in the target", REJECT, get(target=b"/probe-@@\x00")
    yield "CR in the target", REJECT, get(target=b"/probe-@@\rX:")
    yield "an absolute target of another host", EITHER, get(target=b"http://y.example/probe-@@")
    yield "CONNECT", REJECT, get(method=b"CONNECT", target=b"probe-@@:443")
    yield "a method with a space", REJECT, get(method=b"GE T")
    yield "a method with a control character", REJECT, get(method=b"GE\x01T")
    yield "a method of 10 kB", EITHER, get(method=b"A" * 10_000)
    yield "bytes that are no HTTP", REJECT, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n"
    yield "Expect: 100-continue", FORWARD, post(b"Expect: 100-continue\r\nContent-Length: 5\r\n", b"hello")
    yield "an unknown expectation", EITHER, post(b"Expect: miracle\r\nContent-Length: 5\r\n", b"hello")
    yield "Upgrade: h2c", EITHER, get(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n")
    yield "Upgrade with a body", EITHER, post(b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: %d\r\n" % len(SMUGGLED), SMUGGLED)
    yield "Connection names X-Forwarded-For", FORWARD, get(b"Connection: close, X-Forwarded-For, X-Forwarded-Proto\r\nX-Forwarded-For: 1.2.3.4\r\n")
    yield "Connection names Host and Content-Length", EITHER, post(b"Connection: close, Host, Content-Length\r\nContent-Length: 5\r\n", b"hello")
    yield "a request that does not end", REJECT, b"GET /probe-@@ HTTP/1.1\r\nHost: x.example\r\nX: "


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def h2(headers, body=None, replace=None):
    fields = {b":method": b"POST" if body is not None else b"GET", b":scheme": b"http", b":path": b"/probe-@@", b":authority": b"x.example"}
    fields.update(replace or {})
    literal = lambda text: bytes([len(text)]) + text  # noqa: E731
    block = [(name, value) for name, value in fields.items() if value is not None] + headers
    return block, body, literal


def requests_of_h2():
    te = (b"transfer-encoding", b"chunked")
    yield "h2: a request", FORWARD, h2([])
    yield "h2: a request with a body", FORWARD, h2([(b"content-length", b"5")], b"hello")
    yield "h2: Transfer-Encoding", REJECT, h2([te], b"0\r\n\r\n" + SMUGGLED)
    # The head is passed on before the body is read; what is passed on has no body then.
    yield "h2: Content-Length is less than the body", EITHER, h2([(b"content-length", b"0")], SMUGGLED)
    yield "h2: Content-Length is more than the body", REJECT, h2([(b"content-length", b"100")], b"hello")
    yield "h2: two Content-Lengths", REJECT, h2([(b"content-length", b"5"), (b"content-length", b"0")], b"hello")
    yield "h2: CRLF in a value", REJECT, h2([(b"x", b"a\r\nTransfer-Encoding: chunked")], b"hello")
    yield "h2: LF in a value", REJECT, h2([(b"x", b"a\nb: c")])
    yield "h2: NUL in a value", REJECT, h2([(b"x", b"a\0b")])
    yield "h2: a colon in a name", REJECT, h2([(b"x: y", b"z")])
    yield "h2: CRLF in a name", REJECT, h2([(b"x: y\r\nz", b"a")])
    yield "h2: capitals in a name", REJECT, h2([(b"Content-Length", b"5")], b"hello")
    yield "h2: an empty name", REJECT, h2([(b"", b"5")])
    yield "h2: Connection", REJECT, h2([(b"connection", b"close")])
    yield "h2: TE that is not trailers", REJECT, h2([(b"te", b"chunked")])
    yield "h2: a space in the path", REJECT, h2([], replace={b":path": b"/probe-@@ HTTP/1.1\r\nHost: y"})
    yield "h2: an empty path", REJECT, h2([], replace={b":path": b""})
    yield "h2: no path", REJECT, h2([], replace={b":path": None})
    yield "h2: no method", REJECT, h2([], replace={b":method": None})
    yield "h2: a method with a space", REJECT, h2([], replace={b":method": b"GET /smuggled-@@ HTTP/1.1\r\nx:"})
    yield "h2: two paths", REJECT, h2([(b":path", b"/smuggled-@@")])
    yield "h2: a pseudo-header behind others", REJECT, h2([(b"x", b"y"), (b":path", b"/smuggled-@@")])
    yield "h2: an unknown pseudo-header", REJECT, h2([(b":x", b"y")])
    yield "h2: Host beside another authority", EITHER, h2([(b"host", b"y.example")])
    yield "h2: an authority with a user", REJECT, h2([], replace={b":authority": b"u@x.example"})
    yield "h2: CONNECT", REJECT, h2([], replace={b":method": b"CONNECT", b":path": None, b":scheme": None})
    yield "h2: a scheme with CRLF", REJECT, h2([], replace={b":scheme": b"http://y\r\nX: z"})


def wire(probe, marker):
    if isinstance(probe, bytes):
        return probe.replace(b"@@", marker)
    block, body, literal = probe
    fill = lambda text: text.replace(b"@@", marker) if text.startswith((b"/", b"GET")) else text  # noqa: E731
    head = b"".join(b"\0" + literal(name) + literal(fill(value)) for name, value in block)
    frames = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", frame(4, 0, 0, b""), frame(1, 4 if body is not None else 5, 1, head)]
    if body is not None:
        frames.append(frame(0, 1, 1, body.replace(b"@@", marker)))
    return b"".join(frames)


def answered_h2(data):
    """The status of stream 1, or nothing: the stream or the connection was reset."""
    statuses = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}
    while len(data) >= 9:
        length, kind, flags = int.from_bytes(data[:3]), data[3], data[4]
        payload, data = data[9 : 9 + length], data[9 + length :]
        if kind == 1 and payload:
            if payload[0] & 0x80 and (payload[0] & 0x7F) in statuses:
                return [statuses[payload[0] & 0x7F]]
            return [599]
    return []


def send(address, port, data, is_h2):
    with socket.create_connection((address, port), timeout=5) as connection:
        received = b""
        try:
            connection.sendall(data)
            connection.settimeout(1.5)
            while piece := connection.recv(65536):
                received += piece
                if len(received) > 1 << 20:
                    break
        except (TimeoutError, ConnectionError):
            pass
    if is_h2:
        return answered_h2(received)
    return [int(code) for code in re.findall(rb"(?:^|\n|</p>\n)HTTP/1\.[01] (\d{3})", received) if code != b"100"]


def judge(expected, statuses, lines, marker):
    """What is wrong, or nothing."""
    text = json.dumps(lines)
    if f"/smuggled-{marker}" in text.replace("\\/", "/") and any(line.get("head", "").split(" ")[1:2] == [f"/smuggled-{marker}"] for line in lines):
        return "a hidden request was passed on"
    errors = [line["error"] for line in lines if "error" in line and not line["error"].startswith("ended within")]
    if errors:
        return errors[0]
    heads = [line["head"] for line in lines if "head" in line]
    if len(heads) > 1:
        return f"{len(heads)} requests were passed on"
    if expected == REJECT and (heads or (statuses and statuses[0] < 400)):
        return f"it was accepted with {statuses}; passed on: {heads}"
    if expected == FORWARD and (len(heads) != 1 or statuses[:1] != [200]):
        return f"it was not passed on: {statuses}"
    if statuses[:1] and 500 <= statuses[0] < 600 and statuses[0] not in (501, 505, 599):
        return f"the client's fault was answered with {statuses[0]}"
    return None


def special(name, lines):
    """What else a probe is about."""
    heads = [line["head"].lower() for line in lines if "head" in line]
    for head in heads:
        fields = dict(line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
        if "h2c" in fields.get("upgrade", "") or "http2-settings" in fields:
            return f"an upgrade was passed on: {head!r}"
        if "X-Forwarded-For" in name and ("192.0.2.1" not in fields.get("x-forwarded-for", "") or "x-forwarded-proto" not in fields):
            return f"X-Forwarded-* were removed: {head!r}"
        if "absolute target" in name and fields["host"].strip() != "y.example":
            return f"the Host is not that of the target: {head!r}"
        if "Host beside another authority" in name and fields["host"].strip() != "x.example":
            return f"the Host is not the authority: {head!r}"
    return None


def main():
    address, port, requests, results = sys.argv[1:]
    probes = [*lengths(), *codings(), *chunks(), *heads(), *requests_of_h2()]
    assert len({name for name, _, _ in probes}) == len(probes)
    with open(results, "a", encoding="utf-8") as out:
        for number, (name, expected, probe) in enumerate(probes):
            marker = f"{number:04}"
            before = pathlib.Path(requests).stat().st_size
            is_h2 = not isinstance(probe, bytes)
            statuses = send(address, int(port), wire(probe, marker.encode()), is_h2)
            time.sleep(0.02)
            with open(requests, encoding="latin-1") as file:
                file.seek(before)
                lines = [json.loads(line) for line in file]
            wrong = judge(expected, statuses, lines, marker) or special(name, lines)
            detail = wrong or f"{expected}: {', '.join(map(str, statuses)) or 'closed'}"
            out.write(json.dumps({"suite": "http1", "case": name, "result": "failed" if wrong else "passed", "detail": detail}) + "\n")


main()
