"""The REST API of what ran, as values. Sends nothing."""

from datetime import datetime

import msgspec

from stromboli.client.calls import Call
from stromboli.shared.api import accounting


def attempts(query: accounting.AttemptQuery) -> Call[accounting.AttemptPage]:
    """A page of attempts of all jobs that ran, also of deleted ones."""
    wanted = {
        "namespace": query.namespace,
        "job": query.job,
        "uid": query.uid,
        "user": query.user,
        "queue": query.queue,
        "state": ",".join(query.states),
        "since": _time(query.since),
        "until": _time(query.until),
        "node": query.node,
        "device": query.device,
        "labels": _labels(query.labels),
        "limit": str(query.limit),
        "continue": query.after,
    }
    return Call(
        method="GET",
        path="/v1/history/attempts",
        what="attempts",
        read=msgspec.json.Decoder(accounting.AttemptPage).decode,
        query={name: value for name, value in wanted.items() if value},
        is_collection=True,
    )


def jobs(query: accounting.JobQuery) -> Call[accounting.JobPage]:
    """A page of jobs that ran, also of deleted ones, with their phases."""
    wanted = {
        "namespace": query.namespace,
        "name": query.name,
        "uid": query.uid,
        "limit": str(query.limit),
        "continue": query.after,
    }
    return Call(
        method="GET",
        path="/v1/history/jobs",
        what="jobs of the history",
        read=msgspec.json.Decoder(accounting.JobPage).decode,
        query={name: value for name, value in wanted.items() if value},
        is_collection=True,
    )


def evictions(query: accounting.EvictionQuery) -> Call[accounting.EvictionPage]:
    """A page of evictions of a job's pods, and for a job."""
    wanted = {
        "namespace": query.namespace,
        "job": query.job,
        "uid": query.uid,
        "since": _time(query.since),
        "until": _time(query.until),
        "limit": str(query.limit),
        "continue": query.after,
    }
    return Call(
        method="GET",
        path="/v1/history/evictions",
        what="evictions",
        read=msgspec.json.Decoder(accounting.EvictionPage).decode,
        query={name: value for name, value in wanted.items() if value},
        is_collection=True,
    )


def usage(query: accounting.UsageQuery) -> Call[accounting.UsageReport]:
    """What was used within an interval, by group."""
    wanted = {
        "since": _time(query.since),
        "until": _time(query.until),
        "by": ",".join(query.by),
        "namespace": query.namespace,
        "user": query.user,
        "queue": query.queue,
        "labels": _labels(query.labels),
    }
    return Call(
        method="GET",
        path="/v1/history/usage",
        what="usage",
        read=msgspec.json.Decoder(accounting.UsageReport).decode,
        query={name: value for name, value in wanted.items() if value},
        is_collection=True,
    )


def _time(at: datetime | None) -> str:
    return "" if at is None else at.isoformat()


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items())
