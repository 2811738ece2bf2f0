"""The job that ``strom job run`` writes: one task, one container. Pure."""

import re
from typing import Any

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import kinds

Document = dict[str, Any]
DEFAULT_IMAGE = "busybox"
DEFAULT_REQUESTS = {"cpu": "1", "memory": "100Mi"}
"""What Volcano's command line asks for, so that known commands make the same jobs."""
POD_LABEL = "job.volcano.sh"
"""Users select the pods of such a job by this label."""
LONGEST_NAME_STEM = 40
"""A pod is called ``<job>-default0-<index>`` and must stay below 63 characters."""


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says. ``minimum`` None: all replicas start together or not at all."""

    name: str
    namespace: str = "default"
    image: str = DEFAULT_IMAGE
    replicas: int = 1
    minimum: int | None = None
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    queue: str = "default"
    priority_class: str = ""
    run_seconds: float | None = None
    exit_code: int | None = None
    command: tuple[str, ...] = ()


def document(spec: RunSpec) -> Document:
    """The Job's manifest. Requests alone are no limits; limits alone are the requests too."""
    resources = {"requests": spec.requests or spec.limits or DEFAULT_REQUESTS}
    if spec.limits:
        resources["limits"] = spec.limits
    container: Document = {
        "name": spec.name,
        "image": spec.image,
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
    }
    if spec.command:
        container["command"] = list(spec.command)
    metadata: Document = {"labels": {POD_LABEL: spec.name}}
    if annotations := _simulation(spec):
        metadata["annotations"] = annotations
    pod = {"restartPolicy": "Never", "containers": [container]}
    task = {"replicas": spec.replicas, "template": {"metadata": metadata, "spec": pod}}
    job_spec: Document = {"queue": spec.queue, "tasks": [task]}
    if spec.minimum is not None:
        job_spec["minAvailable"] = spec.minimum
    if spec.priority_class:
        job_spec["priorityClassName"] = spec.priority_class
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": {"name": spec.name, "namespace": spec.namespace},
        "spec": job_spec,
    }


def generated_name(image: str, suffix: str) -> str:
    """A name for a job without one: what it runs, and a suffix that makes it its own."""
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    stem = re.sub(r"[^a-z0-9]+", "-", repository.lower()).strip("-")
    if not stem or not stem[0].isalpha():
        stem = f"job-{stem}".rstrip("-")
    return f"{stem[:LONGEST_NAME_STEM].rstrip('-')}-{suffix}"


def _simulation(spec: RunSpec) -> dict[str, str]:
    """What simulated nodes look at; real ones do not."""
    annotations = {}
    if spec.run_seconds is not None:
        annotations[keys.RUN_SECONDS] = f"{spec.run_seconds:g}"
    if spec.exit_code is not None:
        annotations[keys.EXIT_CODE] = str(spec.exit_code)
    return annotations
