"""The lists that pages watch, and which of them a page needs."""

from typing import Any

import msgspec

from stromboli.client.operations import calls, workload_calls
from stromboli.client.responses import Explanation
from stromboli.console.core import cluster_rows, job_rows, workload_rows
from stromboli.console.live_rows import LiveRows, Watched
from stromboli.console.pages.requests import Console
from stromboli.console.sessions import Session
from stromboli.shared.api import batch, core, kinds, scheduling
from stromboli.shared.api.meta import Object


class QueueEntry(msgspec.Struct, frozen=True):
    """A queue in a list."""

    queue: scheduling.Queue

    @property
    def key(self) -> str:
        """The name of the queue."""
        return self.queue.metadata.name


class Version(msgspec.Struct, frozen=True):
    """The key of an object whose changes matter, but not its content."""

    key: str


def jobs(namespace: str) -> Watched[job_rows.JobRow]:
    """The jobs of a namespace, or all."""
    call = calls.watch_jobs(namespace)
    return Watched(("jobs", namespace), call, job_rows.job_row, _key)


def groups(namespace: str) -> Watched[job_rows.GroupRow]:
    """The PodGroups of a namespace, or all."""
    call = calls.watch_pod_groups(namespace)
    return Watched(("groups", namespace), call, job_rows.group_row, _key)


def pods(namespace: str) -> Watched[cluster_rows.PodRow]:
    """The pods of a namespace, or all, without those that have ended."""
    return Watched(("pods", namespace), calls.watch_pods(namespace), cluster_rows.pod_row, _key)


def queues() -> Watched[QueueEntry]:
    """All queues."""
    return Watched("queues", calls.watch_queues(), QueueEntry, _key)


def flows(namespace: str) -> Watched[workload_rows.FlowEntry]:
    """The flows of a namespace, or all."""
    call = workload_calls.watch_workloads(kinds.JOB_FLOWS, namespace)
    return Watched(("flows", namespace), call, workload_rows.FlowEntry, _key)


def crons(namespace: str) -> Watched[workload_rows.CronEntry]:
    """The crons of a namespace, or all."""
    call = workload_calls.watch_workloads(kinds.CRON_JOBS, namespace)
    return Watched(("crons", namespace), call, workload_rows.CronEntry, _key)


def of_overview(namespace: str) -> tuple[Watched[Any], ...]:
    """Jobs, PodGroups, queues and pods, of a namespace or all."""
    return jobs(namespace), groups(namespace), queues(), pods(namespace)


def of_job(namespace: str, name: str) -> tuple[Watched[Version], ...]:
    """A job, its pods and its explanation."""

    def version(obj: batch.Job | core.Pod) -> Version:
        return Version(obj.metadata.key)

    def explained(explanation: Explanation) -> Version:
        return Version(explanation.job)

    name_of = ("job", namespace, name)
    return (
        Watched((*name_of, "job"), calls.watch_job(namespace, name), version, _key),
        Watched((*name_of, "pods"), calls.watch_job_pods(namespace, name), version, _key),
        Watched(
            (*name_of, "explanation"),
            calls.watch_explanation(namespace, name),
            explained,
            lambda job_explanation: job_explanation.job,
        ),
    )


async def opened(console: Console, session: Session, watched: Watched[Any]) -> LiveRows[Any]:
    """A list of the session, complete. Raises ClientError."""
    return await console.lists.open(session.id, session.client, watched)


async def opened_in_part(
    console: Console, session: Session, watched: Watched[Any]
) -> LiveRows[Any]:
    """A list of the session, which may be incomplete if it is large and new. Raises ClientError."""
    return await console.lists.open(session.id, session.client, watched, may_be_partial=True)


def _key(obj: Object) -> str:
    return obj.metadata.key
