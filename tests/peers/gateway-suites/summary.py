#!/usr/bin/env python3
"""Prints what the suites found, and ends with 1 when a case failed, or no case of a suite passed.

    tests/peers/gateway-suites/summary.py OUT SUITES

A websocket case passes if its result is good. One that fails without the Gateway, too, is skipped: client and server do not agree about it.
"""

import collections
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

GOOD = {"OK", "NON-STRICT", "INFORMATIONAL"}


def h2spec(out):
    for path in sorted(out.glob("h2spec-*.xml")):
        way = path.stem.removeprefix("h2spec-").replace("-S", ", strict")
        for case in ElementTree.parse(path).iter("testcase"):
            name = f"{case.get('package')}: {case.get('classname')}"
            bad = case.find("failure") if case.find("failure") is not None else case.find("error")
            skipped = case.find("skipped") is not None
            detail = " ".join((bad.text or "").split()) if bad is not None else ""
            yield {"suite": f"h2spec, {way}", "case": name, "result": "failed" if bad is not None else "skipped" if skipped else "passed", "detail": detail}


def websocket(out):
    index = out / "websocket/index.json"
    if not index.exists():
        return
    agents = json.loads(index.read_text())
    direct = agents.get("direct", {})
    for agent in ("ws", "wss"):
        for case, got in agents.get(agent, {}).items():
            want = direct.get(case, {})
            is_good = lambda one: {one.get("behavior"), one.get("behaviorClose")} <= GOOD  # noqa: E731
            result = "passed" if is_good(got) else "failed" if is_good(want) else "skipped"
            detail = f"{got['behavior']}, {got['behaviorClose']}; without the Gateway {want.get('behavior')}, {want.get('behaviorClose')}"
            yield {"suite": f"websocket, {agent}", "case": case, "result": result, "detail": "" if result == "passed" else detail}


def main():
    out, suites = pathlib.Path(sys.argv[1]), sys.argv[2].split(",")
    results = [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]
    results += [*h2spec(out), *websocket(out)]
    (out / "report.json").write_text(json.dumps(results, indent=1))
    counts = collections.defaultdict(collections.Counter)
    for line in results:
        counts[line["suite"]][line["result"]] += 1
    print("| suite | passed | failed | skipped |\n|---|---|---|---|")
    for suite, count in counts.items():
        print(f"| {suite} | {count['passed']} | {count['failed']} | {count['skipped']} |")
    for line in results:
        if line["result"] != "passed":
            print(f"{line['suite']}: {line['case']}: {line['result']}: {line['detail'][:300]}")
    missing = [suite for suite in suites if not any(known.split(",")[0] == suite and count["passed"] for known, count in counts.items())]
    for suite in missing:
        print(f"{suite}: no case passed")
    sys.exit(1 if missing or any(line["result"] == "failed" for line in results) else 0)


main()
