"""The tables of vcctl and the v* programs, identical up to the spacing. Pure. Source: Volcano,
pkg/cli."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from stromboli.cli.render import output, pod_status
from stromboli.shared import keys
from stromboli.shared.api import batch, flow, kinds, meta, scheduling
from stromboli.shared.api.kinds import Kind

Counts = Mapping[tuple[str, str], int]
"""(queue, phase of PodGroups) -> number."""

_JOB_COLUMNS: tuple[tuple[str, int], ...] = (
    ("Creation", 15),
    ("Phase", 12),
    ("JobType", 12),
    ("Replicas", 12),
    ("Min", 6),
    ("Pending", 10),
    ("Running", 10),
    ("Succeeded", 12),
    ("Failed", 10),
    ("Unknown", 12),
    ("RetryCount", 10),
)
_NAME_GAP = 3
_QUEUE_NAME, _QUEUE_CELL = 25, 8
QUEUE_PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
POD_HEADERS = ("Name", "Ready", "Status", "Restart", "Age")


def jobs(
    all_jobs: Sequence[batch.Job], selected: Sequence[batch.Job], *, all_namespaces: bool
) -> list[str]:
    """The table of jobs: a row for each of ``selected``; the columns fit the names of all
    ``all_jobs``."""
    widths = {
        "Namespace": max(
            len(it) for it in ("Namespace", *(j.metadata.namespace for j in all_jobs))
        ),
        "Name": max(len(it) for it in ("Name", *(j.metadata.name for j in all_jobs))),
    }
    names = [(name, width + _NAME_GAP) for name, width in widths.items()]
    columns = [*(names if all_namespaces else names[1:]), *_JOB_COLUMNS]
    rows = [tuple(header for header, _ in columns)]
    for job in selected:
        namespace = (job.metadata.namespace,) if all_namespaces else ()
        rows.append((*namespace, job.metadata.name, *_job_cells(job)))
    return [
        "".join(cell.ljust(width) for cell, (_, width) in zip(row, columns, strict=True))
        for row in rows
    ]


def queues(listed: Sequence[scheduling.Queue], counts: Counts) -> list[str]:
    """The table of ``vcctl queue list``: counts of PodGroups by phase, and the parent."""
    headers = ("Weight", "State", "Parent", *QUEUE_PHASES)
    rows = [
        (
            queue.metadata.name,
            str(queue.spec.weight),
            queue.status.state,
            queue.spec.parent,
            *(str(counts.get((queue.metadata.name, phase), 0)) for phase in QUEUE_PHASES),
        )
        for queue in listed
    ]
    return _queue_lines([("Name", *headers), *rows])


def own_queues(listed: Sequence[tuple[scheduling.Queue, Mapping[str, object]]]) -> list[str]:
    """The table of the program vqueues: counts from the queue's status."""
    phases = QUEUE_PHASES[:-1]
    rows = [
        (
            queue.metadata.name,
            str(queue.spec.weight),
            queue.status.state,
            *(str(status.get(phase.lower(), 0)) for phase in phases),
        )
        for queue, status in listed
    ]
    return _queue_lines([("Name", "Weight", "State", *phases), *rows])


def pods(listed: Sequence[pod_status.Pod], now: datetime, *, all_namespaces: bool) -> list[str]:
    """The table of pods. Columns are two characters wider than their header, or eight wider than
    their longest cell."""
    headers = (("Namespace",) if all_namespaces else ()) + POD_HEADERS
    rows = [
        (
            *((pod.metadata.namespace,) if all_namespaces else ()),
            pod.metadata.name,
            pod_status.ready(pod),
            pod_status.status(pod),
            pod_status.restarts(pod, now),
            age(pod.metadata.creation_timestamp, now),
        )
        for pod in listed
    ]
    widths = [
        max(len(header) + 2, *(len(row[place]) + 8 for row in rows))
        for place, header in enumerate(headers)
    ]
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (headers, *rows)
    ]


def workloads(kind: Kind[Any], objs: Sequence[meta.Object], now: datetime) -> list[str]:
    """The table of JobFlows (name, phase, age) or JobTemplates (name). Columns are four characters
    wider than their longest cell."""
    rows: list[tuple[str, ...]] = [("Name", "Namespace")]
    rows += [(each.metadata.name, each.metadata.namespace) for each in objs]
    if kind is kinds.JOB_FLOWS:
        rows[0] += ("Phase", "Age")
        for number, each in enumerate(objs, 1):
            phase = each.status.state.phase if isinstance(each, flow.JobFlow) else ""
            rows[number] += (phase, age(each.metadata.creation_timestamp, now))
    widths = [max(map(len, column)) + 4 for column in zip(*rows, strict=True)]
    return [
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]


def age(since: datetime | None, now: datetime) -> str:
    """The age as kubectl shows it."""
    if since is None:
        return "<unknown>"
    return "<invalid>" if now - since < timedelta(seconds=-1) else output.age(since, now)


def _job_cells(job: batch.Job) -> tuple[str, ...]:
    status, created = job.status, job.metadata.creation_timestamp
    numbers = (
        sum(task.replicas for task in job.spec.tasks),
        status.min_available,
        status.pending,
        status.running,
        status.succeeded,
        status.failed,
        status.unknown,
        status.retry_count,
    )
    return (
        f"{created:%Y-%m-%d}" if created else "0001-01-01",
        status.state.phase,
        job.metadata.label(keys.JOB_TYPE) or "Batch",
        *map(str, numbers),
    )


def _queue_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        row[0].ljust(_QUEUE_NAME) + "".join(cell.ljust(_QUEUE_CELL) for cell in row[1:])
        for row in rows
    ]
