"""The JSON that extenders receive and return: Volcano's types with their Go field names.

Pods and nodes have the fields that the scheduler reads: no environment variables, no unrelated
annotations. Tasks in a node come without their pods.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, requirements, resource_vectors
from stromboli.shared import keys

STATUSES: Mapping[entities.Status, int] = {
    status: 1 << bit
    for bit, status in enumerate(
        (
            entities.Status.PENDING,
            entities.Status.ALLOCATED,
            entities.Status.PIPELINED,
            entities.Status.BINDING,
            entities.Status.BOUND,
            entities.Status.RUNNING,
            entities.Status.RELEASING,
            entities.Status.SUCCEEDED,
            entities.Status.FAILED,
            entities.Status.UNKNOWN,
        )
    )
}
"""Volcano's numbers of task statuses."""


def resource(
    ssn: session.Session, values: resource_vectors.Vector | resource_vectors.Sum
) -> dict[str, Any]:
    """Return amounts; the units are Volcano's."""
    named = resource_vectors.named(ssn.resources, resource_vectors.bounded(values))
    cpu, memory = named.pop("cpu", 0), named.pop("memory", 0)
    return {
        "MilliCPU": cpu,
        "Memory": memory,
        "ScalarResources": dict(sorted(named.items())) or None,
        "MaxTaskNum": int(values[requirements.PODS]),
    }


def task(ssn: session.Session, told: entities.Task, *, with_pod: bool = True) -> dict[str, Any]:
    """Return a task."""
    request = resource(ssn, told.request)
    found: dict[str, Any] = {
        "UID": told.uid,
        "Job": told.job,
        "Name": told.name,
        "Namespace": told.namespace,
        "TaskRole": told.role,
        "Resreq": request,
        "InitResreq": request,
        "NodeName": told.node,
        "Status": STATUSES[told.status],
        "Priority": told.priority,
        "Preemptable": told.preemptable,
        "BestEffort": told.is_best_effort,
        "RevocableZone": told.revocable_zone,
        "SchGated": told.is_gated,
    }
    return {**found, "Pod": told.pod} if with_pod else found


def node(ssn: session.Session, row: int) -> dict[str, Any]:
    """Return a node with its current state in the session."""
    table = ssn.nodes
    return {
        "Name": table.names[row],
        "Node": table.objects[row],
        "Allocatable": resource(ssn, table.allocatable[:, row]),
        "Idle": resource(ssn, table.idle[:, row]),
        "Used": resource(ssn, table.used[:, row]),
        "Releasing": resource(ssn, table.releasing[:, row]),
        "Pipelined": resource(ssn, table.pipelined[:, row]),
        "Tasks": {
            key: task(ssn, lies, with_pod=False) for key, lies in sorted(table.tasks[row].items())
        },
    }


def job(ssn: session.Session, told: entities.Job) -> dict[str, Any]:
    """Return a job with its tasks."""
    return {
        "UID": told.key,
        "PgUID": told.uid,
        "Name": told.name,
        "Namespace": told.namespace,
        "Queue": told.queue,
        "Priority": told.priority,
        "MinAvailable": told.min_available,
        "TaskMinAvailable": dict(told.task_min_available),
        "Allocated": resource(ssn, told.allocated),
        "TotalRequest": resource(ssn, told.total_request),
        "CreationTimestamp": told.created,
        "Preemptable": told.preemptable,
        "RevocableZone": told.revocable_zone,
        "Tasks": {
            uid: task(ssn, told.tasks[uid])
            for uid in sorted(told.tasks, key=lambda uid: (told.tasks[uid].key, uid))
        },
        "PodGroup": told.pod_group,
    }


def queue(told: entities.Queue) -> dict[str, Any]:
    """Return a queue."""
    return {
        "UID": told.uid,
        "Name": told.name,
        "Weight": told.weight,
        "Weights": told.hierarchy_weights,
        "Hierarchy": told.hierarchy,
        "Queue": told.object,
    }


def opened(ssn: session.Session) -> dict[str, Any]:
    """Return the whole state at the start of a session."""
    rows = {name: node(ssn, row) for row, name in enumerate(ssn.nodes.names)}
    return {
        "Jobs": {key: job(ssn, ssn.jobs[key]) for key in sorted(ssn.jobs)},
        "Nodes": rows,
        "Queues": {name: queue(ssn.queues[name]) for name in sorted(ssn.queues)},
        "NamespaceInfo": {name: {"Name": name} for name in sorted(ssn.cluster.namespace_labels)},
        "RevocableNodes": {
            name: told
            for name, told in rows.items()
            if ssn.nodes.objects[ssn.nodes.rows[name]].metadata.label(keys.REVOCABLE_ZONE)
        },
        "NodeList": list(ssn.nodes.names),
    }


# What is answered ---------------------------------------------------------------------------------


class Predicate(msgspec.Struct):
    """``status``: why the node is not feasible, empty if it is."""

    status: str = ""
    code: int = 0


class Scores(msgspec.Struct, rename="camel"):
    """Node -> score."""

    node_score: dict[str, float] | None = None
    error_message: str = ""


class Victim(msgspec.Struct):
    """A task that may be evicted."""

    uid: str = msgspec.field(default="", name="UID")


class VictimSelection(msgspec.Struct):
    """A vote, and the victims."""

    status: int = 0
    victims: list[Victim] | None = None


class Vote(msgspec.Struct):
    """A vote."""

    status: int = 0


class Ready(msgspec.Struct):
    """Whether the job may be bound."""

    status: bool = False


class Overused(msgspec.Struct):
    """Whether the queue uses its share."""

    overused: bool = False


class EventStatus(msgspec.Struct, rename="camel"):
    """Why a placement is refused, empty if it is accepted."""

    error_message: str = ""


class EmptyReply(msgspec.Struct):
    """A response whose content is ignored."""
