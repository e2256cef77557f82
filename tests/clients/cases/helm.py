"""Helm 3 and Helm 4: one chart from installation to uninstallation."""
import json
import os

from .bed import HERE, Server, expect, run
from .kubectl import has

# How each says that it waits for objects to be ready, and that a failed change is undone.
PROGRAMS = {"helm3": {"atomic": "--atomic"}, "helm4": {"atomic": "--rollback-on-failure"}}


class Release:
    """A release of the chart in a namespace of its own."""

    def __init__(self, bed, server, program, has_jobs):
        self.program, self.server, self.bed = bed.programs / program, server, bed
        self.name = self.namespace = program + ("-jobs" if has_jobs else "")
        self.values = ["--set", "jobs=true"] if has_jobs else []
        self.words = PROGRAMS[program]
        self.kubectl = bed.kubectl(server)
        home = server.home / self.name
        self.env = {**os.environ, "HELM_CACHE_HOME": str(home / "cache"), "HELM_CONFIG_HOME": str(home / "config"), "HELM_DATA_HOME": str(home / "data")}

    def helm(self, *words, code=0):
        command = [self.program, *words, "--kubeconfig", self.server.kubeconfig, "--namespace", self.namespace]
        return run(command, code=code, env=self.env)

    def change(self, verb, *words, code=0):
        return self.helm(verb, self.name, HERE / "chart", "--wait", "--timeout", "90s", *self.values, *words, code=code)

    def get(self, line):
        return self.kubectl(f"-n {self.namespace} {line}").out.strip()

    def page(self):
        return self.get(f"get configmap {self.name} -o 'jsonpath={{.data.index\\.html}}'")


def lint(release):
    has(release.helm("lint", HERE / "chart"), "0 chart(s) failed")
    has(release.helm("template", release.name, HERE / "chart", "--include-crds"), "kind: Deployment", "kind: CustomResourceDefinition", "helm.sh/hook: test")


def install(release):
    has(release.change("install", "--create-namespace"), "STATUS: deployed", "serves the page first")
    expect(release.get(f"get deployment {release.name} -o jsonpath={{.status.readyReplicas}}") == "2", "--wait returned too early")
    expect(release.get("get sites.charts.example.com -o jsonpath={.items[*].spec.page}") == "empty", "the custom resource has no default")
    expect(release.get("get pods,ingress -o name").count("ingress") == 1, "no Ingress")
    expect("pre-install" not in release.get("get pods -o name"), "the hook was not deleted")
    has(release.change("install", code=1), "a name that is still in use")


def test(release):
    has(release.helm("test", release.name, "--logs"), "Succeeded", "page: first")


def upgrade(release):
    has(release.change("upgrade", "--set", "page=second,replicas=3"), "STATUS: deployed", "REVISION: 2")
    expect(release.page() == "second" and release.get(f"get deployment {release.name} -o jsonpath={{.status.readyReplicas}}") == "3", "not upgraded")
    has(release.helm("get", "values", release.name), "page: second")


def hooks(release):
    """Those that ran succeeded and are gone, one that fails stops an upgrade before it changes anything, and the next upgrade replaces it."""
    kind = "job" if release.values else "pod"
    phases = {hook["name"]: hook["last_run"]["phase"] for hook in json.loads(release.helm("status", release.name, "-o", "json").out)["hooks"]}
    expect(phases.get(f"{release.name}-pre-install") == "Succeeded", str(phases))
    hook = f"{release.name}-pre-install"
    release.kubectl(f"-n {release.namespace} get {kind} {hook}", code=1)
    has(release.change("upgrade", "--set", "hookStatus=3,page=never", code=1), "pre-upgrade hooks failed")
    expect(release.page() == "second", "an upgrade went on after its hook failed")
    path = "{.status.conditions[?(@.type=='Failed')].reason}" if release.values else "{.status.phase}"
    left = release.kubectl(["-n", release.namespace, "get", kind, hook, "-o", f"jsonpath={path}"]).out
    expect(left == ("BackoffLimitExceeded" if release.values else "Failed"), left)
    has(release.helm("status", release.name), "STATUS: failed")
    has(release.change("upgrade", "--set", "page=second,replicas=3"), "STATUS: deployed")
    release.kubectl(f"-n {release.namespace} get {kind} {hook}", code=1)


def failed_upgrade(release):
    words = ["--set", "image=host,port=70000", release.words["atomic"]]
    expect(release.change("upgrade", *words, code=None).code != 0, "an invalid port was accepted")
    expect(release.page() == "second", "the failed upgrade was not undone")
    revisions = json.loads(release.helm("history", release.name, "-o", "json").out)
    expect(revisions[-1]["status"] == "deployed", str(revisions))


def rollback(release):
    has(release.helm("rollback", release.name, "1", "--wait", "--timeout", "90s"), "Rollback was a success")
    expect(release.page() == "first" and release.get(f"get deployment {release.name} -o jsonpath={{.status.readyReplicas}}") == "2", "not rolled back")


def status(release):
    has(release.helm("list"), release.name, "deployed")
    has(release.helm("status", release.name), "STATUS: deployed")
    has(release.helm("get", "manifest", release.name), "kind: Ingress")
    expect(len(json.loads(release.helm("history", release.name, "-o", "json").out)) >= 3, "revisions are missing")


def restart(release):
    release.server.restart()
    has(release.helm("status", release.name), "STATUS: deployed")
    has(release.change("upgrade", "--set", "page=third"), "STATUS: deployed")
    expect(release.page() == "third", "not upgraded after a restart")


def uninstall(release):
    has(release.helm("uninstall", release.name, "--wait", "--timeout", "90s"), "uninstalled")
    kinds = "deployments,replicasets,services,ingresses,roles,rolebindings,configmaps,sites.charts.example.com"
    left = release.get(f"get {kinds} -l app.kubernetes.io/instance={release.name} -o name")
    expect(left == "", f"left: {left}")
    expect("serviceaccount/default" == release.get("get serviceaccounts -o name"), "the ServiceAccount was left")
    release.kubectl("get crd sites.charts.example.com")  # Helm never deletes definitions.
    has(release.helm("status", release.name, code=1), "not found")


CASES = [lint, install, test, upgrade, hooks, failed_upgrade, rollback, status, restart, uninstall]


def cases(bed):
    with Server(bed, "up", "helm") as server:
        has_jobs = "jobs" in bed.kubectl(server)("api-resources --api-group=batch -o name").out
        for program in PROGRAMS:
            if not (bed.programs / program).exists():
                bed.rows.append((program, "-", "not built", 0, ""))
                continue
            version = run([bed.programs / program, "version", "--template", "{{.Version}}"]).out.strip()
            for jobs in [False, True] if has_jobs else [False]:
                release = Release(bed, server, program, jobs)
                for function in CASES:
                    with bed.case(f"helm {version}" + (" (Jobs)" if jobs else ""), function.__name__.replace("_", "-")):
                        function(release)
