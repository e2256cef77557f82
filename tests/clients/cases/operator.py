"""An operator made with controller-runtime, in two Pods, from its installation to its removal; the program is `tests/clients/operator`."""
import json
import pathlib
import shutil

from .bed import HERE, Server, expect, run, until
from .kubectl import has

CACHE = """
apiVersion: clients.example.com/v1
kind: Cache
metadata: {{name: {name}}}
spec: {{replicas: {replicas}}}
"""


def image(bed, server):
    """Imports an image with nothing but the operator and a folder for temporary files. Where no OCI runtime works, it is a process of the machine."""
    program = bed.programs / "operator"
    # crun does not support machines with both versions of control groups.
    is_unified = pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
    if not (shutil.which("runc") or shutil.which("crun") and is_unified):
        return "host", program
    root = server.home / "image"
    (root / "tmp").mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(program, root / "operator")
    run([bed.waypost, "image", "import", root, "cache-operator:v1", "--data-dir", server.data])
    return "cache-operator:v1", "/operator"


class Life:
    """What the cases do to the operator and its objects."""

    def __init__(self, bed, server):
        self.bed, self.server, self.kubectl = bed, server, bed.kubectl(server)

    def get(self, line):
        return self.kubectl(f"get {line}").out.strip()

    def leader(self):
        return self.kubectl("-n cache-system get lease cache-operator -o jsonpath={.spec.holderIdentity}", code=None).out.split("_")[0]

    def ready(self, name):
        has(self.kubectl(f"wait cache/{name} --for=condition=Ready --timeout=90s"), "condition met")

    def install(self, notes):
        kind, command = image(self.bed, self.server)
        config = HERE / "operator/config"
        self.kubectl("apply --server-side -f -", (config / "definition.yaml").read_text())
        self.kubectl("wait crd/caches.clients.example.com --for=condition=Established --timeout=10s")
        self.kubectl("apply -f -", (config / "operator.yaml").read_text().replace("IMAGE", kind).replace("COMMAND", str(command)))
        has(self.kubectl("-n cache-system rollout status deployment/cache-operator --timeout=120s"), "successfully rolled out")
        until(self.leader, "a leader")
        notes.append(f"image {kind}")

    def reconcile(self, _):
        has(self.kubectl("apply -f -", CACHE.format(name="one", replicas=2)), "created")
        self.ready("one")
        cache = json.loads(self.get("cache one -o json"))
        expect(cache["metadata"]["finalizers"] == ["clients.example.com/record"], str(cache))
        expect(cache["status"]["readyReplicas"] == 2 and cache["status"]["observedGeneration"] == cache["metadata"]["generation"], str(cache))
        expect(self.get("configmap -n cache-registry default.one -o name") == "configmap/default.one", "no record")
        has(self.kubectl("get caches"), "REPLICAS", "READY")
        has(self.kubectl("describe cache one"), "Adopted")
        # What somebody else changes is changed back.
        self.kubectl("scale deployment one --replicas=4")
        until(lambda: self.get("deployment one -o jsonpath={.spec.replicas}") == "2", "the Deployment is corrected")

    def mutating(self, _):
        cache = json.loads(self.get("cache one -o json"))["spec"]
        expect(cache == {"replicas": 2, "image": "host", "tier": "standard"}, str(cache))

    def validating(self, _):
        has(self.kubectl("apply -f -", CACHE.format(name="large", replicas=6), code=1), "spec.replicas", "must be at most 5")
        has(self.kubectl("apply -f -", CACHE.format(name="small", replicas=-1), code=1), "spec.replicas", "greater than or equal to 0")
        has(self.kubectl("""patch cache one --type=merge -p '{"spec":{"tier":"premium"}}'"""), "Warning: spec.tier: a changed tier restarts all Pods")
        self.kubectl("label cache one protected=true")
        has(self.kubectl("delete cache one", code=1), "cache one is protected")
        self.kubectl("label cache one protected-")
        self.ready("one")

    def conversion(self, _):
        old = json.loads(self.get("caches.v1alpha1.clients.example.com one -o json"))
        expect(old["apiVersion"] == "clients.example.com/v1alpha1" and old["spec"] == {"count": 2, "image": "host"}, str(old))
        expect(old["metadata"]["annotations"]["clients.example.com/tier"] == "premium", str(old))
        text = CACHE.format(name="old", replicas=1).replace("/v1\n", "/v1alpha1\n").replace("replicas", "count")
        has(self.kubectl("apply -f -", text), "created")
        expect(json.loads(self.get("caches.v1.clients.example.com old -o json"))["spec"]["replicas"] == 1, "not converted to the stored version")
        self.ready("old")
        has(self.kubectl("apply -f -", text), "unchanged")

    def restart(self, _):
        leader = self.leader()
        self.server.restart()
        has(self.kubectl("apply -f -", CACHE.format(name="two", replicas=1)), "created")
        self.ready("two")
        self.kubectl("""patch cache one --type=merge -p '{"spec":{"replicas":1}}'""")
        until(lambda: self.get("deployment one -o jsonpath={.status.readyReplicas}") == "1", "the change after the restart")
        expect(self.leader() == leader, "another leader after a restart of the server")
        starts = self.get("pods -n cache-system -o jsonpath={.items[*].status.containerStatuses[*].restartCount}")
        expect(set(starts.split()) == {"0"}, f"the operator was restarted: {starts}")

    def election(self, notes):
        before = self.leader()
        self.kubectl(f"-n cache-system delete pod {before} --grace-period=0 --force")
        until(lambda: self.leader() not in ("", before), "another leader")
        self.kubectl("-n cache-system rollout status deployment/cache-operator --timeout=90s")
        self.kubectl("""patch cache two --type=merge -p '{"spec":{"replicas":2}}'""")
        until(lambda: self.get("cache two -o jsonpath={.status.readyReplicas}") == "2", "the new leader reconciles")
        notes.append(f"{before} to {self.leader()}")

    def finalizer(self, _):
        self.kubectl("-n cache-system scale deployment cache-operator --replicas=0")
        until(lambda: self.get("pods -n cache-system -o name") == "", "no operator")
        # Without the operator: the webhook fails closed, and so does the deletion.
        has(self.kubectl("delete cache one --wait=false", code=1), "failed calling webhook")
        self.kubectl("-n cache-system scale deployment cache-operator --replicas=1")
        self.kubectl("-n cache-system rollout status deployment/cache-operator --timeout=90s")
        has(self.kubectl("delete caches --all --timeout=90s"), "deleted")
        expect(self.get("configmaps -n cache-registry -o name").count("default.") == 0, "records were left")
        until(lambda: self.get("deployments,services -l '!component' -o name") in ("", "service/kubernetes"), "owned objects are deleted")

    def remove(self, _):
        config = HERE / "operator/config"
        self.kubectl("delete --ignore-not-found --timeout=90s -f -", (config / "operator.yaml").read_text())
        self.kubectl("delete --timeout=60s -f -", (config / "definition.yaml").read_text())
        # First with the discovery documents that kubectl keeps in files, then with those of now.
        has(self.kubectl("get caches", code=1), "the server could not find the requested resource")
        expect("caches" not in self.kubectl("api-resources -o name").out, "the definition's resource is still discovered")
        has(self.kubectl("get caches", code=1), "doesn't have a resource type")


CASES = ["install", "reconcile", "mutating", "validating", "conversion", "restart", "election", "finalizer", "remove"]


def cases(bed):
    if not (bed.programs / "operator").exists():
        bed.rows.append(("operator", "-", "not built", 0, ""))
        return
    version = next(line.split()[2] for line in run(["go", "version", "-m", bed.programs / "operator"]).out.splitlines() if "\tsigs.k8s.io/controller-runtime\t" in line)
    with Server(bed, "up", "operator") as server:
        life = Life(bed, server)
        for name in CASES:
            with bed.case(f"controller-runtime {version}", name) as notes:
                getattr(life, name)(notes)
