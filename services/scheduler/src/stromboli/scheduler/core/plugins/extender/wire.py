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
"""Status -> Volcano's number for it."""


def resource(
    ssn: session.Session, values: resource_vectors.Vector | resource_vectors.Sum
) -> dict[str, Any]:
    """Encode amounts as Volcano's ``Resource``, in Volcano's units."""
    named = resource_vectors.named(ssn.resources, resource_vectors.bounded(values))
    cpu, memory = named.pop("cpu", 0), named.pop("memory", 0)
    return {
        "MilliCPU": cpu,
        "Memory": memory,
        "ScalarResources": dict(sorted(named.items())) or None,
        "MaxTaskNum": int(values[requirements.PODS]),
    }


def task(ssn: session.Session, entity: entities.Task, *, with_pod: bool = True) -> dict[str, Any]:
    """Encode a task as Volcano's ``TaskInfo``. ``with_pod``: with its pod."""
    request = resource(ssn, entity.request)
    fields: dict[str, Any] = {
        "UID": entity.uid,
        "Job": entity.job,
        "Name": entity.name,
        "Namespace": entity.namespace,
        "TaskRole": entity.role,
        "Resreq": request,
        "InitResreq": request,
        "NodeName": entity.node,
        "Status": STATUSES[entity.status],
        "Priority": entity.priority,
        "Preemptable": entity.preemptable,
        "BestEffort": entity.is_best_effort,
        "RevocableZone": entity.revocable_zone,
        "SchGated": entity.is_gated,
    }
    return {**fields, "Pod": entity.pod} if with_pod else fields


def node(ssn: session.Session, row: int) -> dict[str, Any]:
    """Encode a node as Volcano's ``NodeInfo``, with its resources and tasks as the session sees
    them."""
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


def job(ssn: session.Session, entity: entities.Job) -> dict[str, Any]:
    """Encode a job as Volcano's ``JobInfo``, with all of its tasks and its PodGroup."""
    return {
        "UID": entity.key,
        "PgUID": entity.uid,
        "Name": entity.name,
        "Namespace": entity.namespace,
        "Queue": entity.queue,
        "Priority": entity.priority,
        "MinAvailable": entity.min_available,
        "TaskMinAvailable": dict(entity.task_min_available),
        "Allocated": resource(ssn, entity.allocated),
        "TotalRequest": resource(ssn, entity.total_request),
        "CreationTimestamp": entity.created,
        "Preemptable": entity.preemptable,
        "RevocableZone": entity.revocable_zone,
        "Tasks": {
            uid: task(ssn, entity.tasks[uid])
            for uid in sorted(entity.tasks, key=lambda uid: (entity.tasks[uid].key, uid))
        },
        "PodGroup": entity.pod_group,
    }


def queue(entity: entities.Queue) -> dict[str, Any]:
    """Encode a queue as Volcano's ``QueueInfo``."""
    return {
        "UID": entity.uid,
        "Name": entity.name,
        "Weight": entity.weight,
        "Weights": entity.hierarchy_weights,
        "Hierarchy": entity.hierarchy,
        "Queue": entity.object,
    }


def opened(ssn: session.Session) -> dict[str, Any]:
    """Encode all jobs, nodes, queues and namespaces, for the event at the start of a session."""
    rows = {name: node(ssn, row) for row, name in enumerate(ssn.nodes.names)}
    return {
        "Jobs": {key: job(ssn, ssn.jobs[key]) for key in sorted(ssn.jobs)},
        "Nodes": rows,
        "Queues": {name: queue(ssn.queues[name]) for name in sorted(ssn.queues)},
        "NamespaceInfo": {name: {"Name": name} for name in sorted(ssn.cluster.namespace_labels)},
        "RevocableNodes": {
            name: entity
            for name, entity in rows.items()
            if ssn.nodes.objects[ssn.nodes.rows[name]].metadata.label(keys.REVOCABLE_ZONE)
        },
        "NodeList": list(ssn.nodes.names),
    }


# Responses ----------------------------------------------------------------------------------------


class Predicate(msgspec.Struct):
    """The result for one node. ``status``: why the node is not feasible; empty if it is."""

    status: str = ""
    code: int = 0


class Scores(msgspec.Struct, rename="camel"):
    """The scores of nodes: node -> score. ``error_message``: why there are none; empty if there
    are."""

    node_score: dict[str, float] | None = None
    error_message: str = ""


class Victim(msgspec.Struct):
    """A task that may be evicted."""

    uid: str = msgspec.field(default="", name="UID")


class VictimSelection(msgspec.Struct):
    """A vote, and the tasks that may be evicted."""

    status: int = 0
    victims: list[Victim] | None = None


class Vote(msgspec.Struct):
    """A vote, as Volcano's number for permit, abstain or reject."""

    status: int = 0


class Ready(msgspec.Struct):
    """Whether the job may be bound."""

    status: bool = False


class Overused(msgspec.Struct):
    """Whether the queue has reached its share."""

    overused: bool = False


class EventStatus(msgspec.Struct, rename="camel"):
    """Why a placement is refused, empty if it is accepted."""

    error_message: str = ""


class EmptyReply(msgspec.Struct):
    """A response whose content is ignored."""
