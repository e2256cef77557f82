"""Asks two servers the same questions and prints where they differ.

usage: beside_coredns.py REPLAY OBJECTS CASES OURS:PORT COREDNS:PORT SEED

Questions: all recorded ones that are names, and names put together at random from everything that the objects are called. What is
compared: code, authority bit and records, as the replay program reads them; order and letter case of records do not matter.
"""
import importlib.machinery
import importlib.util
import ipaddress
import json
import random
import sys

TYPES = ["A", "AAAA", "SRV", "PTR", "CNAME", "TXT", "NS", "SOA", "MX", "ANY", "HTTPS"]
RANDOM = 3000


def words(objects):
    """The labels that names are made of."""
    out = {"svc", "pod", "dns", "ns", "dns-version", "tcp", "_tcp", "_udp", "_sctp", "udp", "_", "nope", "*", "any", "cluster", "x"}
    addresses = set()
    for item in objects:
        out.add(item["metadata"]["name"])
        spec = item.get("spec", {})
        for port in spec.get("ports", []) + (item.get("ports") or []):
            out.update({"_" + port.get("name", ""), port.get("name", "") or "nope"})
        addresses.update(spec.get("clusterIPs", []))
        for endpoint in item.get("endpoints") or []:
            out.add(endpoint.get("hostname") or "nope")
            if item.get("addressType") != "FQDN":
                addresses.update(endpoint["addresses"])
    addresses.discard("None")
    dashed = {address.replace(".", "-").replace(":", "-") for address in addresses}
    return sorted(out | dashed), sorted(addresses)


def documented(objects):
    """Names about which ours differs on purpose (docs/dns.md): those of slices that no Service has, or that hold names."""
    services = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in objects if item["kind"] == "Service"}
    out = set()
    for item in objects:
        if item["kind"] == "EndpointSlice":
            owner = item["metadata"]["namespace"], item["metadata"].get("labels", {}).get("kubernetes.io/service-name")
            if item["addressType"] == "FQDN":
                out.add("%s.%s.svc.cluster.local." % (owner[1], owner[0]))
            elif owner not in services:
                addresses = [address for endpoint in item["endpoints"] for address in endpoint["addresses"]]
                out.update(ipaddress.ip_address(address).reverse_pointer + "." for address in addresses)
    return out


def is_ours(name):
    """Others differ when there is nobody to ask: REFUSED here, SERVFAIL there."""
    return any(("." + name.lower()).endswith(zone) for zone in (".cluster.local.", ".in-addr.arpa.", ".ip6.arpa."))


def questions(objects, cases, rng):
    for case in cases:
        if case.get("profile", "base") == "base" and "qname" in case and not case.get("flags") and case.get("qclass", "IN") == "IN":
            yield case["qname"], case["qtype"]
    labels, addresses = words(objects)
    services = [item for item in objects if item["kind"] == "Service"]
    for _ in range(RANDOM):
        service = rng.choice(services)["metadata"]
        ends = [[service["name"], service["namespace"], "svc"], [rng.choice(labels), service["namespace"], "svc"],
                [service["name"], rng.choice(labels), "svc"], [rng.choice(labels), service["namespace"], "pod"], [rng.choice(labels)]]
        name = [rng.choice(labels) for _ in range(rng.choice([0, 0, 1, 1, 2, 2, 3]))] + rng.choice(ends)
        yield ".".join(name) + ".cluster.local.", rng.choice(TYPES)
    for address in addresses:
        yield ipaddress.ip_address(address).reverse_pointer + ".", rng.choice(["PTR", "PTR", "PTR", "A"])


def ask(replay, server, name, kind):
    message, question = replay.build_query({"qname": name, "qtype": kind}, 4711)
    got = replay.tcp_ask(server, [len(message).to_bytes(2, "big") + message], 3, 1)
    if not got:
        return "no reply"
    said = replay.decode(got[0])
    sections = {key: sorted(" ".join(map(str, replay.fold(record)[0])) for record in said[key]) for key in ("answer", "authority", "additional")}
    return {"rcode": said["rcode"], "aa": said["flags"]["aa"], **sections}


def main():
    path, objects, cases, ours, coredns, seed = sys.argv[1:]
    loader = importlib.machinery.SourceFileLoader("replay", path)
    replay = importlib.util.module_from_spec(importlib.util.spec_from_loader("replay", loader))
    loader.exec_module(replay)
    objects, cases = json.load(open(objects))["items"], json.load(open(cases))["cases"]
    asked = differ = 0
    known = documented(objects)
    for name, kind in questions(objects, cases, random.Random(int(seed))):
        try:
            replay.encode_name(name)
        except Exception:
            continue
        if name.lower() in known or not is_ours(name):
            continue
        asked += 1
        here, there = ask(replay, replay.address(ours), name, kind), ask(replay, replay.address(coredns), name, kind)
        if here != there:
            differ += 1
            print("%s %s\n  ours    %s\n  coredns %s" % (name, kind, json.dumps(here), json.dumps(there)))
    print("%d asked, %d differ" % (asked, differ))


main()
