"""The average amount that a queue held on each day, and the share that it deserves today. Pure.

The average comes from usage by day and queue: the hours that a queue and its children used on a
day, divided by the elapsed hours of that day.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta

import msgspec

from stromboli.console.core import amounts, queue_trees
from stromboli.shared.api import scheduling
from stromboli.shared.api.views import accounting

DAYS = 30
"""Days before today that a page shows."""
HEIGHT = 60.0
"""Height of the chart, in the unit of its bars."""
STEP = 10
"""Width of a day in the chart."""


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """A day (UTC): the average amount that the queue held, and its bar in the chart. ``is_over``:
    it held more than it deserves today."""

    day: str
    held: str
    x: float
    height: float
    is_over: bool


class QueueHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The days of a queue, the first one first. ``most``: the amount at the top of the chart;
    ``deserved_y``: the position of the mark of the deserved amount, from the top; None without
    one."""

    resource: str
    days: tuple[Day, ...]
    most: str
    deserved: str
    deserved_y: float | None
    width: int


def query(now: datetime) -> accounting.UsageQuery:
    """The query for the usage by day and queue, from which ``history`` makes that of a queue."""
    today = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    since, until = today - timedelta(days=DAYS), today + timedelta(days=1)
    return accounting.UsageQuery(since=since, until=until, by=("day", "queue"))


def history(
    queues: Mapping[str, scheduling.Queue],
    name: str,
    report: accounting.UsageReport,
    now: datetime,
) -> QueueHistory:
    """What a queue with its children held by day: GPUs if it used or deserves any, else CPUs. Days
    without usage are zero. O(usage x depth)."""
    seconds = _seconds(queues, name, report.usage)
    queue = queues.get(name)
    deserved = amounts.read(queue.spec.deserved) if queue is not None else {}
    of_gpus = any(gpu for gpu, _ in seconds.values()) or amounts.gpus(deserved) > 0
    share = amounts.gpus(deserved) / 1000 if of_gpus else deserved.get("cpu", 0) / 1000
    first = report.since.astimezone(UTC).date()
    daily_averages = [
        _average(seconds.get(day.isoformat(), (0.0, 0.0))[0 if of_gpus else 1], day, now)
        for day in (first + timedelta(days=at) for at in range(DAYS + 1))
    ]
    most = max([*daily_averages, share, 0.001])
    days = tuple(
        Day(
            day=(first + timedelta(days=at)).isoformat(),
            held=f"{amount:.2f}",
            x=at * STEP,
            height=round(HEIGHT * amount / most, 2),
            is_over=bool(share) and amount > share,
        )
        for at, amount in enumerate(daily_averages)
    )
    return QueueHistory(
        resource="GPUs" if of_gpus else "CPUs",
        days=days,
        most=f"{most:.2f}",
        deserved=f"{share:g}" if share else "",
        deserved_y=round(HEIGHT * (1 - share / most), 2) if share else None,
        width=STEP * len(days),
    )


def _seconds(
    queues: Mapping[str, scheduling.Queue], name: str, usage: Iterable[accounting.Usage]
) -> dict[str, tuple[float, float]]:
    """Day -> GPU seconds and core seconds of the queue and the queues below it."""
    seconds_by_day: dict[str, tuple[float, float]] = {}
    for each in usage:
        if name in queue_trees.ancestors(queues, each.group["queue"]):
            gpu, cpu = seconds_by_day.get(each.group["day"], (0.0, 0.0))
            seconds_by_day[each.group["day"]] = gpu + each.gpu_seconds, cpu + each.cpu_seconds
    return seconds_by_day


def _average(seconds: float, day: date, now: datetime) -> float:
    begin = datetime.combine(day, time(), UTC)
    over_s = min(86_400.0, (now - begin).total_seconds())
    return seconds / over_s if over_s >= 1 else 0.0
