#!/usr/bin/env python3
"""Writes the specification of a run of Autobahn|Testsuite: the server without the Gateway, and the same by the Gateway.

    tests/peers/gateway-suites/websocket.py OUT CASES DIRECT URL…
"""

import json
import pathlib
import sys


def main():
    out, cases, direct, *urls = sys.argv[1:]
    servers = [{"agent": "direct", "url": direct}, *({"agent": url.split(":")[0], "url": url} for url in urls)]
    spec = {"outdir": f"{out}/websocket", "servers": servers, "cases": cases.split(","), "exclude-cases": [], "exclude-agent-cases": {}}
    pathlib.Path(out, "websocket.json").write_text(json.dumps(spec))


main()
