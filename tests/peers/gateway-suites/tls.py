#!/usr/bin/env python3
"""Scans a TLS listener: which versions, cipher suites and groups it accepts, by one handshake of openssl for each.

    tests/peers/gateway-suites/tls.py ADDRESS PORT NAME OUT RESULTS

Only TLS 1.2 and 1.3 may be accepted, and only suites with forward secrecy and authenticated encryption. The scan first checks itself against a
server with everything switched on: what it cannot see there it could not find missing here.
"""

import json
import pathlib
import re
import subprocess
import sys
import time

WEAKEST = "ALL:COMPLEMENTOFALL:eNULL:@SECLEVEL=0"
OLD = {"TLS 1.0": "-tls1", "TLS 1.1": "-tls1_1"}
TLS13 = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"]
GROUPS = ["X25519", "P-256", "P-384", "P-521", "X448", "ffdhe2048"]


def openssl(*arguments, text=""):
    done = subprocess.run(["openssl", *arguments], input=text, capture_output=True, text=True, errors="replace", timeout=30, check=False)
    return done.stdout + done.stderr


class Target:
    def __init__(self, address, port, name):
        self.address, self.name = f"{address}:{port}", name

    def handshake(self, *options, text="Q\n"):
        """What was negotiated: version and cipher suite; nothing when the handshake failed."""
        said = openssl("s_client", "-connect", self.address, "-servername", self.name, *options, text=text)
        found = re.search(r"^New, (TLSv[0-9.]+), Cipher is (\S+)", said, re.MULTILINE)
        # A server may refuse when a cipher suite has been agreed upon; then there is no certificate.
        has_failed = not found or found[2] == "(NONE)" or "no peer certificate available" in said
        return None if has_failed else (found[1], found[2], said)

    def accepts(self, *options):
        return self.handshake(*options) is not None

    def versions(self):
        old = [name for name, option in OLD.items() if self.accepts(option, "-cipher", WEAKEST)]
        new = [name for name, option in (("TLS 1.2", "-tls1_2"), ("TLS 1.3", "-tls1_3")) if self.accepts(option)]
        return old + new

    def suites(self):
        names = openssl("ciphers", "-s", "-tls1_2", WEAKEST).strip().split(":")
        old = [name for name in names if self.accepts("-tls1_2", "-cipher", f"{name}:@SECLEVEL=0")]
        return old, [name for name in TLS13 if self.accepts("-tls1_3", "-ciphersuites", name)]

    def groups(self):
        return [name for name in GROUPS if self.accepts("-tls1_3", "-groups", name)]


def is_strong(suite):
    return suite.startswith(("ECDHE-", "DHE-")) and ("-GCM-" in suite or "CHACHA20-POLY1305" in suite)


def control(out):
    """Old versions and weak suites that the scan finds at a server that has them."""
    certificate = out / "rsa.crt"
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=control", "-keyout", str(out / "rsa.key"), "-out", str(certificate))
    server = subprocess.Popen(
        ["openssl", "s_server", "-accept", "127.0.0.1:4430", "-cert", str(certificate), "-key", str(out / "rsa.key"), "-cipher", WEAKEST, "-quiet"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        target = Target("127.0.0.1", 4430, "control")
        for _ in range(100):
            if target.accepts():
                break
            time.sleep(0.1)
        return target.versions(), [suite for suite in target.suites()[0] if not is_strong(suite)]
    finally:
        server.kill()
        server.wait()


def main():
    address, port, name, out, results = sys.argv[1:]
    out, lines = pathlib.Path(out), []

    def report(case, ok, detail):
        lines.append({"suite": "tls", "case": case, "result": "passed" if ok else "failed", "detail": detail})

    versions, weak = control(out)
    report("the scan finds old versions and weak suites", len(versions) == 4 and len(weak) > 10, f"{', '.join(versions)}; {len(weak)} weak suites")

    target = Target(address, port, name)
    versions = target.versions()
    report("only TLS 1.2 and 1.3", versions == ["TLS 1.2", "TLS 1.3"], ", ".join(versions))
    old, new = target.suites()
    report("only strong suites of TLS 1.2", bool(old) and all(map(is_strong, old)), ", ".join(old))
    strong = TLS13[:3]
    report("only strong suites of TLS 1.3", bool(new) and set(new) <= set(strong), ", ".join(new))
    groups = target.groups()
    report("only strong groups", bool(groups) and "ffdhe2048" not in groups, ", ".join(groups))
    for protocol in ("h2", "http/1.1"):
        done = target.handshake("-alpn", protocol)
        report(f"ALPN {protocol}", bool(done) and f"ALPN protocol: {protocol}" in done[2], "")
    report("ALPN of another protocol is refused", target.handshake("-alpn", "smtp") is None, "RFC 7301: no_application_protocol")
    done = target.handshake("-tls1_2", text="R\n")
    says = "" if done is None else done[2]
    report("no renegotiation by the client", "RENEGOTIATING" not in says or "error" in says or "no renegotiation" in says, "")
    report("no compression", done is not None and "Compression: NONE" in done[2], "")
    report("secure renegotiation is announced", done is not None and "Secure Renegotiation IS supported" in done[2], "")
    done = target.handshake("-tls1_2")
    report("extended master secret", done is not None and "Extended master secret: yes" in done[2], "")
    (out / "tls.json").write_text(json.dumps({"versions": versions, "tls12": old, "tls13": new, "groups": groups}, indent=1))
    with open(results, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


main()
