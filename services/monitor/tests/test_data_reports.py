"""What is published of the reports of data caches, and what they are told to have."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from stromboli.monitor.core import data_reports
from stromboli.shared import envelope, topics
from stromboli.shared.messages import base, data
from stromboli.testkit import builders

SILENCE = timedelta(seconds=90)
WEB = "https://data.example.org/web"


def at(seconds: float) -> datetime:
    return builders.NOON + timedelta(seconds=seconds)


def copy(**more: Any) -> data.DataCopy:
    given: dict[str, Any] = {"key": "k1", "uri": WEB, "bytes": 100, "state": "Fetching"}
    return data.DataCopy(**given | more)


def observed(*copies: data.DataCopy, **more: Any) -> data.DataObserved:
    return data.DataObserved(node="n1", observed_at=at(-1), copies=copies, **more)


def opened(*drafts: envelope.Draft | None) -> data_reports.DataReports:
    """A monitor that finds these on its topic, and opens at second 0."""
    known = data_reports.DataReports(SILENCE)
    for offset, draft in enumerate(drafts):
        assert draft is not None
        known.apply(builders.make_record(draft, offset))
    known.open(at(0))
    return known


def seen(draft: envelope.Draft | None) -> data.DataObserved:
    assert draft is not None
    assert draft.topic == topics.DATA
    assert isinstance(draft.message, data.DataObserved)
    return draft.message


def everywhere(_: str) -> bool:
    return True


def test_a_report_has_the_time_of_the_monitor() -> None:
    """The clock of a node may be wrong, and an agent cannot call itself silent."""
    draft = opened().report("n1", observed(copy(), silent_since=at(-5)), at(1))
    assert seen(draft) == msgspec.structs.replace(observed(copy()), observed_at=at(1))


def test_an_unchanged_report_is_not_published_again() -> None:
    known = opened()
    known.report("n1", observed(copy()), at(1))
    assert known.report("n1", observed(copy()), at(1000)) is None
    assert known.tick(at(1010), everywhere) == [], "it counts as a report"


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "Complete"},
        {"state": "Failed", "reason": "disk full"},
        {"bytes": 200},
        {"digest": "sha256:0"},
        {"in_use": True},
    ],
    ids=str,
)
def test_a_change_that_matters_for_placement_is_published_immediately(
    changed: dict[str, Any],
) -> None:
    known = opened()
    known.report("n1", observed(copy()), at(1))
    fresh = observed(copy(**changed))
    assert seen(known.report("n1", fresh, at(1.1))).copies == fresh.copies


def test_a_vanished_copy_is_published_immediately() -> None:
    known = opened()
    known.report("n1", observed(copy(state="Complete")), at(1))
    assert seen(known.report("n1", observed(), at(1.1))).copies == ()


def test_progress_is_published_in_steps_of_time_and_not_lost() -> None:
    known = opened()
    known.report("n1", observed(copy()), at(1))
    assert known.report("n1", observed(copy(fetched_bytes=50), used_bytes=50), at(5)) is None
    assert known.report("n1", observed(copy(fetched_bytes=60), used_bytes=60), at(9)) is None
    assert seen(known.report("n1", observed(copy(fetched_bytes=60)), at(11))).copies == (
        copy(fetched_bytes=60),
    )


def test_the_last_report_of_a_silent_cache_stays_with_its_age() -> None:
    """Its copies may still be there: unknown is neither absent nor present."""
    known = opened()
    known.report("n1", observed(copy(state="Complete")), at(1))
    (draft,) = known.tick(at(92), everywhere)
    assert seen(draft).silent_since == at(1)
    assert seen(draft).copies == (copy(state="Complete"),)
    assert seen(known.report("n1", observed(copy(state="Complete")), at(93))).silent_since is None


def test_the_report_of_a_deleted_node_is_deleted() -> None:
    known = opened()
    known.report("n1", observed(), at(1))
    (draft,) = known.tick(at(2), lambda node: node != "n1")
    assert (draft.key, draft.message) == ("n1", None)


def test_a_restarted_monitor_publishes_nothing_again() -> None:
    first = opened().report("n1", observed(copy()), at(-100))
    assert opened(first).report("n1", observed(copy()), at(1)) is None


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (base.encode(data.DataObserved(node="n2", observed_at=at(0))), "it is about node 'n2'"),
        (b"{}", "missing required field"),
        (b"\xff", "invalid"),
        (
            base.encode(observed(*[copy()] * (data_reports.MOST_COPIES + 1))),
            "4097 copies, at most 4096",
        ),
    ],
    ids=["other node", "empty", "no text", "too many"],
)
def test_a_report_that_cannot_be_accepted_says_why(body: bytes, reason: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=f"(?i){reason}"):
        data_reports.read("n1", body)


# --- what nodes should have -----------------------------------------------------------------


def wanted(*keys: str) -> data.DataWanted:
    return data.DataWanted(node="n1", items=tuple(data.WantedCopy(key=k, uri=WEB) for k in keys))


def draft_of(message: data.DataWanted | None) -> envelope.Draft:
    return envelope.Draft(topic=topics.DATA_WANTED, key="n1", message=message, time=builders.NOON)


def test_a_node_without_a_record_should_have_nothing() -> None:
    assert data_reports.WantedData().of("n1") == data.DataWanted(node="n1")


def test_the_newest_record_is_what_a_node_should_have() -> None:
    known = data_reports.WantedData()
    for number, message in enumerate((wanted("a"), wanted("a", "b"))):
        known.apply(builders.make_record(draft_of(message), number))
    assert known.of("n1") == wanted("a", "b")
    known.apply(builders.make_record(draft_of(None), 2))
    assert known.of("n1") == data.DataWanted(node="n1")


def test_an_unreadable_record_never_means_that_nothing_is_wanted() -> None:
    """A cache would evict what pods of the node use."""
    known = data_reports.WantedData()
    known.apply(builders.undecodable_record(topics.DATA_WANTED, "n1"))
    assert known.of("n1") is None
    assert "n1" in known.unreadable
    known.apply(builders.make_record(draft_of(wanted("a")), 1))
    known.apply(builders.undecodable_record(topics.DATA_WANTED, "n1", 2))
    assert known.of("n1") == wanted("a")
