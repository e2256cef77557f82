"""client-go's informers and leader election over kills of the server; the program is `tests/clients/informers`."""
import os
import subprocess

from .bed import Failed, run

MINORS = ["1.34", "1.35", "1.36"]


def cases(bed):
    for minor in MINORS:
        program = bed.programs / f"informers-{minor}"
        if not program.exists():
            bed.rows.append((f"client-go 0{minor[1:]}", "-", "not built", 0, ""))
            continue
        version = next(line.split()[2] for line in run(["go", "version", "-m", program]).out.splitlines() if "\tk8s.io/client-go\t" in line)
        for lists in ["true", "false"]:
            home = bed.scratch / f"informers-{minor}-{lists}"
            home.mkdir()
            command = [program, "-kubeconfig", home / "data/kubeconfig", "--", bed.waypost, "server", "--data-dir", home / "data", "--listen", "127.0.0.1:17443"]
            env = {**os.environ, "KUBE_FEATURE_WatchListClient": lists}
            log = open(home / "log", "ab")
            process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log, env=env, text=True)
            row = f"client-go {version}, " + ("streamed lists" if lists == "true" else "lists")
            ended = 0
            for line in process.stdout:
                outcome, name, figures = line.rstrip("\n").split("\t", 2)
                ended += 1
                with bed.case(row, name) as notes:
                    notes.append(figures)
                    if outcome != "ok":
                        raise Failed(figures)
            if process.wait() != 0 and not ended:
                with bed.case(row, "start"):
                    raise Failed((home / "log").read_text()[-1500:])
