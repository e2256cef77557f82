#!/usr/bin/env python3
"""Runs the cases of gRPC's interop client that need no OAuth, without and with TLS.

    tests/peers/gateway-suites/grpc.py CLIENT ADDRESS SERVER CA RESULTS

A case that fails without the Gateway, too, is skipped: client and server do not agree about it.
"""

import json
import subprocess
import sys

CASES = [
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream", "timeout_on_sleeping_server",
    "cancel_after_begin", "cancel_after_first_response", "status_code_and_message", "special_status_message", "custom_metadata",
    "unimplemented_method", "unimplemented_service", "pick_first_unary", "orca_per_rpc", "orca_oob", "rpc_soak", "channel_soak",
]
SECONDS = 60
# Reports of load reach the client's balancer only; this one of the suite hands them to the case.
ORCA = '-service_config_json={"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}'


def run(client, options, case):
    """What is wrong, or nothing."""
    command = [client, f"-test_case={case}", *options]
    if case.startswith("orca_"):
        command.append(ORCA)
    command += ["-soak_per_iteration_max_acceptable_latency_ms=10000", "-soak_overall_timeout_seconds=50"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"not finished after {SECONDS} s"
    said = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else said[-1] if said else "no message"


def main():
    client, address, server, ca, results = sys.argv[1:]
    direct = [f"-server_host={server}", "-server_port=10000"]
    ways = {
        "h2c": [f"-server_host={address}", "-server_port=80"],
        "tls": [
            f"-server_host={address}", "-server_port=443", "-use_tls", "-use_test_ca", f"-ca_file={ca}", "-server_host_override=grpc.example",
        ],
    }
    with open(results, "a", encoding="utf-8") as out:
        for case in CASES:
            control = run(client, direct, case)
            for way, options in ways.items():
                wrong = run(client, options, case)
                result = "passed" if wrong is None else "failed" if control is None else "skipped"
                detail = f"without the Gateway: {control}" if result == "skipped" else wrong or ""
                out.write(json.dumps({"suite": f"grpc, {way}", "case": case, "result": result, "detail": detail}) + "\n")


main()
