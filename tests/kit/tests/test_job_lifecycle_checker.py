"""The checker of restarts, policies and flows sees each broken rule, and none where all held."""

from typing import Any

import pytest

from stromboli.testkit.checkers import invariants, job_lifecycle

Event = dict[str, Any]
Object = dict[str, Any]
COMPLETES = [{"event": "TaskCompleted", "action": "CompleteJob"}]


def event(thing: Object, kind: str = "MODIFIED", *, listed: bool = False) -> Event:
    return {"type": kind, "object": thing, "listed": listed}


def job(
    name: str = "j", phase: str = "Running", *, policies: Any = (), flow: str = "", **status: Any
) -> Event:
    owners = [{"kind": "JobFlow", "uid": flow}] if flow else []
    thing = {
        "kind": "Job",
        "metadata": {"name": name, "uid": name, "ownerReferences": owners},
        "spec": {"tasks": [{"name": "t", "replicas": 1, "policies": policies}]},
        "status": {"state": {"phase": phase}, **status},
    }
    return event(thing)


def pod(
    uid: str = "a", phase: str = "Running", *, version: int = 0, kind: str = "MODIFIED"
) -> Event:
    owner = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "uid": "j"}
    marks = {invariants.VERSION: str(version), invariants.TASK: "t", invariants.INDEX: "0"}
    metadata = {"name": uid, "uid": uid, "ownerReferences": [owner], "annotations": marks}
    thing = {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "n"},
        "status": {"phase": phase},
    }
    return event(thing, kind)


def flow(phase: str = "Succeed") -> Event:
    entries = [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]
    thing = {
        "kind": "JobFlow",
        "metadata": {"name": "f", "uid": "f"},
        "spec": {"flows": entries},
        "status": {"state": {"phase": phase}},
    }
    return event(thing)


RETRIED: dict[str, Any] = {"retryCount": 1, "version": 1}
RESTART = [
    job(),
    pod(),
    pod("a", "Failed"),
    job(**RETRIED),
    pod("a", "Failed", kind="DELETED"),
    pod("b", version=1),
    pod("b", "Succeeded", version=1),
    job(phase="Completed", **RETRIED),
]
COMPLETION = [
    job(policies=COMPLETES),
    pod(),
    pod("a", "Succeeded"),
    job(phase="Completing", policies=COMPLETES, version=1),
]
FLOW = [
    flow("Running"),
    job("f-a", flow="f"),
    job("f-a", "Completed", flow="f"),
    job("f-b", flow="f"),
    job("f-b", "Completed", flow="f"),
    flow(),
]


@pytest.mark.parametrize("history", [RESTART, COMPLETION, FLOW], ids=["restart", "policy", "flow"])
def test_a_history_without_violations_is_clean(history: list[Event]) -> None:
    assert job_lifecycle.violations(history) == []


@pytest.mark.parametrize(
    ("history", "line"),
    [
        (
            [*RESTART[:2], *RESTART[3:]],
            "job j was retried and no pod of its version 0 had failed",
        ),
        (
            [*RESTART[:4], pod("late"), pod("b", version=1), pod("late", kind="DELETED")],
            "job j has pods of versions 0 and 1 on nodes",
        ),
        (
            [*COMPLETION[:2], COMPLETION[3]],
            "job j completed when 0 of 1 pods of task t had succeeded",
        ),
        ([*RESTART, pod("left", version=1)], "pod left outlives job j"),
        ([*FLOW[:2], *FLOW[3:]], "flow f created job f-b before f-a had completed"),
        (FLOW[:-1], "flow f is Running"),
    ],
)
def test_every_violation_is_named(history: list[Event], line: str) -> None:
    assert job_lifecycle.violations(history) == [line]


def test_a_job_that_a_flow_creates_twice_is_a_violation() -> None:
    again = job("f-a", flow="f")
    again["object"]["metadata"]["uid"] = "other"
    assert job_lifecycle.violations([*FLOW, again]) == ["flow f created job f-a 2 times"]


def test_a_pod_that_is_being_deleted_does_not_outlive_its_job() -> None:
    ending = pod("left", version=1)
    ending["object"]["metadata"]["deletionTimestamp"] = "now"
    assert job_lifecycle.violations([*RESTART, ending]) == []


def test_rules_that_need_every_event_are_left_out_where_some_are_missing() -> None:
    """A server that restarted shows the last version of a pod alone, or none of it."""
    history = [*RESTART[:2], event(RESTART[4]["object"], "DELETED", listed=True), *RESTART[3:]]
    assert job_lifecycle.violations(history) == []
