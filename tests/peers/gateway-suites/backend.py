#!/usr/bin/env python3
"""The HTTP/1.1 server behind the Gateway: it answers each request, and writes what it received, byte by byte, to a file.

    tests/peers/gateway-suites/backend.py ADDRESS PORT FILE

It follows RFC 9112 strictly, and reports what it would not accept. Each line of the file is a JSON object: connection, head, body, error.
"""

import asyncio
import json
import sys

BODY = b"<p>" + b"x" * 2000 + b"</p>\n"


class Log:
    def __init__(self, path):
        self.file = open(path, "a", encoding="latin-1", buffering=1)

    def write(self, **fields):
        self.file.write(json.dumps({name: value.decode("latin-1") if isinstance(value, bytes) else value for name, value in fields.items()}) + "\n")


async def chunked(reader):
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        body += await reader.readexactly(size)
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass
            return body
        if await reader.readexactly(2) != b"\r\n":
            raise ValueError("a chunk without its end")


async def request(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head[:-4].split(b"\r\n")
    if any(b"\n" in line or b"\r" in line or b"\0" in line or line[:1] in (b" ", b"\t") for line in lines[1:]):
        raise ValueError(f"a header that two parsers understand differently: {head!r}")
    headers = [(line.split(b":", 1)[0].lower(), line.split(b":", 1)[1].strip()) for line in lines[1:]]
    of = lambda name: [value for known, value in headers if known == name]  # noqa: E731
    lengths, codings = of(b"content-length"), of(b"transfer-encoding")
    if len(lengths) > 1 or len(codings) > 1 or (lengths and codings) or len(of(b"host")) != 1:
        raise ValueError(f"ambiguous framing or host: {head!r}")
    if codings:
        if codings[0].lower() != b"chunked":
            raise ValueError(f"an unknown coding: {head!r}")
        return head, await chunked(reader)
    return head, await reader.readexactly(int(lengths[0])) if lengths else b""


async def serve(reader, writer, log, number):
    try:
        while True:
            head, body = await request(reader)
            log.write(connection=number, head=head, body=body)
            is_head = head.startswith(b"HEAD ")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), b"" if is_head else BODY))
            await writer.drain()
    except asyncio.IncompleteReadError as error:
        if error.partial:
            log.write(connection=number, error=f"ended within a request: {error.partial!r}")
    except (ValueError, asyncio.LimitOverrunError) as error:
        log.write(connection=number, error=str(error))
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main():
    address, port, path = sys.argv[1:]
    log, count = Log(path), iter(range(1 << 62))
    server = await asyncio.start_server(lambda reader, writer: serve(reader, writer, log, next(count)), address, int(port), limit=1 << 20)
    async with server:
        await server.serve_forever()


asyncio.run(main())
