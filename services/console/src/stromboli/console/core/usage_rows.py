"""Usage by group, from the history: filters from the URL and rows. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from stromboli.console.core import url_filters
from stromboli.console.core.past_attempts import AttemptFilters, hours
from stromboli.console.core.url_filters import UrlFilters, word
from stromboli.shared.api.views import accounting, efficiency

USUAL_DAYS = 30
"""The default interval is today and as many days before it, as in ``strom usage``."""
MOST_ROWS = 500
"""Groups that a page shows; the total has all."""
SUMS = (
    "cpu_seconds",
    "memory_gib_seconds",
    "gpu_seconds",
    "evicted_cpu_seconds",
    "evicted_gpu_seconds",
    "idle_cpu_seconds",
    "idle_gpu_seconds",
)
"""The columns of a report after the number of attempts."""
MEASURED = (
    ("used_cpu_seconds", "measured_cpu_seconds"),
    ("used_memory_gib_seconds", "measured_memory_gib_seconds"),
    ("used_gpu_seconds", "measured_gpu_seconds"),
)
"""What was used, and the part of the requests with which it is compared."""


class UsageFilters(UrlFilters, frozen=True, kw_only=True):
    """The filters of the report. ``since`` and ``until`` are days (UTC), both included. ``by`` and
    ``then`` are keys of groups; ``label``: the key of a label to group by."""

    by: str = "queue"
    then: str = ""
    label: str = ""
    user: str = ""
    queue: str = ""
    since: str = ""
    until: str = ""

    def query(self) -> accounting.UsageQuery:
        """These filters as a query to REST."""
        label = accounting.LABEL + self.label if self.label else ""
        return accounting.UsageQuery(
            since=url_filters.begin(self.since),
            until=url_filters.end(self.until),
            by=tuple(dict.fromkeys(filter(None, (self.by, self.then, label)))),
            namespace=self.scope,
            user=self.user,
            queue=self.queue,
        )


class Range(msgspec.Struct, frozen=True):
    """An interval that a page offers: its name, its first and its last day."""

    name: str
    since: str
    until: str


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A group: the values of its keys, its attempts, and hours in the order of ``SUMS``.
    ``percent``: its share of the GPU hours, or of the CPU hours where no GPUs were used.
    ``attempts_of``: the filters that select its attempts. ``used``: the shares of CPU, memory and
    GPUs that processes used, of the attempts that were measured; empty if none was."""

    group: tuple[str, ...]
    attempts: int
    hours: tuple[str, ...]
    percent: float
    used: tuple[str, ...] = ()
    attempts_of: AttemptFilters | None = None


def read_filters(query: Mapping[str, str], now: datetime) -> UsageFilters:
    """The filters of a URL's query. Invalid values, as from a typo in the URL, are ignored. The
    default interval ends with today."""
    usual = now - timedelta(days=USUAL_DAYS)
    by, then = word(query, "by"), word(query, "then")
    return UsageFilters(
        namespace=word(query, "namespace"),
        by=by if by in accounting.GROUPS else "queue",
        then=then if then in accounting.GROUPS else "",
        label=word(query, "label"),
        user=word(query, "user"),
        queue=word(query, "queue"),
        since=url_filters.day(query, "since") or usual.date().isoformat(),
        until=url_filters.day(query, "until") or now.date().isoformat(),
    )


def ranges(now: datetime) -> list[Range]:
    """The intervals that a page offers. Days are those of UTC."""
    today = now.date()
    month = today.replace(day=1)
    before = month - timedelta(days=1)
    return [
        Range("Today", today.isoformat(), today.isoformat()),
        Range("7 days", (today - timedelta(days=6)).isoformat(), today.isoformat()),
        Range("This month", month.isoformat(), today.isoformat()),
        Range("Last month", before.replace(day=1).isoformat(), before.isoformat()),
    ]


def rows(usage: Sequence[accounting.Usage], filters: UsageFilters) -> list[UsageRow]:
    """The groups in their order, at most ``MOST_ROWS``."""
    whole = total(usage)
    of_gpus = sum(it.gpu_seconds for it in usage)
    share_of = "gpu_seconds" if of_gpus else "cpu_seconds"
    sum_ = of_gpus or sum(it.cpu_seconds for it in usage)
    return [
        msgspec.structs.replace(
            whole,
            group=tuple(it.group.values()),
            attempts=it.attempts,
            hours=tuple(hours(getattr(it, name)) for name in SUMS),
            percent=round(100.0 * getattr(it, share_of) / sum_, 1) if sum_ else 0.0,
            used=used((it,)),
            attempts_of=_attempts_of(it.group, filters),
        )
        for it in usage[:MOST_ROWS]
    ]


def total(usage: Sequence[accounting.Usage]) -> UsageRow:
    """The sum of all groups."""
    return UsageRow(
        group=(),
        attempts=sum(it.attempts for it in usage),
        hours=tuple(hours(sum(getattr(it, name) for it in usage)) for name in SUMS),
        percent=100.0,
        used=used(usage),
    )


def used(usage: Sequence[accounting.Usage]) -> tuple[str, ...]:
    """The used shares of groups together."""
    sums = ((sum(getattr(it, name) for it in usage) for name in pair) for pair in MEASURED)
    return tuple(efficiency.Part(*pair).percent for pair in sums)


def _attempts_of(group: Mapping[str, str], filters: UsageFilters) -> AttemptFilters | None:
    """The filters of a group's attempts; None for a group that no filter selects, such as jobs
    without a user, or a GPU type."""
    known = {"since": filters.since, "until": filters.until}
    known |= {"namespace": filters.namespace, "user": filters.user, "queue": filters.queue}
    for key, value in group.items():
        if key.startswith(accounting.LABEL) or key == accounting.GPU_TYPE or not value:
            return None
        known |= {"since": value, "until": value} if key == "day" else {key: value}
    return AttemptFilters(**known)
