"""CustomResourceDefinitions of other projects: applied, established, and each of their examples with many wrong variants of it sent to the server.

Answers are compared with those of kube-apiserver. They are recorded in `tests/clients/bundles/*.answers`; `scripts/clients --record --peers DIR` records
them again from the programs `kube-apiserver` and `etcd` in DIR.
"""
import copy
import http.client
import json
import pathlib
import subprocess
import urllib.parse

import yaml

from .bed import HERE, Server, expect, until

GATEWAY, CERTIFICATES, MONITORING = "sigs.k8s.io/gateway-api", "github.com/cert-manager/cert-manager", "github.com/prometheus-operator/prometheus-operator"

# Name, module, folders of definitions, of examples, and of examples that are wrong.
BUNDLES = [
    ("gateway-api-standard", GATEWAY, ["config/crd/standard"], ["examples/standard"], ["hack/invalid-examples/standard"]),
    ("gateway-api-experimental", GATEWAY, ["config/crd/experimental"], ["examples"], ["hack/invalid-examples"]),
    ("cert-manager", CERTIFICATES, ["deploy/crds"], ["test/fixtures/cert-manager-resources.yaml", HERE / "bundles/cert-manager.yaml"], []),
    ("prometheus-operator", MONITORING, ["example/prometheus-operator-crd"], [
        "example/additional-scrape-configs", "example/rbac", "example/shards", "example/storage", "example/thanos",
        "example/user-guides/alerting", "example/user-guides/getting-started",
    ], ["example/user-guides/scrapeclass"]),  # Fragments without names and selectors.
]

# Wrong variants of one example, at most: each field of it is changed once in each way until there are so many.
VARIANTS = 6


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML as Kubernetes reads it: times are text, and so is `=`."""


for tag in ["timestamp", "value"]:
    Loader.add_constructor(f"tag:yaml.org,2002:{tag}", Loader.construct_yaml_str)


class Api:
    """Requests as the administrator, one connection."""

    def __init__(self, server):
        context, address = server.trust()
        parts = urllib.parse.urlsplit(address)
        self.connection = http.client.HTTPSConnection(parts.hostname, parts.port, context=context, timeout=60)

    def send(self, verb, path, body=None, kind="application/json"):
        data = None if body is None else json.dumps(body)
        self.connection.request(verb, path, data, {"Content-Type": kind, "Accept": "application/json"})
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())


def documents(root, path):
    """Objects in the files below a path, with the name of the file."""
    place = root / path
    files = sorted(place.rglob("*.yaml")) if place.is_dir() else [place]
    for file in files:
        if file.name == "kustomization.yaml":
            continue
        for number, document in enumerate(yaml.load_all(file.read_text(), Loader)):
            if isinstance(document, dict) and "kind" in document:
                yield f"{file.relative_to(root) if file.is_relative_to(root) else file.name}#{number}", document


def module(name):
    """The folder of a module that `tests/clients/bundles/go.mod` pins."""
    listed = subprocess.run(["go", "mod", "download", "-json"], cwd=HERE / "bundles", capture_output=True, text=True, check=True).stdout
    decoder, place = json.JSONDecoder(), 0
    while place < len(listed.rstrip()):
        one, place = decoder.raw_decode(listed, place)
        place += len(listed[place:]) - len(listed[place:].lstrip())
        if one["Path"] == name:
            return pathlib.Path(one["Dir"]), one["Version"]
    raise KeyError(name)


def leaves(value, path=()):
    """Paths of all values below an object."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    for key, below in items:
        yield path + (key,)
        yield from leaves(below, path + (key,))


def wrong(value):
    """Other values for a field: of another type, empty, out of range."""
    if isinstance(value, bool):
        return ["true", 1]
    if isinstance(value, int):
        return [str(value), -1, 2**31, 1.5]
    if isinstance(value, str):
        return [7, "", "x" * 300, "Not/a: valid*value", None]
    if isinstance(value, list):
        return [{}, [], value + value, "list"]
    return [[], "object", {"unknown": 1}, None]


