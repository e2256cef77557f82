"""Forges frames, or listens for them: `forge.py listen`, `forge.py send IP IP6 VICTIM VICTIM6 GATEWAY`.

Every frame carries its name in brackets and goes to everybody on the bridge. What begins with `ok` is honest: of the same make as what is forged, so
that a listener that hears the honest ones would hear the others, too. `[ok-end]` is sent last.
"""

import ipaddress
import re
import socket
import struct
import sys

EVERYBODY = b"\xff" * 6


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def v4(source, name):
    text = b"[%s]" % name
    udp = struct.pack("!HHHH", 9, 9, 8 + len(text), 0) + text
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, ip(source), ip("255.255.255.255"))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + udp


def v6(source, protocol, body, before=b""):
    to = ip("ff02::1")
    if protocol == 58:
        pseudo = ip(source) + to + struct.pack("!II", len(body), 58)
        body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    first = 60 if before else protocol
    return struct.pack("!IHBB", 6 << 28, len(before + body), first, 255) + ip(source) + to + before + body


def plain(source, name):
    text = b"[%s]" % name
    return v6(source, 17, struct.pack("!HHHH", 9, 9, 8 + len(text), 0) + text)


def neighbour(kind, source, target, name, before=b""):
    # An option of a kind that nobody knows has the name.
    option = (bytes([200, 3]) + b"[%s]" % name).ljust(24, b" ")
    body = struct.pack("!BBHI", kind, 0, 0, 0x20000000) + (ip(target) if target else b"\0" * 8) + option
    return v6(source, 58, body, before)


def arp(hardware, source, name):
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2) + hardware + ip(source) + hardware + ip(source)
    return body + b"[%s]" % name


def ip(text):
    return ipaddress.ip_address(text).packed


def link_local(mac):
    return str(ipaddress.ip_address(b"\xfe\x80" + b"\0" * 6 + bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]))


def send(own, own6, victim, victim6, gateway):
    line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    line.bind(("eth0", 0))
    mac = line.getsockname()[4]
    other = bytes([0x0A, 0x58, 1, 2, 3, 4])
    link, options = link_local(mac), bytes([58, 0, 1, 4, 0, 0, 0, 0])
    frames = [
        (mac, 0x0800, v4(victim, b"v4")),
        (mac, 0x0800, v4("8.8.8.8", b"v4-world")),
        (mac, 0x0800, v4(gateway, b"v4-gateway")),
        (mac, 0x0800, v4("0.0.0.0", b"v4-nobody")),
        (other, 0x0800, v4(own, b"mac")),
        (mac, 0x0806, arp(mac, victim, b"arp")),
        (mac, 0x0806, arp(mac, gateway, b"arp-gateway")),
        (mac, 0x0806, arp(other, own, b"arp-mac")),
        (mac, 0x86DD, plain(victim6, b"v6")),
        (mac, 0x86DD, plain("2001:db8::1", b"v6-world")),
        (mac, 0x86DD, plain("fe80::1234", b"v6-link")),
        (mac, 0x86DD, plain("::", b"v6-nobody")),
        (mac, 0x86DD, neighbour(136, own6, victim6, b"advert")),
        (mac, 0x86DD, neighbour(136, own6, victim6, b"advert-behind", options)),
        (mac, 0x86DD, neighbour(134, link, None, b"router")),
        (mac, 0x86DD, neighbour(137, link, victim6, b"redirect")),
        (mac, 0x8100, struct.pack("!HH", 0, 0x0800) + v4(victim, b"tagged")),
        (mac, 0x88B5, b"[other]"),
        (mac, 0x0800, v4(own, b"ok-v4")),
        (mac, 0x0806, arp(mac, own, b"ok-arp")),
        (mac, 0x86DD, plain(own6, b"ok-v6")),
        (mac, 0x86DD, plain(link, b"ok-link")),
        (mac, 0x86DD, neighbour(136, own6, own6, b"ok-advert")),
        (mac, 0x86DD, neighbour(136, own6, own6, b"ok-behind", options)),
        (mac, 0x86DD, neighbour(135, "::", link, b"ok-free")),
        (mac, 0x0800, v4(own, b"ok-end")),
    ]
    for source, kind, body in frames:
        line.send((EVERYBODY + source + struct.pack("!H", kind) + body).ljust(60, b"\0"))
    print(mac.hex(":"))


def listen():
    line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    line.bind(("eth0", 3))
    print("listening", flush=True)
    heard = set()
    while True:
        found = re.search(rb"\[([a-z0-9-]+)\]", line.recv(4096))
        if found:
            heard.add(found.group(1).decode())
        if "ok-end" in heard:
            print("heard", *sorted(heard), flush=True)
            heard = set()


listen() if sys.argv[1] == "listen" else send(*sys.argv[2:])
