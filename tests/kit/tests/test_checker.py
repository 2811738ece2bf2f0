"""The checker sees every broken promise, and none where all were kept."""

from decimal import Decimal
from typing import Any

import pytest

from stromboli.testkit.checkers import invariants

Event = dict[str, Any]


def node(cpu: str = "2") -> Event:
    return {
        "type": "ADDED",
        "object": {
            "kind": "Node",
            "metadata": {"name": "n", "uid": "n"},
            "status": {"allocatable": {"cpu": cpu, "pods": "10"}},
        },
    }


def job(name: str = "j", phase: str = "", kind: str = "ADDED", **status: Any) -> Event:
    return {
        "type": kind,
        "object": {
            "kind": "Job",
            "metadata": {"name": name, "uid": name},
            "spec": {"minAvailable": 2},
            "status": {"state": {"phase": phase}, **status},
        },
    }


def pod(
    uid: str, index: int = 0, node: str = "", phase: str = "Pending", kind: str = "ADDED"
) -> Event:
    owner = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "uid": "j"}
    return {
        "type": kind,
        "object": {
            "kind": "Pod",
            "metadata": {
                "name": uid,
                "uid": uid,
                "ownerReferences": [owner],
                "annotations": {invariants.TASK: "t", invariants.INDEX: str(index)},
            },
            "spec": {
                "nodeName": node,
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            },
            "status": {"phase": phase},
        },
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("100m", "0.1"),
        ("1e3", "1000"),
        ("2E", "2e18"),
        ("1Pi", str(1024**5)),
        (".5", "0.5"),
        (2, "2"),
    ],
)
def test_a_quantity_is_read_as_kubernetes_writes_it(text: str | int, value: str) -> None:
    assert invariants.parse_quantity(text) == Decimal(value)


def asking(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("before", "cpu"),
    [
        ([], "3"),
        ([asking("2")], "3"),
        ([asking("5")], "5"),
        ([asking("1", restartPolicy="Always")], "4"),
        ([asking("1", restartPolicy="Always"), asking("5")], "6"),
        ([asking("5"), asking("1", restartPolicy="Always")], "5"),
    ],
)
def test_a_pod_requests_what_its_init_containers_request(
    before: list[dict[str, Any]], cpu: str
) -> None:
    found = pod("a")["object"]
    found["spec"] |= {"containers": [asking("1"), asking("2")], "initContainers": before}
    assert invariants.requests(found) == {"pods": 1, "cpu": Decimal(cpu)}
    found["spec"]["overhead"] = {"cpu": "1"}
    assert invariants.requests(found)["cpu"] == Decimal(cpu) + 1


GOOD = [
    node(),
    job(),
    pod("a"),
    pod("b", 1),
    pod("a", node="n", kind="MODIFIED"),
    pod("b", 1, node="n", kind="MODIFIED"),
    pod("a", node="n", phase="Succeeded", kind="MODIFIED"),
    pod("b", 1, node="n", phase="Succeeded", kind="MODIFIED"),
    job(phase="Completed", kind="MODIFIED"),
]


def test_a_history_without_violations_is_clean() -> None:
    assert invariants.violations(GOOD) == []


@pytest.mark.parametrize(
    ("history", "word"),
    [
        ([*GOOD[:3], pod("twin")], "are both"),
        ([node("1"), *GOOD[1:6]], "of 1"),
        ([*GOOD[:5]], "1 of 2 pods bound"),
        ([*GOOD[:8]], "not finished"),
        ([*GOOD, pod("a", kind="DELETED")], "neither by a user nor by a policy"),
        ([*GOOD, job(kind="DELETED")], "was deleted, but not by a user"),
        ([*GOOD, job(phase="Completed", retryCount=1)], "retried 1 times"),
    ],
)
def test_every_violation_is_named(history: list[Event], word: str) -> None:
    assert any(word in line for line in invariants.violations(history))


def test_a_job_deleted_by_a_user_may_vanish_with_its_pods() -> None:
    history = [*GOOD, job(kind="DELETED"), pod("a", kind="DELETED"), pod("b", kind="DELETED")]
    assert invariants.violations(history, deleted_by_user=frozenset({"j"})) == []


def with_policy(phase: str, **status: Any) -> Event:
    """The job with a policy that restarts it."""
    found = job(phase=phase, kind="MODIFIED", **status)
    found["object"]["spec"]["policies"] = [{"event": "PodFailed", "action": "RestartJob"}]
    return found


def test_policies_remove_pods_by_a_restart_or_at_the_end_of_a_job() -> None:
    gone = pod("a", node="n", phase="Failed", kind="DELETED")
    restarted = {"version": 1, "retryCount": 1}
    for allowed in (with_policy("Pending", **restarted), with_policy("Completing")):
        assert not any(
            "by nobody" in line for line in invariants.violations([*GOOD, allowed, gone])
        )
    for other in (with_policy("Running"), job(phase="Completing", kind="MODIFIED")):
        assert any("by nobody" in line for line in invariants.violations([*GOOD, other, gone]))


def test_a_pod_may_vanish_while_the_state_of_its_job_was_not_watched() -> None:
    """After a restart of the server, a list has only the last of the changes it missed."""
    gone = pod("a", node="n", phase="Failed", kind="DELETED")
    before, after = with_policy("Running"), with_policy("Completed")
    for listed, expected in ((True, False), (False, True)):
        history = [*GOOD, before, gone, {**after, "listed": listed}]
        found = invariants.violations(history)
        assert any("by nobody" in line for line in found) is expected
    unchanged = [*GOOD, before, gone, {**before, "listed": True}]
    assert any("by nobody" in line for line in invariants.violations(unchanged))


def test_a_gang_that_lost_a_pod_to_a_policy_was_bound_as_a_whole() -> None:
    """A pod that is gone counts: it had a node."""
    ends = [with_policy("Completed"), pod("a", node="n", phase="Failed", kind="DELETED")]
    assert invariants.violations([*GOOD, *ends]) == []


def test_a_node_may_be_too_small_for_an_init_container() -> None:
    found = pod("a", node="n")
    found["object"]["spec"]["initContainers"] = [asking("3")]
    assert invariants.violations([node("2"), found]) == ["node n has 3 cpu of 2"]
