"""kustomize: a base with an overlay, applied, changed and pruned."""
import shutil

from .bed import HERE, Server, expect, run
from .kubectl import has


def cases(bed):
    with Server(bed, "up", "kustomize") as server:
        kubectl = bed.kubectl(server)
        folder = server.home / "kustomize"
        shutil.copytree(HERE / "kustomize", folder)
        overlay = folder / "overlay"
        program = bed.programs / "kustomize"
        version = run([program, "version"]).out.strip()

        def build():
            return run([program, "build", overlay]).out

        with bed.case(f"kustomize {version}", "build and apply"):
            # The definition and an object of it: kubectl looks kinds up before it applies the first object.
            has(kubectl("apply -f -", build(), code=1), "ensure CRDs are installed first", "deployment.apps/staging-web created")
            kubectl("wait crd/reports.kustomize.example.com --for=condition=Established --timeout=10s")
            has(kubectl("apply -f -", build()), "report.kustomize.example.com/staging-daily created", "deployment.apps/staging-web unchanged")
            kubectl("-n staging rollout status deployment/staging-web --timeout=90s")
            expect(kubectl("-n staging get reports -o jsonpath={.items[0].spec.host}").out == "b.example.com", "not patched")
        with bed.case(f"kustomize {version}", "change, server-side"):
            settings = (overlay / "kustomization.yaml").read_text()
            (overlay / "kustomization.yaml").write_text(settings.replace("color=blue", "color=green"))
            has(kubectl("diff -f -", build(), code=1), "+  color: green")
            has(kubectl("apply --server-side --force-conflicts -f -", build()), "serverside-applied")
            kubectl("-n staging rollout status deployment/staging-web --timeout=90s")
            name = kubectl("-n staging get pods -l environment=staging --field-selector status.phase=Running -o name").out.split()[0]
            has(kubectl(f"-n staging exec {name} -- printenv color"), "green")
            maps = kubectl("-n staging get configmaps -l environment=staging -o name").out.split()
            expect(len(maps) == 2, f"generated ConfigMaps: {maps}")
        with bed.case("kubectl apply -k", "apply, delete"):
            # The first one writes the annotation of client-side apply, which server-side apply left as it was.
            has(kubectl(f"apply -k {overlay}"), "deployment.apps/staging-web configured")
            has(kubectl(f"apply -k {overlay}"), "deployment.apps/staging-web unchanged", "report.kustomize.example.com/staging-daily unchanged")
            # The report may go with its definition before kubectl deletes it.
            has(kubectl(f"delete -k {overlay} --ignore-not-found --timeout=90s"), "deleted")
            has(kubectl("get namespace staging", code=1), "not found")
