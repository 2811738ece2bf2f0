"""Builders of submitted objects as plain documents; arguments name only what matters to the
test."""

from typing import Any

from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind

Document = dict[str, Any]


def bare_object(kind: Kind[Any], name: str, **rest: Any) -> Document:
    """An object with a kind, a name and the given fields."""
    metadata: Document = {"name": name, **rest.pop("metadata", {})}
    if kind.namespaced:
        metadata["namespace"] = "default"
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **rest}


def queue(name: str, *, annotations: Document | None = None, **spec: Any) -> Document:
    """A queue."""
    metadata = {"annotations": annotations} if annotations else {}
    return bare_object(kinds.QUEUES, name, metadata=metadata, spec={"weight": 1, **spec})


def template(**container: Any) -> Document:
    """A pod template with one container."""
    return {"spec": {"containers": [{"name": "c", "image": "i", **container}]}}


def task(**changes: Any) -> Document:
    """A task of two pods, with changed fields."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "name": "work",
        "replicas": 2,
        "minAvailable": 2,
        "maxRetry": 3,
        "template": {"spec": {"containers": [container]}},
        **changes,
    }


def job(*, name: str = "train", **spec: Any) -> Document:
    """A job with the task of ``task``."""
    whole = {"schedulerName": "volcano", "minAvailable": 2, "queue": "default", "tasks": [task()]}
    return bare_object(kinds.JOBS, name, spec={**whole, **spec})


def annotated(document: Document, key: str, value: str) -> Document:
    """The object with one more annotation."""
    document["metadata"].setdefault("annotations", {})[key] = value
    return document


def pod_group(**spec: Any) -> Document:
    """A PodGroup that belongs to no job."""
    return bare_object(kinds.POD_GROUPS, "gang", spec={"minMember": 1, **spec})


def pod(scheduler: str = "volcano", **annotations: str) -> Document:
    """A pod with annotations."""
    spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "busybox"}]}
    return bare_object(kinds.PODS, "worker", metadata={"annotations": annotations}, spec=spec)


def flow(**needs: list[str]) -> Document:
    """A JobFlow. ``needs``: template -> the templates on which it depends."""
    flows = [{"name": name, "dependsOn": {"targets": targets}} for name, targets in needs.items()]
    return bare_object(
        kinds.JOB_FLOWS, "pipeline", spec={"jobRetainPolicy": "retain", "flows": flows}
    )


def cron(schedule: str = "*/5 * * * *", *, name: str = "nightly", **spec: Any) -> Document:
    """A CronJob."""
    template = {"spec": job()["spec"]}
    return bare_object(
        kinds.CRON_JOBS, name, spec={"schedule": schedule, "jobTemplate": template, **spec}
    )


def reservation(name: str = "course", **spec: Any) -> Document:
    """A reservation of a node for a morning; None removes a field."""
    usual = {
        "startTime": "2026-12-01T08:00:00Z",
        "endTime": "2026-12-01T12:00:00Z",
        "nodeNames": ["n1"],
    }
    given = {key: value for key, value in {**usual, **spec}.items() if value is not None}
    return bare_object(kinds.ADVANCE_RESERVATIONS, name, spec=given)


def hyper_node(*members: Document, name: str = "rack-1", **spec: Any) -> Document:
    """A HyperNode."""
    return bare_object(kinds.HYPER_NODES, name, spec={"tier": 1, "members": list(members), **spec})


def member(**selector: Any) -> Document:
    """A member of a HyperNode."""
    return {"type": "Node", "selector": selector}


def command(action: str, kind: Kind[Any] = kinds.JOBS, name: str = "train") -> Document:
    """A Command that requests an action on a job or queue."""
    target = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": "u"}
    return bare_object(kinds.COMMANDS, "wish", action=action, target=target)
