"""Usage of queues against what they deserve: with their children, over the part that is over."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stromboli.console.core import deserved_usage, usage_rows
from stromboli.shared.api import scheduling
from stromboli.shared.api.views import accounting
from stromboli.testkit.builders import NOON, make_queue

DAY = timedelta(days=1)


def queue(name: str, deserved: dict[str, str] | None = None, parent: str = "") -> scheduling.Queue:
    made = make_queue(name)
    spec = msgspec.structs.replace(made.spec, deserved=deserved, parent=parent)
    return msgspec.structs.replace(made, spec=spec)


def report(days: int = 1, **gpu_hours: float) -> accounting.UsageReport:
    none: dict[str, Any] = dict.fromkeys(usage_rows.SUMS, 0.0)
    usage = tuple(
        accounting.Usage(
            group={"queue": name}, attempts=1, **{**none, "gpu_seconds": 3600.0 * hours}
        )
        for name, hours in gpu_hours.items()
    )
    return accounting.UsageReport(since=NOON, until=NOON + days * DAY, usage=usage)


def shown(found: list[deserved_usage.QueueUsage]) -> list[tuple[str, int, str, str]]:
    return [(it.name, it.depth, it.gauges[0].used, it.gauges[0].deserved) for it in found]


FOUR = {"nvidia.com/gpu": "4"}


def test_a_queue_deserves_its_share_for_the_whole_interval() -> None:
    (found,) = deserved_usage.rows([queue("a", FOUR)], report(2, a=48.0), NOON + 2 * DAY)
    (gauge,) = found.gauges
    assert (gauge.used, gauge.deserved, gauge.borrowed) == ("48.00 (25 %)", "192.00", "")
    assert (gauge.percent, gauge.deserved_percent, gauge.is_over) == (25.0, 100.0, False)


def test_an_interval_that_is_not_over_deserves_the_part_that_is() -> None:
    """Else each queue of a month that has begun would seem to be short of its share."""
    (found,) = deserved_usage.rows([queue("a", FOUR)], report(30, a=48.0), NOON + DAY / 2)
    assert (found.gauges[0].used, found.gauges[0].deserved) == ("48.00 (100 %)", "48.00")


def test_what_is_beyond_the_share_was_borrowed() -> None:
    (found,) = deserved_usage.rows([queue("a", FOUR)], report(a=192.0), NOON + DAY)
    (gauge,) = found.gauges
    assert (gauge.is_over, gauge.borrowed) == (True, "96.00")
    assert (gauge.percent, gauge.deserved_percent) == (100.0, 50.0)


def test_usage_of_children_counts_for_their_parents() -> None:
    queues = [queue("org", FOUR), queue("a", FOUR, "org"), queue("b", FOUR, "org"), queue("free")]
    found = deserved_usage.rows(queues, report(a=12.0, b=24.0, gone=5.0, free=1.0), NOON + DAY)
    assert shown(found) == [
        ("org", 0, "36.00 (38 %)", "96.00"),
        ("a", 1, "12.00 (12 %)", "96.00"),
        ("b", 1, "24.00 (25 %)", "96.00"),
    ]


def test_a_loop_of_parents_counts_usage_once() -> None:
    queues = [queue("a", FOUR, "b"), queue("b", FOUR, "a")]
    found = deserved_usage.rows(queues, report(a=24.0), NOON + DAY)
    assert [it.gauges[0].used for it in found] == ["24.00 (25 %)", "24.00 (25 %)"]


def test_a_share_of_cpus_alone_and_one_of_nothing() -> None:
    queues = [queue("a", {"cpu": "2"}), queue("b", {"nvidia.com/gpu": "0"})]
    found = deserved_usage.rows(queues, report(b=1.0), NOON + DAY)
    assert [(it.name, it.gauges[0].resource, it.gauges[0].used) for it in found] == [
        ("a", "CPU hours", "0.00 (0 %)"),
        ("b", "GPU hours", "1.00"),
    ]


@pytest.mark.parametrize(
    ("query", "is_comparable"),
    [
        ({}, True),
        ({"namespace": "*"}, True),
        ({"namespace": "team"}, False),
        ({"user": "ann"}, False),
        ({"queue": "a"}, False),
        ({"then": "user"}, False),
        ({"by": "user"}, False),
    ],
)
def test_only_a_report_of_whole_queues_is_compared(
    query: dict[str, str], is_comparable: bool
) -> None:
    assert deserved_usage.is_comparable(usage_rows.read_filters(query, NOON)) == is_comparable
