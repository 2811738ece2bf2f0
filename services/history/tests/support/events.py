"""Events of jobs and their records, with only what matters to a test."""

from datetime import datetime, timedelta
from typing import Any

import msgspec

from stromboli.shared import envelope, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import admission, batch, scheduling
from stromboli.testkit import builders
from stromboli.testkit.builders import NOON

TOPIC_IDS = {"batch.events": "1"}
GIB = 2**30


def at(second: float) -> datetime:
    """A time after noon."""
    return NOON + timedelta(seconds=second)


def task(after: str, second: float, pod: str = "p1", **fields: Any) -> batch.TaskChanged:
    """A pod of the job team/train is in another state; its first event has its requests."""
    known: dict[str, Any] = {"job": "team/train", "uid": "u1", "task": "w", "index": 0}
    known |= {"attempt": 1, "before": "", "pod": pod, "pod_uid": f"{pod}-uid"}
    if after == "Pending":
        known["requests"] = {"cpu": 2000, "memory": 4 * GIB, "nvidia.com/gpu": 1000}
    return batch.TaskChanged(**(known | {"after": after, "at": at(second)} | fields))


def phase(after: str, second: float, version: int, **fields: Any) -> batch.JobPhaseChanged:
    """The job team/train enters a phase."""
    known: dict[str, Any] = {"job": "team/train", "uid": "u1", "queue": "gpu", "before": ""}
    known |= {"after": after, "at": at(second), "object_version": version, "user": "ann"}
    return batch.JobPhaseChanged(**(known | fields))


def deleted(second: float) -> batch.JobDeleted:
    """The job team/train is deleted."""
    return batch.JobDeleted(job="team/train", uid="u1", at=at(second))


def requested(action: str, user: str = "ann", **fields: Any) -> admission.JobRequested:
    """A user's request about the job team/train."""
    known: dict[str, Any] = {"job": "team/train", "uid": "u1", "entry_point": "rest"}
    return admission.JobRequested(**(known | {"action": action, "user": user} | fields))


def evicted(*pods: str, by: str = "team/urgent") -> scheduling.StatementDecided:
    """A decision that evicts pods."""
    evictions = tuple(
        scheduling.Eviction(namespace="team", pod=pod, uid=f"{pod}-uid", reason="preempt")
        for pod in pods
    )
    return scheduling.StatementDecided(
        pod_group=by,
        pod_group_uid="g",
        session=1,
        job_uid="u2",
        decision="scheduler/0/0",
        evictions=evictions,
    )


def topic_of(message: msgspec.Struct) -> topics.Topic:
    """The topic of a message."""
    return next(it for it in topics.ALL if type(message) in it.messages)


def record(message: msgspec.Struct, offset: int) -> envelope.Record:
    """The record of a message at an offset of its topic."""
    draft = envelope.Draft(
        topic=topic_of(message),
        key="k",
        message=message,
        time=getattr(message, "at", NOON),
    )
    return builders.make_record(draft, offset=offset)


def records(*messages: msgspec.Struct) -> list[envelope.Record]:
    """The records of messages, one behind the other."""
    return [record(message, offset) for offset, message in enumerate(messages)]


def position(offset: int) -> port.Position:
    """A position in the events."""
    return port.Position({"batch.events": offset}, {}, TOPIC_IDS)
