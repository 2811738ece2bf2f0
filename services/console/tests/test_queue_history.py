"""What a queue held by day: averages of the part of a day that is over, children included."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from stromboli.console.core import queue_history, usage_rows
from stromboli.shared.api import scheduling
from stromboli.shared.api.views import accounting
from stromboli.testkit.builders import make_queue

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
TODAY, YESTERDAY = "2026-03-31", "2026-03-30"


def queue(name: str, deserved: dict[str, str] | None = None, parent: str = "") -> scheduling.Queue:
    made = make_queue(name, parent=parent)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, deserved=deserved))


def used(name: str, day: str, gpu_hours: float = 0, cpu_hours: float = 0) -> accounting.Usage:
    none: dict[str, Any] = dict.fromkeys(usage_rows.SUMS, 0.0)
    sums = {"gpu_seconds": 3600 * gpu_hours, "cpu_seconds": 3600 * cpu_hours}
    return accounting.Usage(group={"day": day, "queue": name}, attempts=1, **none | sums)


def history(
    name: str, queues: list[scheduling.Queue], *usage: accounting.Usage
) -> queue_history.QueueHistory:
    query = queue_history.query(NOW)
    report = accounting.UsageReport(since=query.since, until=query.until, usage=usage)
    return queue_history.history({it.metadata.name: it for it in queues}, name, report, NOW)


def test_a_day_is_the_average_of_the_part_that_is_over() -> None:
    """At noon, 24 GPU hours are 2 GPUs on average."""
    found = history("a", [queue("a")], used("a", TODAY, 24), used("a", YESTERDAY, 24))
    assert len(found.days) == queue_history.DAYS + 1
    assert [(it.day, it.held) for it in found.days[-2:]] == [(YESTERDAY, "1.00"), (TODAY, "2.00")]
    assert {it.held for it in found.days[:-2]} == {"0.00"}
    assert [it.height for it in found.days[-2:]] == [queue_history.HEIGHT / 2, queue_history.HEIGHT]


def test_a_queue_has_what_its_children_held_and_no_others() -> None:
    queues = [queue("org"), queue("a", parent="org"), queue("b", parent="org"), queue("c")]
    usage = [used(name, YESTERDAY, 24) for name in ("a", "b", "c", "deleted")]
    assert history("org", queues, *usage).days[-2].held == "2.00"
    assert history("c", queues, *usage).days[-2].held == "1.00"


def test_days_beyond_the_share_are_marked() -> None:
    share = [queue("a", {"nvidia.com/gpu": "4"})]
    found = history("a", share, used("a", YESTERDAY, 24 * 8), used("a", TODAY, 12 * 4))
    assert [it.is_over for it in found.days[-2:]] == [True, False]
    assert (found.deserved, found.deserved_y) == ("4", queue_history.HEIGHT / 2)


@pytest.mark.parametrize(("hours", "resource"), [({"gpu_hours": 1}, "GPUs"), ({}, "CPUs")])
def test_cpus_are_shown_where_no_gpus_matter(hours: dict[str, float], resource: str) -> None:
    found = history("a", [queue("a")], used("a", YESTERDAY, cpu_hours=48, **hours))
    assert found.resource == resource


def test_a_queue_without_usage_or_share_is_flat_and_not_an_error() -> None:
    found = history("a", [queue("a")])
    assert {it.height for it in found.days} == {0.0}
    assert found.deserved_y is None


def test_the_query_has_whole_days() -> None:
    """Those are answered from the sums of days."""
    query = queue_history.query(NOW)
    assert query.until - query.since == timedelta(days=queue_history.DAYS + 1)
    assert query.since.hour == query.until.hour == 0
