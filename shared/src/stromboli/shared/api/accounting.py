"""What ran: the queries of the history and their answers, as services and REST exchange them."""

from datetime import datetime
from typing import Protocol

import msgspec

from stromboli.shared.decoding import Instant

MOST_ATTEMPTS = 10_000
"""Attempts of one page: some megabytes."""
ATTEMPTS_PER_PAGE = 1000
LABEL = "label:"
"""Prefix of a label's key among the keys by which usage is grouped."""
GROUPS = ("queue", "user", "namespace", "job", "node", "day")
"""What usage can be grouped by, beside ``label:KEY``."""
MOST_DAYS = 400
"""Days of one report that is grouped by day."""


class AttemptQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which attempts; an empty field selects all. ``since`` and ``until``: attempts that existed
    in this interval. ``device``: the id of a device that was assigned. ``after``: the ``continue``
    of the page before."""

    namespace: str = ""
    job: str = ""
    uid: str = ""
    user: str = ""
    queue: str = ""
    states: tuple[str, ...] = ()
    since: Instant | None = None
    until: Instant | None = None
    node: str = ""
    device: str = ""
    labels: dict[str, str] = {}
    limit: int = ATTEMPTS_PER_PAGE
    after: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod of a task index, with its job and what it used.

    ``state``, ``reason`` and ``exit_code`` as in ``batch.events``. Times are None until the state
    is reached, and where it was not observed; ``allocated_at`` is the time from which its requests
    count as used. ``requests``: resource -> amount in the units of
    ``stromboli.shared.formats.units``. The seconds are requests times the time since
    ``allocated_at``: core-seconds, GiB-seconds and GPU-seconds.
    """

    namespace: str
    job: str
    uid: str
    queue: str
    user: str
    task: str
    index: int
    attempt: int
    retry_count: int
    pod: str
    pod_uid: str
    state: str
    reason: str = ""
    detail: str = ""
    exit_code: int | None = None
    node: str = ""
    submitted_at: Instant | None = None
    allocated_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    requests: dict[str, int] = {}
    devices: dict[str, tuple[str, ...]] = {}
    labels: dict[str, str] = {}
    cpu_seconds: float = 0.0
    memory_gib_seconds: float = 0.0
    gpu_seconds: float = 0.0


class AttemptPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Attempts, the last submitted first. ``continue`` is the token of the next page, empty on the
    last. ``complete``: everything that was published before the request is in it."""

    attempts: tuple[Attempt, ...]
    continue_: str = msgspec.field(name="continue", default="")
    complete: bool = True


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Usage within [``since``, ``until``), grouped by the keys ``by``: some of ``GROUPS``, or
    ``label:KEY``. An empty filter selects all."""

    since: Instant
    until: Instant
    by: tuple[str, ...] = ("queue",)
    namespace: str = ""
    user: str = ""
    queue: str = ""
    labels: dict[str, str] = {}


class Usage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a group used: requests times the time that pods had them, in core-seconds, GiB-seconds
    and GPU-seconds. ``evicted_...``: the part of attempts that were preempted, so that their work
    was lost. ``idle_...``: the part before the containers ran: reserved and unused."""

    group: dict[str, str]
    attempts: int
    cpu_seconds: float
    memory_gib_seconds: float
    gpu_seconds: float
    evicted_cpu_seconds: float
    evicted_gpu_seconds: float
    idle_cpu_seconds: float
    idle_gpu_seconds: float


class UsageReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The groups, the largest use of CPU first (by day in the order of days)."""

    since: Instant
    until: Instant
    usage: tuple[Usage, ...]
    complete: bool = True


class History(Protocol):
    """Answers queries about everything that ran."""

    async def attempts(self, query: AttemptQuery) -> AttemptPage:
        """A page of attempts. Raises InvalidError for a malformed ``after``, UnavailableError."""

    async def usage(self, query: UsageQuery) -> UsageReport:
        """A report. Raises InvalidError for an unknown group, UnavailableError."""


def days(since: datetime, until: datetime) -> int:
    """The number of calendar days (UTC) that an interval touches."""
    return max(0, (until.date() - since.date()).days + 1)
