"""Runs cases of `scripts/clients` and prints the matrix. Started by it on a machine of its own (namespaces)."""
import argparse
import importlib
import pathlib
import shutil
import sys
import tempfile

from cases.bed import Bed

FAMILIES = ["kubectl", "informers", "operator", "kopf", "helm", "kustomize", "libraries", "bundles"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waypost", type=pathlib.Path, required=True)
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--kopf", type=pathlib.Path)
    parser.add_argument("--peers", type=pathlib.Path)
    parser.add_argument("--record", action="store_true", help="record the answers of kube-apiserver to the objects of bundles")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for data directories and logs instead of a temporary one")
    parser.add_argument("families", nargs="*", metavar="family", help=f"one of {', '.join(FAMILIES)}; default: all")
    arguments = parser.parse_args()
    if unknown := set(arguments.families) - set(FAMILIES):
        parser.error(f"unknown: {', '.join(unknown)}")
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="clients", dir=arguments.keep))
    scratch.chmod(0o755)
    bed = Bed(arguments.waypost, arguments.programs, scratch)
    bed.kopf, bed.peers = arguments.kopf, arguments.peers
    if arguments.record:
        importlib.import_module("cases.bundles").record(bed)
        return 0
    for family in arguments.families or FAMILIES:
        importlib.import_module(f"cases.{family}").cases(bed)
    matrix(bed.rows)
    if arguments.keep is None:
        shutil.rmtree(scratch, ignore_errors=True)
    return int(any(outcome != "ok" for _, _, outcome, _, _ in bed.rows))


def matrix(rows):
    """Programs with the number of cases that passed, and the names of the others."""
    print("\n| program | passed | other |\n|---|---|---|")
    for program in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == program]
        other = ", ".join(f"{name}: {outcome}" for _, name, outcome, _, _ in own if outcome != "ok")
        print(f"| {program} | {sum(row[2] == 'ok' for row in own)}/{len(own)} | {other} |")


if __name__ == "__main__":
    sys.exit(main())
