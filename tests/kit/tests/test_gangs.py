"""The checker of gangs sees each broken rule, and none where all were kept."""

from typing import Any

import pytest

from stromboli.testkit.checkers import gang_atomicity, invariants

Event = dict[str, Any]
BOTH = {"d1": ["a", "b"]}


def job(at: float = 0, needed: int = 2) -> Event:
    thing = {"kind": "Job", "metadata": {"name": "j", "uid": "j"}, "spec": {"minAvailable": needed}}
    return {"type": "ADDED", "at": at, "object": thing}


def pod(
    uid: str,
    at: float,
    phase: str = "Running",
    *,
    by: str = "d1",
    node: str = "n",
    version: str = "0",
    kind: str = "MODIFIED",
) -> Event:
    owner = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "uid": "j"}
    marks = {invariants.VERSION: version, gang_atomicity.DECISION: by}
    thing = {
        "kind": "Pod",
        "metadata": {
            "name": uid,
            "namespace": "x",
            "uid": uid,
            "ownerReferences": [owner],
            "annotations": marks,
        },
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": phase},
    }
    return {"type": kind, "at": at, "object": thing}


def test_a_gang_that_starts_together_breaks_nothing() -> None:
    history = [
        job(),
        pod("a", 1),
        pod("b", 2),
        pod("a", 60, "Succeeded"),
        pod("b", 61, "Succeeded"),
    ]
    assert gang_atomicity.violations(history, BOTH) == []


def test_a_member_without_its_gang_is_a_violation_even_if_the_gang_completes() -> None:
    alone = {"d1": ["a"], "d2": ["b"]}
    history = [job(), pod("a", 1), pod("b", 2, by="d2"), pod("a", 3)]
    assert gang_atomicity.violations(history, alone) == ["pod a runs by a decision for 1 of 2 pods"]


def test_a_decision_for_the_rest_of_a_gang_covers_it_with_those_before() -> None:
    """An elastic job grows, and a pod that was replaced joins the others."""
    history = [job(), pod("a", 1), pod("b", 2), pod("c", 50, by="d2")]
    assert gang_atomicity.violations(history, {**BOTH, "d2": ["c"]}) == []


def test_a_decision_names_the_pods_that_it_creates() -> None:
    planned = {"d1": ["x/a", "x/b"], "d2": ["c"]}
    history = [job(), pod("a", 1), pod("b", 2), pod("c", 50, by="d2")]
    assert gang_atomicity.violations(history, planned) == []
    alone = {"d1": ["x/a"], "d2": ["b"]}
    history = [job(), pod("a", 1), pod("b", 2, by="d2"), pod("a", 3)]
    assert gang_atomicity.violations(history, alone) == ["pod a runs by a decision for 1 of 2 pods"]


def test_a_member_bound_by_no_decision_is_a_violation() -> None:
    history = [job(), pod("a", 1, by=""), pod("b", 1)]
    assert gang_atomicity.violations(history, BOTH) == ["pod a runs and was bound by no decision"]


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_partial_gang_beyond_the_limit_is_a_violation(phase: str) -> None:
    """Also while its member is being created: it has the room of others."""
    history = [job(), pod("a", 1, phase), job(31), job(31.5)]
    assert gang_atomicity.violations(history, BOTH) == [
        "job j has had 1 of 2 pods for more than 30 s"
    ]


@pytest.mark.parametrize("end", [pod("b", 9), pod("a", 9, kind="DELETED"), pod("a", 9, "Failed")])
def test_a_partial_gang_is_completed_or_removed_in_time(end: Event) -> None:
    assert gang_atomicity.violations([job(), pod("a", 1), end, job(60)], BOTH) == []


def test_a_restart_begins_a_new_gang() -> None:
    decisions = {**BOTH, "d2": ["c", "d"]}
    first = [job(), pod("a", 1), pod("b", 1), pod("a", 5, kind="DELETED"), pod("b", 5, "Failed")]
    second = [pod("c", 6, by="d2", version="1"), job(40)]
    assert gang_atomicity.violations([*first, *second], decisions) == [
        "job j has had 1 of 2 pods for more than 30 s"
    ]


def test_a_part_that_is_restarted_later_has_no_time_limit() -> None:
    """Its back-off is chosen by a policy."""
    history = [job(), pod("a", 1), pod("b", 1), pod("b", 5, kind="DELETED"), job(60)]
    assert gang_atomicity.violations(history, BOTH) == []