def variants(example):
    """Copies of an example with one field changed or removed."""
    spec = example.get("spec")
    if not isinstance(spec, dict):
        return
    made = []
    for path in leaves(spec):
        holder = spec
        for key in path[:-1]:
            holder = holder[key]
        for number, value in enumerate(wrong(holder[path[-1]])):
            made.append((number, path, value))
        if isinstance(holder, dict):
            made.append((9, path, ...))
    # The same share of each kind of change, whatever the length of the example.
    step = max(1, len(made) // VARIANTS)
    for number, path, value in made[::step][:VARIANTS]:
        changed = copy.deepcopy(example)
        holder = changed["spec"]
        for key in path[:-1]:
            holder = holder[key]
        if value is ...:
            del holder[path[-1]]
        else:
            holder[path[-1]] = value
        yield ".".join(map(str, path)) + ("-" if value is ... else f"={number}"), changed


class Bundle:
    """Definitions and objects of one project: its examples, its wrong examples, and wrong variants of both."""

    def __init__(self, name, definitions, examples, refused):
        self.name, self.definitions = name, definitions
        self.served = {}
        for one in definitions:
            if one["kind"] == "CustomResourceDefinition":
                for version in one["spec"]["versions"]:
                    self.served[f"{one['spec']['group']}/{version['name']}", one["spec"]["names"]["kind"]] = one["spec"]
        self.examples, self.refused = list(self.placed(examples)), list(self.placed(refused))
        self.objects = []
        for label, path, example in self.examples + self.refused:
            self.objects.append((label, path, example))
            self.objects += [(f"{label} {what}", path, changed) for what, changed in variants(example)]

    def placed(self, objects):
        """Those of kinds of this bundle, with the path to create them at."""
        for label, example in objects:
            spec = self.served.get((example["apiVersion"], example["kind"]))
            if spec is not None:
                example.setdefault("metadata", {}).pop("namespace", None)
                place = "/namespaces/default/" if spec["scope"] == "Namespaced" else "/"
                yield label, f"/apis/{example['apiVersion']}{place}{spec['names']['plural']}", example

    def apply(self, api, definitions=None):
        """Server-side apply of the definitions; returns their names."""
        names = []
        for one in self.definitions if definitions is None else definitions:
            plural = {"CustomResourceDefinition": "customresourcedefinitions", "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
                      "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings"}[one["kind"]]
            path = f"/apis/{one['apiVersion']}/{plural}/{one['metadata']['name']}"
            code, answer = api.send("PATCH", path + "?fieldManager=clients&force=true", one, "application/apply-patch+yaml")
            expect(code in (200, 201), f"{path}: {code} {answer.get('message')}")
            if plural == "customresourcedefinitions":
                names.append(path)
        return names

    def establish(self, api):
        paths = self.apply(api)
        for path in paths:
            until(lambda path=path: is_established(api.send("GET", path)[1]), f"{path} is established", 30)
        return len(paths)

    def answers(self, api, objects=None):
        """What the server says to each object: a line with its label, the code and the message."""
        out = {}
        for label, path, example in self.objects if objects is None else objects:
            code, answer = api.send("POST", path + "?dryRun=All&fieldValidation=Strict", example)
            out[label] = f"{code} {refusal(answer) if code >= 300 else ''}".strip().replace("\n", " ")
        return out


def refusal(status):
    """The text of a refusal. Its causes are sorted: kube-apiserver validates the fields of an object in random order."""
    causes = status.get("details", {}).get("causes")
    if not causes:
        return status["message"]
    told = sorted(f"{cause.get('field', '')}: {cause.get('reason', '')}: {cause.get('message', '')}" for cause in causes)
    return " | ".join([status["message"].split(" is invalid: ")[0] + " is invalid", *told])


def is_established(definition):
    return any(one["type"] == "Established" and one["status"] == "True" for one in definition.get("status", {}).get("conditions") or [])


def bundle(row):
    name, of, folders, examples, refused = row
    root, version = module(of)
    definitions = [document for folder in folders for _, document in documents(root, folder)]
    return Bundle(name, definitions, *([pair for place in places for pair in documents(root, place)] for places in (examples, refused))), version


def recorded(name):
    return HERE / "bundles" / f"{name}.answers"


def read(path):
    lines = path.read_text().splitlines()
    return dict(line.split("\t", 1) for line in lines)


def record(bed):
    """Writes the answers of kube-apiserver."""
    from .reference import Reference
    for row in BUNDLES:
        with Reference(bed, f"record-{row[0]}") as server:
            one, _ = bundle(row)
            api = Api(server)
            one.establish(api)
            answers = one.answers(api)
            recorded(row[0]).write_text("".join(f"{label}\t{answer}\n" for label, answer in answers.items()))
            print(f"{row[0]}: {len(answers)} answers recorded", flush=True)


def cases(bed):
    for row in BUNDLES:
        name = row[0]
        with Server(bed, "server", name) as server:
            one, version = bundle(row)
            api = Api(server)
            title = f"{name} {version}"
            with bed.case(title, "definitions") as notes:
                notes.append(f"{one.establish(api)} established")
            with bed.case(title, "examples") as notes:
                answers = one.answers(api, one.examples)
                notes.append(f"{len(answers)} accepted")
                expect(all(answer == "201" for answer in answers.values()), differing(answers, "201"))
            if one.refused:
                with bed.case(title, "wrong examples") as notes:
                    answers = one.answers(api, one.refused)
                    notes.append(f"{len(answers)} refused")
                    expect(all(answer.startswith("422") for answer in answers.values()), differing(answers, "422"))
            answers = one.answers(api)
            if recorded(name).exists():
                with bed.case(title, "answers of kube-apiserver") as notes:
                    compare(answers, read(recorded(name)), notes, bed.scratch / f"{name}.differences")
            with bed.case(title, "the same after kill -9") as notes:
                server.restart()
                expect(one.answers(Api(server)) == answers, "other answers after a restart")
                notes.append(f"{len(answers)} objects")
            if name == "gateway-api-standard":
                with bed.case(title, "safe upgrades"):
                    experimental, _ = bundle(BUNDLES[1])
                    api = Api(server)
                    routes = next(one for one in experimental.definitions if one["metadata"]["name"].startswith("httproutes"))
                    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{routes['metadata']['name']}"
                    code, answer = api.send("PATCH", path + "?fieldManager=clients&force=true", routes, "application/apply-patch+yaml")
                    expect(code == 422 and "Installing experimental CRDs on top of standard channel CRDs is prohibited" in answer["message"], f"{code} {answer.get('message')}")


def differing(answers, code):
    return "; ".join(f"{label}: {answer}" for label, answer in answers.items() if not answer.startswith(code))


def compare(got, expected, notes, differences):
    accepted = sum(answer.startswith("201") for answer in got.values())
    notes.append(f"{len(got)} objects, {accepted} accepted, {len(got) - accepted} refused")
    different = [label for label in got if got[label] != expected.get(label)]
    differences.write_text("".join(f"{label}\n  kube-apiserver: {expected.get(label)}\n  waypost:        {got[label]}\n" for label in different))
    verdicts = [label for label in different if got[label][:3] != expected.get(label, "")[:3]]
    expect(set(got) == set(expected), "the recorded answers are of other objects: record them again")
    expect(not different, f"{'; '.join(notes)}; {len(verdicts)} other codes, {len(different)} other answers; see {differences}")
