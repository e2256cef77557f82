"""An operator made with kopf, the framework for operators in Python; the program is `tests/clients/python/shelves.py`."""
import json
import os
import subprocess

from .bed import HERE, Server, expect, run, until
from .kubectl import has

SHELF = "apiVersion: shelves.clients.example.com/v1\nkind: Shelf\nmetadata: {{name: {name}}}\nspec: {{books: {books}}}\n"


class Operator:
    """The operator as a process beside the server."""

    def __init__(self, bed, server):
        self.kopf, self.home, self.kubectl = bed.kopf, server.home, bed.kubectl(server)
        self.server, self.deleted = server, server.home / "deleted"
        self.deleted.touch()
        self.process = None
        run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", self.home / "tls.key", "-out", self.home / "tls.crt"])

    def start(self):
        env = {**os.environ, "KUBECONFIG": str(self.server.kubeconfig), "WEBHOOK_CERTIFICATES": str(self.home), "SHELVES_DELETED": str(self.deleted)}
        log = open(self.home / "kopf.log", "ab")
        command = [str(self.kopf), "run", "--standalone", "--all-namespaces", str(HERE / "python/shelves.py")]
        self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def end(self):
        self.process.terminate()
        self.process.wait(30)

    def shelf(self, name):
        return json.loads(self.kubectl(f"get shelf {name} -o json").out)

    def books(self, name):
        return self.shelf(name).get("status", {}).get("books")

    def install(self):
        self.kubectl("apply --server-side -f -", (HERE / "python/shelves.yaml").read_text())
        self.kubectl("wait crd/shelves.shelves.clients.example.com --for=condition=Established --timeout=10s")
        self.start()
        until(lambda: self.kubectl("get validatingwebhookconfigurations,mutatingwebhookconfigurations -o name").out.count("\n") == 2, "kopf registers its webhooks")

    def reconcile(self):
        has(self.kubectl("apply -f -", SHELF.format(name="one", books=3)), "created")
        until(lambda: self.books("one") == 3, "the status")
        expect(self.shelf("one")["metadata"]["finalizers"] == ["kopf.zalando.org/KopfFinalizerMarker"], "no finalizer")
        self.kubectl("""patch shelf one --type=merge -p '{"spec":{"books":5}}'""")
        until(lambda: self.books("one") == 5, "the status after a change")
        until(lambda: "Stocked" in self.kubectl("describe shelf one").out, "an Event")

    def webhooks(self):
        expect(self.shelf("one")["spec"]["room"] == "hall", "not mutated")
        has(self.kubectl("apply -f -", SHELF.format(name="large", books=101), code=1), "too many books")

    def restart(self):
        self.server.restart()
        has(self.kubectl("apply -f -", SHELF.format(name="two", books=1)), "created")
        until(lambda: self.books("two") == 1, "the status after a restart of the server", 90)
        self.kubectl("""patch shelf one --type=merge -p '{"spec":{"books":6}}'""")
        until(lambda: self.books("one") == 6, "a change after a restart of the server", 90)

    def delete(self):
        self.kubectl("delete shelves --all --timeout=60s")
        expect(sorted(self.deleted.read_text().split()) == ["one", "two"], "handlers of deletions did not run once each")
        self.end()


def cases(bed):
    version = run([bed.kopf, "--version"]).out.split()[-1]
    with Server(bed, "server", "kopf") as server:
        operator = Operator(bed, server)
        for name in ["install", "reconcile", "webhooks", "restart", "delete"]:
            with bed.case(f"kopf {version}", name):
                getattr(operator, name)()
