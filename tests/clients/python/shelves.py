"""An operator made with kopf: state in annotations and in the status, a finalizer, Events, and admission webhooks that kopf registers by itself."""
import os

import kopf

GROUP = "shelves.clients.example.com"


@kopf.on.startup()
def configure(settings, **_):
    certificates = os.environ["WEBHOOK_CERTIFICATES"]
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1", host="127.0.0.1", port=17444, certfile=f"{certificates}/tls.crt", pkeyfile=f"{certificates}/tls.key", cafile=f"{certificates}/tls.crt")
    settings.admission.managed = GROUP
    settings.posting.level = 20


@kopf.on.validate(GROUP, "v1", "shelves")
def validate(spec, **_):
    if spec.get("books", 0) > 100:
        raise kopf.AdmissionError("too many books", code=422)


@kopf.on.mutate(GROUP, "v1", "shelves")
def mutate(spec, patch, **_):
    if "room" not in spec:
        patch.spec["room"] = "hall"


@kopf.on.create(GROUP, "v1", "shelves")
@kopf.on.update(GROUP, "v1", "shelves")
def stocked(spec, patch, body, **_):
    patch.status["books"] = spec["books"]
    kopf.info(body, reason="Stocked", message=f"{spec['books']} books in the {spec['room']}")


@kopf.on.delete(GROUP, "v1", "shelves")
def emptied(name, **_):
    with open(os.environ["SHELVES_DELETED"], "a", encoding="utf-8") as file:
        file.write(name + "\n")
