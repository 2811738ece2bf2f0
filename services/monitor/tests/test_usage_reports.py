"""What is published of the reports of loads."""

from datetime import datetime, timedelta

import pytest

from stromboli.monitor.core import usage_reports
from stromboli.shared import envelope, topics
from stromboli.shared.messages import base, node_usage
from stromboli.testkit import builders

SILENCE = timedelta(seconds=90)


def at(seconds: float) -> datetime:
    return builders.NOON + timedelta(seconds=seconds)


def usage(percent: int) -> node_usage.NodeLoad:
    load = node_usage.DeviceLoad(busiest="sda", percent=percent)
    return node_usage.NodeLoad(window_s=60, disk=load)


def seen(draft: envelope.Draft | None) -> node_usage.UsageObserved:
    assert draft is not None
    assert draft.topic == topics.USAGE
    assert isinstance(draft.message, node_usage.UsageObserved)
    return draft.message


def test_loads_that_hardly_change_are_not_published_again() -> None:
    known = usage_reports.UsageReports(SILENCE)
    first = seen(known.report("n1", usage(50), at(0)))
    assert first == node_usage.UsageObserved(node="n1", observed_at=at(0), usage=usage(50))
    assert known.report("n1", usage(59), at(100)) is None
    assert seen(known.report("n1", usage(60), at(140))).usage == usage(60)


def test_a_node_has_at_most_one_record_a_minute() -> None:
    known = usage_reports.UsageReports(SILENCE)
    assert known.report("n1", usage(0), at(0))
    assert known.report("n1", usage(100), at(59)) is None
    assert known.report("n2", usage(100), at(59))
    assert seen(known.report("n1", usage(100), at(60))).usage == usage(100)


def test_the_loads_of_a_silent_agent_are_marked_and_its_next_report_is_published() -> None:
    known = usage_reports.UsageReports(SILENCE)
    known.report("n1", usage(50), at(0))
    (draft,) = known.tick(at(91), lambda _: True)
    assert seen(draft).silent_since == at(0)
    assert seen(known.report("n1", usage(50), at(92))).silent_since is None


def test_the_loads_of_a_deleted_node_are_deleted() -> None:
    known = usage_reports.UsageReports(SILENCE)
    known.report("n1", usage(50), at(0))
    (draft,) = known.tick(at(1), lambda _: False)
    assert (draft.key, draft.message) == ("n1", None)


@pytest.mark.parametrize("percent", [-1, 101])
def test_a_load_that_is_no_percentage_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match="not between 0 and 100"):
        usage_reports.read(base.encode(usage(percent)))


def test_a_long_name_is_refused() -> None:
    load = node_usage.DeviceLoad(busiest="x" * 65, percent=1)
    with pytest.raises(ValueError, match="65 characters, at most 64"):
        usage_reports.read(base.encode(node_usage.NodeLoad(network=load)))
