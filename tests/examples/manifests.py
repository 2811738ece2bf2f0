"""The examples as the system sees them: completed by admission, made into pods by controller."""

from pathlib import Path
from typing import Any

import msgspec

from stromboli.controller.core.pods import plugin_objects, pods
from stromboli.controller.core.tasks import tasks
from stromboli.shared.api import batch, kinds
from stromboli.shared.formats import documents
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import patch, review

FOLDER = Path(__file__).parents[2] / "examples"
FILES = sorted(FOLDER.glob("*.yaml"))
POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano",), plugins=job_plugins.BUILT_IN, max_queue_depth=5
)
Document = dict[str, Any]


def read(name: str) -> list[Document]:
    """All documents of an example."""
    return [each for each, _ in documents.read((FOLDER / f"{name}.yaml").read_text())]


def job(name: str) -> batch.Job:
    """The example's one job, as admitted."""
    (document,) = (each for each in read(name) if each["kind"] == "Job")
    completed = patch.applied(document, review.default_patch(kinds.JOBS, document, POLICY))
    return kinds.JOBS.decode(msgspec.json.encode(completed))


def pods_of(name: str) -> dict[str, Document]:
    """Name -> pod."""
    found = job(name)
    made = {
        member.name: msgspec.json.decode(pods.create(found, member).body)
        for member in tasks.Members(found)
    }
    assert made
    return made


def objects_of(name: str) -> dict[tuple[str, str], Document]:
    """(kind, name) -> what the job's plugins make."""
    creates = plugin_objects.creations(job(name), job_plugins.BUILT_IN)
    return {(it.kind.kind, it.name): msgspec.json.decode(it.body) for it in creates}


def containers(pod: Document) -> list[Document]:
    """Those that do the work."""
    found: list[Document] = pod["spec"]["containers"]
    return found


def variables(name: str, pod: str) -> dict[str, str]:
    """The environment of a pod's only container, with values from ConfigMaps and the
    pod's fields.
    """
    body = pods_of(name)[pod]
    objects = objects_of(name)
    (container,) = containers(body)
    found: dict[str, str] = {}
    for each in container["env"]:
        source = each.get("valueFrom", {})
        if "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            found[each["name"]] = objects["ConfigMap", reference["name"]]["data"][reference["key"]]
        elif "fieldRef" in source:
            annotation = source["fieldRef"]["fieldPath"].split("'")[1]
            found[each["name"]] = body["metadata"]["annotations"][annotation]
        else:
            found[each["name"]] = each["value"]
    return found


def ports(name: str, pod: str) -> dict[str, int]:
    """Name -> number, of a pod's one container."""
    (container,) = containers(pods_of(name)[pod])
    return {it["name"]: it["containerPort"] for it in container.get("ports", ())}


def files(name: str, pod: str) -> set[str]:
    """What is mounted where, in a pod's one container."""
    (container,) = containers(pods_of(name)[pod])
    return {mount["mountPath"] for mount in container.get("volumeMounts", ())}
