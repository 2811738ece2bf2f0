"""The list of jobs: rows, filters from the URL, order and pages. Pure.

A page of n rows of N matching ones costs one pass over all rows and O(N log n) for the order. There
may be 100,000 rows, and a page is rendered again for each change of a row. So what a pass reads is
computed once with the row, and ``operator.attrgetter`` reads the sort keys.
"""

import heapq
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import msgspec

from stromboli.client import phases
from stromboli.console.core import amounts
from stromboli.console.core.url_filters import UrlFilters, word
from stromboli.shared import decoding, keys
from stromboli.shared.api import batch, core, scheduling
from stromboli.shared.formats import units

PAGE_ROWS = 100
GROUPS: Mapping[str, frozenset[str]] = {
    "pending": frozenset({"Pending"}),
    "running": frozenset({"Running"}),
    "changing": frozenset({"Aborting", "Restarting", "Completing", "Terminating"}),
    "completed": frozenset({"Completed"}),
    "failed": frozenset({"Failed", "Terminated"}),
    "suspended": frozenset({"Aborted"}),
}
"""Filter ``phase`` -> phases of jobs."""
Sort = Literal["-created", "created", "name", "queue", "phase", "-gpus", "-cpu"]
SORTS: Mapping[Sort, str] = {
    "-created": "newest first",
    "created": "oldest first",
    "name": "name",
    "queue": "queue",
    "phase": "phase",
    "-gpus": "most GPUs",
    "-cpu": "most CPUs",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job in a list. ``cpu`` is in milli-cores and ``gpus`` in thousandths, both requested by all
    replicas; ``search`` is the text that a search matches against, in lower case. ``newest``: the
    sort key for the newest first."""

    namespace: str
    name: str
    uid: str
    queue: str
    user: str
    phase: str
    reason: str
    replicas: int
    min_available: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cpu: int
    gpus: int
    created: datetime
    since: datetime
    is_deleted: bool
    search: str
    newest: tuple[float, str, str]

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class GroupRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A PodGroup, with the reason and the message of its Unschedulable condition."""

    key: str
    queue: str
    phase: str
    reason: str = ""
    message: str = ""


class Filters(UrlFilters, frozen=True, kw_only=True):
    """The filters of the list. ``page`` counts from 1."""

    place: ClassVar[str] = "page"
    q: str = ""
    phase: str = ""
    queue: str = ""
    user: str = ""
    sort: Sort = "-created"
    page: int = 1


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list. ``counts``: rows by phase group, all other filters applied."""

    rows: tuple[JobRow, ...]
    matching: int
    counts: Mapping[str, int]
    page: int
    pages: int

    @property
    def first(self) -> int:
        """The number of the first row, from 1."""
        return (self.page - 1) * PAGE_ROWS + 1


def job_row(job: batch.Job) -> JobRow:
    """A job as a row."""
    requested: units.Amounts = {}
    for task in job.spec.tasks:
        requested = units.add(requested, units.times(task.replicas, _of_task(task)))
    status, state = job.status, job.status.state
    total = sum(task.replicas for task in job.spec.tasks)
    is_array = job.spec.array is not None
    created = job.metadata.creation_timestamp or _EPOCH
    user = job.metadata.annotation(keys.USER) or ""
    names = (job.metadata.namespace, job.metadata.name, job.spec.queue, user)
    labels = (f"{name}={value}" for name, value in (job.metadata.labels or {}).items())
    return JobRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        queue=job.spec.queue,
        user=user,
        phase=phases.phase_of(job),
        reason=phases.reason_of(job),
        replicas=total,
        min_available=job.spec.min_available,
        pending=status.pending,
        running=status.running,
        succeeded=status.succeeded,
        failed=status.failed
        if is_array
        else phases.failed_pods(job, total, status.succeeded, status.failed),
        cpu=requested.get("cpu", 0),
        gpus=amounts.gpus(requested),
        created=created,
        since=state.last_transition_time or created,
        is_deleted=job.metadata.deletion_timestamp is not None,
        search="\n".join((*names, *labels)).lower(),
        newest=newest(created, job.metadata.name, job.metadata.namespace),
    )


def newest(created: datetime, name: str, namespace: str) -> tuple[float, str, str]:
    """The sort key of a job for the newest first."""
    return -created.timestamp(), name, namespace


def group_row(group: scheduling.PodGroup) -> GroupRow:
    """A PodGroup as a row."""
    blocking = [
        it for it in group.status.conditions if it.type == "Unschedulable" and it.status == "True"
    ]
    return GroupRow(
        key=group.metadata.key,
        queue=group.spec.queue,
        phase=group.status.phase or "Pending",
        reason=blocking[-1].reason if blocking else "",
        message=blocking[-1].message if blocking else "",
    )


def read_filters(query: Mapping[str, str]) -> Filters:
    """The filters of a URL's query. Invalid values, as from a typo in the URL, are ignored."""
    page, sort, phase = word(query, "page"), word(query, "sort"), word(query, "phase")
    return Filters(
        q=word(query, "q"),
        phase=phase if phase in GROUPS else "",
        queue=word(query, "queue"),
        user=word(query, "user"),
        namespace=word(query, "namespace"),
        sort=sort if sort in SORTS else "-created",  # type: ignore[arg-type]  # one of them
        page=int(page) if page.isdecimal() and 0 < len(page) < 7 and int(page) else 1,
    )


def select(rows: Iterable[JobRow], filters: Filters) -> JobList:
    """The page of the list that the filters select. A page beyond the last one is the last one."""
    job_rows = list(rows)
    if filters.queue:
        job_rows = [row for row in job_rows if row.queue == filters.queue]
    if filters.user:
        job_rows = [row for row in job_rows if row.user == filters.user]
    for each in filters.q.lower().split():
        job_rows = [row for row in job_rows if each in row.search]
    counts = count(job_rows)
    if filters.phase:
        wanted = GROUPS[filters.phase]
        job_rows = [row for row in job_rows if row.phase in wanted]
    pages = max(1, -(-len(job_rows) // PAGE_ROWS))
    page = min(filters.page, pages)

    rank = _RANKS[filters.sort]
    # A heap is faster for the first pages, and several times slower for the last ones.
    last = page * PAGE_ROWS
    is_early = last * 20 < len(job_rows)
    ordered = heapq.nsmallest(last, job_rows, key=rank) if is_early else sorted(job_rows, key=rank)
    page_rows = tuple(ordered[last - PAGE_ROWS : last])
    return JobList(rows=page_rows, matching=len(job_rows), counts=counts, page=page, pages=pages)


def count(rows: Iterable[JobRow]) -> dict[str, int]:
    """The number of rows of each phase group, and of all."""
    by_phase = Counter(map(operator.attrgetter("phase"), rows))
    counts = {name: sum(by_phase[each] for each in group) for name, group in GROUPS.items()}
    return counts | {"all": by_phase.total()}


def _oldest(row: JobRow) -> tuple[float, str, str]:
    created, name, namespace = row.newest
    return -created, name, namespace


def _most(resource: Literal["cpu", "gpus"]) -> Callable[[JobRow], Any]:
    def rank(row: JobRow) -> tuple[int, tuple[float, str, str]]:
        return -getattr(row, resource), row.newest

    return rank


_RANKS: Mapping[Sort, Callable[[JobRow], Any]] = {
    "-created": operator.attrgetter("newest"),
    "created": _oldest,
    "name": operator.attrgetter("name", "namespace"),
    "queue": operator.attrgetter("queue", "newest"),
    "phase": operator.attrgetter("phase", "newest"),
    "-gpus": _most("gpus"),
    "-cpu": _most("cpu"),
}
"""Order -> sort key of a row. Sort keys are unique, since names are within a namespace."""


def _of_task(task: batch.TaskSpec) -> units.Amounts:
    """The request of one pod; none for a template that admission would reject."""
    try:
        return amounts.requests(decoding.from_json(task.template.spec, core.PodSpec))
    except msgspec.DecodeError:
        return {}
