"""Client libraries of other languages whose tests are part of the repository: Python's `kubernetes` and kube-rs."""
import os
import sys

from .bed import HERE, Server, expect, run


def cases(bed):
    with Server(bed, "server", "python") as server:
        folder = HERE.parent / "python"
        version = run([sys.executable, "-c", "import kubernetes; print(kubernetes.__version__)"]).out.strip()
        for name in ["crud", "patches", "watches", "refusals", "custom"]:
            with bed.case(f"Python kubernetes {version}", name) as notes:
                env = {**os.environ, "WAYPOST_KUBECONFIG": str(server.kubeconfig), "NO_PROXY": "*"}
                place = HERE / "python" if name == "custom" else folder
                command = [sys.executable, "-B", "-s", "-W", "ignore", "-m", "unittest", "--verbose", name]
                done = run(command, env={**env, "PYTHONPATH": str(folder)}, cwd=place)
                passed = sum(line.endswith(" ... ok") for line in done.err.splitlines())
                expect(passed > 0, "no test ran")
                notes.append(f"{passed} tests")
