#!/usr/bin/env python3
"""Prints the objects of the suites as JSON: a Gateway, its routes, and the Services behind it.

    tests/peers/gateway-suites/objects.py ADDRESS CERTIFICATE KEY

Ports: 80 and 443 lead to the HTTP server, for gRPC to the interop server; 81 and 444 lead to a WebSocket server each. Routes have no hostnames: clients
of suites send addresses.
"""

import json
import pathlib
import sys

NODE = "192.0.2.10"
GROUP = "gateway.networking.k8s.io"


def service(name, port, protocol=None):
    spec = {"name": "main", "port": 80, "targetPort": port, **({"appProtocol": protocol} if protocol else {})}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [spec]}}
    labels = {"kubernetes.io/service-name": name}
    yield {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name, "labels": labels}, "addressType": "IPv4",
        "endpoints": [{"addresses": [NODE], "conditions": {"ready": True}}], "ports": [{"name": "main", "port": port}],
    }


def route(kind, name, listeners, rules):
    parents = [{"name": "suites", "sectionName": listener} for listener in listeners]
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": {"parentRefs": parents, "rules": rules}}


def main():
    address, certificate, key = sys.argv[1:]
    secret = {"tls.crt": pathlib.Path(certificate).read_text(), "tls.key": pathlib.Path(key).read_text()}
    tls = {"certificateRefs": [{"name": "web"}]}
    listeners = [
        {"name": "http", "port": 80, "protocol": "HTTP"}, {"name": "https", "port": 443, "protocol": "HTTPS", "tls": tls},
        {"name": "ws", "port": 81, "protocol": "HTTP"}, {"name": "wss", "port": 444, "protocol": "HTTPS", "tls": tls},
    ]
    to = lambda name: [{"backendRefs": [{"name": name, "port": 80}]}]  # noqa: E731
    names = ("grpc.testing.TestService", "grpc.testing.UnimplementedService", "xds.service.orca.v3.OpenRcaService")
    calls = [{"matches": [{"method": {"service": name}} for name in names], **to("calls")[0]}]
    items = [
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "web"}, "stringData": secret},
        *service("web", 8080), *service("calls", 10000, "kubernetes.io/h2c"), *service("sockets", 81, "kubernetes.io/ws"),
        *service("sockets-tls", 444, "kubernetes.io/ws"),
        {
            "apiVersion": f"{GROUP}/v1", "kind": "Gateway", "metadata": {"name": "suites"},
            "spec": {"gatewayClassName": "waypost", "listeners": listeners, "addresses": [{"type": "IPAddress", "value": address}]},
        },
        route("HTTPRoute", "web", ["http", "https"], to("web")), route("HTTPRoute", "sockets", ["ws"], to("sockets")),
        route("HTTPRoute", "sockets-tls", ["wss"], to("sockets-tls")),
        route("GRPCRoute", "calls", ["http", "https"], calls),
    ]
    print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1))


main()
