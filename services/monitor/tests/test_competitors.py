"""Which lease claims a scheduler's name, and when it no longer counts."""

from datetime import timedelta

import pytest

from stromboli.monitor.core import competitor_tracker
from stromboli.shared.api import coordination
from stromboli.testkit.builders import NOON

CLAIM = competitor_tracker.LeaseClaim("volcano-system", "volcano", "volcano")


def spec(renewed: str, holder: str = "vc-1") -> coordination.LeaseSpec:
    return coordination.LeaseSpec(
        holder_identity=holder,
        lease_duration_seconds=15,
        acquire_time="2026-01-01T11:00:00.000000Z",
        renew_time=renewed,
    )


def ago(minutes: int) -> str:
    return (NOON - timedelta(minutes=minutes)).isoformat()


def names(tracker: competitor_tracker.CompetitorTracker, now_s: float) -> list[str]:
    return [rival.holder for rival in tracker.found(now_s, NOON).competitors]


def test_a_renewed_lease_counts_whatever_the_clock_of_its_holder() -> None:
    """Nine minutes behind, here; what counts is that it changes."""
    tracker = competitor_tracker.CompetitorTracker((CLAIM,))
    for now_s, minutes in ((0.0, 9), (14.0, 8), (28.0, 7)):
        tracker.observe(CLAIM, spec(ago(minutes)), now_s)
    assert names(tracker, 42.0) == ["vc-1"]
    (rival,) = tracker.found(42.0, NOON).competitors
    assert (rival.lease, rival.scheduler_name) == ("volcano-system/volcano", "volcano")


def test_a_lease_that_changes_counts_however_far_the_clock_of_its_holder_is_behind() -> None:
    """Its first observation is no evidence yet: it may be left behind by a removed system."""
    tracker = competitor_tracker.CompetitorTracker((CLAIM,))
    found = []
    for now_s, minutes in ((0.0, 60), (2.0, 60), (4.0, 59), (18.0, 58)):
        tracker.observe(CLAIM, spec(ago(minutes)), now_s)
        found.append(names(tracker, now_s))
    assert found == [[], [], ["vc-1"], ["vc-1"]]
    tracker.observe(CLAIM, spec(ago(58)), 33.1)
    assert names(tracker, 33.1) == []


def test_a_lease_without_renewal_stops_counting_after_its_duration() -> None:
    tracker = competitor_tracker.CompetitorTracker((CLAIM,))
    tracker.observe(CLAIM, spec(ago(1)), 0.0)
    tracker.observe(CLAIM, spec(ago(1)), 15.1)
    assert names(tracker, 15.1) == []


def test_a_lease_left_behind_long_ago_never_counts() -> None:
    """A removed system leaves its leases behind, and no start may wait for them."""
    tracker = competitor_tracker.CompetitorTracker((CLAIM,))
    tracker.observe(CLAIM, spec(ago(11)), 0.0)
    assert names(tracker, 0.0) == []


def test_a_lease_without_times_counts_while_it_may_be_held() -> None:
    tracker = competitor_tracker.CompetitorTracker((CLAIM,))
    tracker.observe(CLAIM, spec("soon"), 0.0)
    assert names(tracker, 15.0) == ["vc-1"]


def test_no_lease_and_one_without_a_holder_claim_nothing() -> None:
    tracker = competitor_tracker.CompetitorTracker((CLAIM,))
    tracker.observe(CLAIM, None, 0.0)
    assert names(tracker, 0.0) == []
    tracker.observe(CLAIM, spec(ago(0), holder=""), 1.0)
    assert names(tracker, 1.0) == []


def test_a_lease_without_read_rights_is_unknown() -> None:
    tracker = competitor_tracker.CompetitorTracker((CLAIM,))
    tracker.record_error(CLAIM, "get leases: forbidden")
    assert tracker.found(0.0, NOON).unknown == "get leases: forbidden"
    tracker.observe(CLAIM, None, 1.0)
    assert tracker.found(1.0, NOON).unknown == ""


@pytest.mark.parametrize("text", ["volcano", "volcano-system/volcano", "/a=b", "a/=b"])
def test_an_invalid_setting_of_leases_names_the_expected_form(text: str) -> None:
    with pytest.raises(ValueError, match="namespace/name=scheduler name"):
        competitor_tracker.parse_claims((text,))
