"""The time between submission and bind, hop by hop.

The journey of a job is a sequence of times on one machine's clock. Timestamps in Kubernetes objects
have whole seconds only, so the times of objects are those at which the observer's watches showed
them; records in the log contain the microsecond at which the writer created them (``ce_time``). A
hop is the time from one point to the next, named after what happens in it.

A journey takes one of two paths. ``created_bound``: one session admits the job to its queue and
places its pod by the published plan, and the pod is created with its node. ``pending``: the session
only admits the job; its pod is created pending, and another session places it.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import aiokafka

from bench import observer

CELL = "default"
TOPICS = (
    "cluster.jobs",
    "cluster.podgroups",
    "cluster.pods",
    "batch.plans",
    "scheduling.decisions",
)
Path = Literal["created_bound", "pending"]
HOPS: dict[Path, tuple[tuple[str, str], ...]] = {
    "created_bound": (
        ("job_seen", "POST, two webhooks, etcd; a watch shows the job"),
        ("job_logged", "monitor: the job's watch event becomes a record"),
        ("pod_group_seen", "log, controller, POST PodGroup; a watch shows it"),
        ("placeable", "monitor, and the dry run beside the POST: PodGroup and plan are records"),
        ("enqueue_decided", "log, scheduler: session that admits it and places its pod"),
        ("bound_seen", "log, controller, POST pod with nodeName; a watch shows it"),
    ),
    "pending": (
        ("job_seen", "POST, two webhooks, etcd; a watch shows the job"),
        ("job_logged", "monitor: the job's watch event becomes a record"),
        ("pod_group_seen", "log, controller, POST PodGroup; a watch shows it"),
        ("pod_group_logged", "monitor: the PodGroup's event becomes a record"),
        ("enqueue_decided", "log, scheduler: session that admits it to its queue"),
        ("pod_seen", "log, controller, POST pod; a watch shows it"),
        ("pod_logged", "monitor: the pod's event becomes a record"),
        ("bind_decided", "log, scheduler: session that places it"),
        ("bound_seen", "log, controller, POST binding; a watch shows nodeName"),
    ),
}
"""The points in time after ``sent`` of each path, in order, each with a description of the hop
before it."""


class Journey(NamedTuple):
    """The points in time of one job, in seconds since 1970: one for each hop of its path."""

    job: str
    path: Path
    sent: float
    answered: float
    times: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """Seconds from sending the POST to the watch event with nodeName."""
        return self.times[-1] - self.sent

    def hops_s(self) -> Iterator[float]:
        """The durations of its hops, in the order of ``HOPS``."""
        before = self.sent
        for at in self.times:
            yield at - before
            before = at


def assembled(
    job: str, answer: tuple[float, float], seen: observer.Sightings, found: Logged
) -> Journey:
    """The journey of a job from what the watches showed and the log contains. ``answer``: when its
    POST was sent and when the server had responded. Raises KeyError with the missing point."""
    path: Path = "created_bound" if job in found.times["placed_at_once"] else "pending"
    points: dict[str, Mapping[str, float]] = {
        "job_seen": seen.job,
        "pod_group_seen": seen.pod_group,
        "pod_seen": seen.pod,
        "bound_seen": seen.bound,
        **found.times,
        "placeable": _later_of(found.times["pod_group_logged"], found.times["plan_logged"]),
    }
    missing = [name for name, _ in HOPS[path] if job not in points[name]]
    if missing:
        raise KeyError(f"job {job} on path {path}: no {', '.join(missing)}")
    times = tuple(points[name][job] for name, _ in HOPS[path])
    return Journey(job, path, *answer, times)


def _later_of(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """The later of two points of each job that has both."""
    return {job: max(one[job], other[job]) for job in one.keys() & other.keys()}


LOGGED = (
    "job_logged",
    "plan_logged",
    "pod_group_logged",
    "enqueue_decided",
    "placed_at_once",
    "pod_logged",
    "bind_decided",
)


class Logged:
    """The first record of each kind for each job: job -> time at which its writer created it."""

    def __init__(self) -> None:
        self.times: dict[str, dict[str, float]] = {name: {} for name in LOGGED}

    def take(self, topic: str, key: str, headers: dict[str, str], value: Any) -> None:
        """Note one record."""
        match topic, value:
            case "cluster.jobs", {"metadata": {"name": name}}:
                self._note("job_logged", name, headers)
            case "cluster.podgroups", {"metadata": {"ownerReferences": [{"name": name}, *_]}}:
                self._note("pod_group_logged", name, headers)
            case "cluster.pods", {"metadata": {"annotations": {observer.JOB_NAME: name}}}:
                self._note("pod_logged", name, headers)
            case "batch.plans", {"job": job}:
                self._note("plan_logged", job.partition("/")[2], headers)
            case "scheduling.decisions", {"enqueue": True}:
                self._note("enqueue_decided", _job_of(key), headers)
                if value.get("binds"):
                    self._note("placed_at_once", _job_of(key), headers)
            case "scheduling.decisions", {"binds": [_, *_]}:
                self._note("bind_decided", _job_of(key), headers)

    def _note(self, what: str, job: str, headers: dict[str, str]) -> None:
        at = datetime.fromisoformat(headers["ce_time"]).timestamp()
        self.times[what].setdefault(job, at)


def _job_of(pod_group: str) -> str:
    """``namespace/<job>-<uid>``; a uid has 36 characters."""
    return pod_group.partition("/")[2][:-37]


async def logged(bootstrap: str) -> Logged:
    """Read all records in the log. Call it after the run, which reading would slow down."""
    found = Logged()
    names = [f"{CELL}.{name}" for name in TOPICS]
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
    async with consumer:
        partitions = [aiokafka.TopicPartition(name, 0) for name in names]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        for partition, end in (await consumer.end_offsets(partitions)).items():
            while await consumer.position(partition) < end:
                batches = await consumer.getmany(partition, timeout_ms=1000)
                for record in batches.values():
                    _take(found, record)
    return found


def _take(found: Logged, records: Iterable[Any]) -> None:
    for record in records:
        headers = {name: value.decode() for name, value in record.headers}
        value = json.loads(record.value) if record.value else None
        key = record.key.decode()
        found.take(record.topic.removeprefix(f"{CELL}."), key, headers, value)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def budget(path: Path, journeys: Sequence[Journey]) -> list[dict[str, Any]]:
    """The median and the 99th percentile in seconds of each hop of the journeys on a path."""
    columns = zip(*(it.hops_s() for it in journeys if it.path == path), strict=True)
    return [
        {
            "path": path,
            "until": name,
            "what": what,
            "p50_s": round(statistics.median(column), 6),
            "p99_s": round(percentile(column, 0.99), 6),
        }
        for (name, what), column in zip(HOPS[path], columns, strict=False)
    ]
