"""kubectl of several minor versions: the verbs that people use, on kinds of Kubernetes and on a custom resource."""
import json
import os
import pathlib

from .bed import Server, expect, run

MINORS = ["1.32", "1.33", "1.34", "1.35", "1.36"]

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: web
        image: host
        command: [sh, -c, "echo hello from $HOSTNAME; exec sleep infinity"]
        ports: [{containerPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: backups.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: backups, singular: backup, kind: Backup, shortNames: [bk], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.copies, statusReplicasPath: .status.copies}
    additionalPrinterColumns:
    - {name: Schedule, type: string, jsonPath: .spec.schedule}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [schedule]
            properties:
              schedule: {type: string, minLength: 5, description: When backups are made.}
              copies: {type: integer, minimum: 1, default: 1}
              targets:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, path: {type: string}}}
          status: {type: object, properties: {copies: {type: integer}, phase: {type: string}}}
"""

BACKUP = """
apiVersion: GROUP/v1
kind: Backup
metadata: {name: nightly}
spec: {schedule: "0 3 * * *", targets: [{name: a, path: /a}]}
"""


def has(result, *texts):
    for text in texts:
        expect(text in result.out + result.err, f"no {text!r} in the output of {result}")


class Session:
    """One kubectl in one namespace, with a custom resource of its own."""

    def __init__(self, bed, server, minor):
        self.minor, self.server = minor, server
        self.namespace = "k" + minor.replace(".", "")
        self.group = self.namespace + ".example.com"
        self.call = bed.kubectl(server, minor)

    def __call__(self, line, text="", code=0, **options):
        return self.call(f"-n {self.namespace} {line}", text, code, **options)

    def filled(self, text):
        return text.replace("GROUP", self.group)

    def field(self, what, path):
        return self(f"get {what} -o jsonpath={{{path}}}").out


def discovery(k):
    has(k("api-resources"), "deployments", "endpointslices", "customresourcedefinitions")
    has(k("api-resources --namespaced=false --verbs=list -o name"), "nodes", "namespaces")
    has(k("api-versions"), "apps/v1", "discovery.k8s.io/v1", "v1")
    has(k("version"), f"Client Version: v{k.minor}.", "Server Version: v1.")
    has(k("cluster-info"), "Kubernetes control plane")
    has(k("get --raw /readyz"), "ok")


def create(k):
    k(f"create namespace {k.namespace}")
    has(k("create configmap settings --from-literal=a=1"), "configmap/settings created")
    has(k("create secret generic keys --from-literal=k=v"), "created")
    has(k("create serviceaccount robot"), "created")
    has(k("create role reader --verb=get,list --resource=configmaps"), "created")
    has(k("create rolebinding robot --role=reader --serviceaccount=NS:robot".replace("NS", k.namespace)), "created")
    expect(k("create token robot").out.count(".") == 2, "a token has three parts")
    has(k("create configmap settings --from-literal=a=1", code=1), "already exists")
    has(k("create deployment dry --image=host --dry-run=server -o yaml"), "uid:", "progressDeadlineSeconds: 600")
    has(k("get deployment dry", code=1), "not found")


def apply(k):
    has(k("apply -f -", DEPLOYMENT), "deployment.apps/web created", "service/web created")
    has(k("apply -f -", DEPLOYMENT), "deployment.apps/web unchanged", "service/web unchanged")
    has(k("apply -f -", DEPLOYMENT.replace("replicas: 2", "replicas: 3")), "deployment.apps/web configured")
    expect(k.field("deployment/web", ".spec.replicas") == "3", "applied")
    has(k("apply -f -", DEPLOYMENT), "configured")
    has(k("apply -f -", DEPLOYMENT.replace("replicas: 2", "replicaz: 2"), code=1), 'unknown field "spec.replicaz"')
    has(k("apply view-last-applied deployment/web"), "replicas: 2")


def server_side(k):
    text = DEPLOYMENT.replace("name: web", "name: ssa").replace("app: web", "app: ssa")
    has(k("apply --server-side -f -", text), "deployment.apps/ssa serverside-applied")
    other = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: ssa}\nspec: {replicas: 1}\n"
    has(k("apply --server-side --field-manager=other -f -", other, code=1), 'conflict with "kubectl"', ".spec.replicas")
    has(k("apply --server-side --field-manager=other --force-conflicts -f -", other), "serverside-applied")
    expect(k.field("deployment/ssa", ".spec.replicas") == "1", "forced")
    managers = json.loads(k("get deployment ssa -o json --show-managed-fields").out)["metadata"]["managedFields"]
    expect({"kubectl", "other"} <= {one["manager"] for one in managers if one["operation"] == "Apply"}, str(managers))
    k("apply --server-side --force-conflicts -f -", DEPLOYMENT)  # Takes over from client-side apply.
    has(k("delete deployment,service ssa"), "deleted")


def get(k):
    has(k("get deployments"), "NAME", "READY", "UP-TO-DATE", "AVAILABLE")
    has(k("get pods,services -o wide"), "service/web", "SELECTOR")
    has(k("get all -l app=web"), "deployment.apps/web", "replicaset.apps/web")
    has(k("get deployment web -o yaml"), "kind: Deployment")
    has(k("get deployment -o custom-columns=N:.metadata.name,R:.spec.replicas"), "web", "2")
    has(k("get services --field-selector metadata.name=web -o name"), "service/web")
    has(k("get pods --sort-by=.metadata.creationTimestamp --show-labels"), "app=web")
    expect(k("get pods -o name --chunk-size=1").out.count("pod/") >= 2, "pages")
    has(k("get pods -A"), "NAMESPACE")
    has(k("get deployment missing", code=1), 'deployments.apps "missing" not found')
    has(k("get pods --watch --request-timeout=2s --output-watch-events", code=None), "ADDED")


def change(k):
    k("""patch deployment web -p '{"metadata":{"annotations":{"strategic":"yes"}}}'""")
    k("""patch deployment web --type=merge -p '{"metadata":{"annotations":{"merge":"yes"}}}'""")
    k("""patch deployment web --type=json -p '[{"op":"add","path":"/metadata/annotations/json","value":"yes"}]'""")
    k("label deployment web tier=front")
    k("annotate deployment web note=one --overwrite")
    notes = json.loads(k("get deployment web -o json").out)["metadata"]
    expect({"strategic", "merge", "json", "note"} <= set(notes["annotations"]) and notes["labels"]["tier"] == "front", str(notes))
    k("set env deployment/web COLOR=red")
    k("scale deployment/web --replicas=1")
    k("scale deployment/web --current-replicas=1 --replicas=2")
    text = k("get configmap settings -o yaml").out
    has(k("replace -f -", text.replace('a: "1"', 'a: "2"')), "replaced")
    has(k("replace -f -", text, code=1), "the object has been modified")


def edit(k):
    def edited(what, script):
        editor = pathlib.Path(k.server.home) / "editor"
        editor.write_text(f"#!/bin/sh\nsed -i '{script}' \"$1\"\n")
        editor.chmod(0o755)
        return k(f"edit {what}", env={**os.environ, "KUBE_EDITOR": str(editor)})

    has(edited("configmap/settings", 's/a: "2"/a: "3"/'), "configmap/settings edited")
    expect(k.field("configmap/settings", ".data.a") == "3", "edited")
    has(edited("configmap/settings", "s/nothing/else/"), "no changes made")


def explain(k):
    has(k("explain deployment.spec.strategy"), "FIELD: strategy", "rollingUpdate", "DESCRIPTION")
    has(k("explain pods --recursive"), "initContainers", "livenessProbe")
    has(k("explain ingress.spec.rules.http"), "paths")
    has(k("explain service.spec.nothing", code=1), 'field "nothing" does not exist')


def describe(k):
    has(k("describe deployment web"), "StrategyType", "RollingUpdate", "NewReplicaSet")
    has(k("describe service web"), "Endpoints", "TargetPort")
    has(k("describe pods -l app=web"), "Node:", "n1/", "Containers:", "Conditions:")
    has(k("describe node n1"), "Capacity", "Allocated resources")
    has(k("describe namespace " + k.namespace), "Active")


def rollout(k):
    has(k("rollout status deployment/web --timeout=90s"), "successfully rolled out")
    has(k("rollout restart deployment/web"), "restarted")
    has(k("rollout status deployment/web --timeout=90s"), "successfully rolled out")
    has(k("rollout history deployment/web"), "REVISION")
    has(k("rollout undo deployment/web"), "rolled back")
    has(k("rollout pause deployment/web"), "paused")
    has(k("rollout resume deployment/web"), "resumed")
    has(k("rollout status deployment/web --timeout=90s"), "successfully rolled out")


def wait(k):
    has(k("wait deployment/web --for=condition=Available --timeout=60s"), "condition met")
    has(k("wait pods -l app=web --for=condition=Ready --timeout=60s"), "condition met")
    has(k("wait deployment/web --for=jsonpath={.status.readyReplicas}=2 --timeout=60s"), "condition met")
    has(k("wait configmap/settings --for=create --timeout=5s"), "condition met")
    has(k("wait deployment/web --for=condition=Never --timeout=1s", code=1), "timed out")
    k("create configmap gone")
    k("delete configmap gone --wait=false")
    k("wait configmap/gone --for=delete --timeout=30s")


def logs(k):
    has(k("logs deployment/web"), "hello from")
    has(k("logs -l app=web --prefix --tail=1 --timestamps"), "[pod/web-", "hello from")
    name = k("get pods -l app=web -o name").out.split()[0]
    has(k(f"logs {name} --since=1h"), "hello from")
    has(k(f"exec {name} -- echo executed"), "executed")
    has(k(f"logs {name} -c missing", code=1), "container missing is not valid")
    has(k("events --types=Normal,Warning"), "LAST SEEN")


def diff(k):
    text = DEPLOYMENT.replace("containerPort: 8080", "containerPort: 9090")
    has(k("diff -f -", text, code=1), "-        - containerPort: 8080", "+        - containerPort: 9090")
    k("diff --server-side --force-conflicts -f -", text, code=1)
    expect(k.field("deployment/web", ".spec.template.spec.containers[0].ports[0].containerPort") == "8080", "diff changed an object")


def auth(k):
    has(k("auth can-i create deployments"), "yes")
    robot = f"--as=system:serviceaccount:{k.namespace}:robot"
    has(k(f"auth can-i get configmaps {robot}"), "yes")
    has(k(f"auth can-i delete configmaps {robot}", code=1), "no")
    has(k(f"auth can-i --list {robot}"), "configmaps", "[get list]")
    has(k("auth whoami"), "system:masters")
    has(k(f"get secrets {robot}", code=1), "forbidden")
    rules = f"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: reader, namespace: {k.namespace}}}\nrules:\n" \
            "- {apiGroups: [''], resources: [configmaps], verbs: [get, list, watch]}\n"
    has(k("auth reconcile -f -", rules), "reconciled")
    expect("watch" in k.field("role/reader", ".rules"), "the rule was not added")


def custom(k):
    has(k("apply --server-side -f -", k.filled(DEFINITION)), "serverside-applied")
    has(k(f"wait crd/backups.{k.group} --for=condition=Established --timeout=10s"), "condition met")
    has(k("apply -f -", k.filled(BACKUP)), "created")
    has(k("apply -f -", k.filled(BACKUP)), "unchanged")
    has(k("apply -f -", k.filled(BACKUP).replace("path: /a", "path: /other")), "configured")
    has(k("apply -f -", k.filled(BACKUP)), "configured")
    has(k(f"get bk.{k.group}"), "SCHEDULE", "0 3 * * *")
    has(k(f"api-resources --api-group={k.group}"), "Backup", "bk")
    has(k(f"explain backup.spec.schedule --api-version={k.group}/v1"), "When backups are made.")
    weekly = k.filled(BACKUP).replace("nightly", "weekly")
    has(k("apply --server-side -f -", weekly), "serverside-applied")
    has(k("apply --server-side --field-manager=other -f -", weekly.replace("name: a, path: /a", "name: b, path: /b")), "serverside-applied")
    expect(k.field(f"backup.v1.{k.group}/weekly", ".spec.targets[*].name") == "a b", "the lists of two managers were not merged")
    has(k("diff -f -", k.filled(BACKUP).replace("0 3", "0 4"), code=1), "+  schedule: 0 4 * * *")
    name = f"backup.v1.{k.group}/nightly"
    k(f"""patch {name} --type=merge -p '{{"spec":{{"copies":3}}}}'""")
    has(k(f"""patch {name} --type=merge -p '{{"spec":{{"copies":0}}}}'""", code=1), "spec.copies", "greater than or equal to 1")
    k(f"""patch {name} --subresource=status --type=merge -p '{{"status":{{"phase":"Done"}}}}'""")
    has(k(f"wait {name} --for=jsonpath={{.status.phase}}=Done --timeout=5s"), "condition met")
    k(f"scale {name} --replicas=2")
    expect(k.field(name, ".spec.copies") == "2", "scaled")
    has(k(f"describe {name}"), "Schedule:", "0 3 * * *")
    has(k("apply -f -", k.filled(BACKUP).replace("schedule", "skedule"), code=1), 'unknown field "spec.skedule"')
    has(k(f"delete {name}"), "deleted")
    # The other object goes with its definition.
    has(k(f"delete crd backups.{k.group}"), "deleted")
    has(k(f"get backups.{k.group}", code=1), "doesn't have a resource type")


def delete(k):
    has(k("delete service web"), "deleted")
    has(k("delete deployment web --cascade=foreground --timeout=60s"), "deleted")
    expect(k("get replicasets,pods -l app=web -o name").out == "", "dependents were left")
    has(k("delete configmap settings --dry-run=server"), "deleted")
    k("get configmap settings")
    k("delete configmap --all")
    has(k("delete configmap settings", code=1), "not found")
    k("delete configmap settings --ignore-not-found")
    k(f"delete namespace {k.namespace} --timeout=90s")
    has(k(f"get namespace {k.namespace}", code=1), "not found")


CASES = [discovery, create, apply, server_side, get, change, edit, explain, describe, rollout, wait, logs, diff, auth, custom, delete]


def cases(bed):
    with Server(bed, "up", "kubectl") as server:
        for minor in MINORS:
            if not (bed.programs / f"kubectl-{minor}").exists():
                bed.rows.append((f"kubectl {minor}", "-", "not built", 0, ""))
                continue
            session = Session(bed, server, minor)
            version = json.loads(run([bed.programs / f"kubectl-{minor}", "version", "--client", "-o", "json"]).out)["clientVersion"]["gitVersion"]
            for function in CASES:
                with bed.case(f"kubectl {version}", function.__name__.replace("_", "-")):
                    function(session)
