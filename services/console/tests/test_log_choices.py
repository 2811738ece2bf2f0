"""Logs of attempts: also of deleted pods, and only those that grow are followed."""

import msgspec

from stromboli.console.core import log_choices
from stromboli.shared import keys
from stromboli.shared.api import core, kinds
from stromboli.shared.api.views.task_history import TaskAttempt


def attempt(number: int, *, index: int = 0, node: str = "n1") -> TaskAttempt:
    return TaskAttempt(
        task="worker",
        index=index,
        attempt=number,
        pod=f"train-worker-{index}",
        pod_uid=f"u{index}.{number}",
        state="Running",
        node=node,
    )


def pod(uid: str, *, phase: str = "Running", containers: tuple[str, ...] = ("main",)) -> core.Pod:
    document = {
        "metadata": {
            "name": "train-worker-0",
            "uid": uid,
            "annotations": {keys.TASK_SPEC: "worker", keys.TASK_INDEX: "0"},
        },
        "spec": {"containers": [{"name": name} for name in containers]},
        "status": {"phase": phase},
    }
    return kinds.PODS.decode(msgspec.json.encode(document))


def test_the_last_attempt_of_an_index_is_first_and_deleted_ones_are_named() -> None:
    found = log_choices.choices([attempt(1), attempt(2), attempt(1, index=1)], [pod("u0.2")])
    assert [it.uid for it in found] == ["u0.2", "u0.1", "u1.1"]
    assert found[0].label == "worker[0], attempt 2: Running"
    assert found[1].label == "worker[0], attempt 1: Running, pod deleted"
    assert [it.grows for it in found] == [True, False, False]


def test_an_attempt_that_was_never_bound_has_no_log() -> None:
    assert log_choices.choices([attempt(1, node="")], []) == []


def test_a_pod_whose_events_are_late_is_a_choice() -> None:
    (log_choice,) = log_choices.choices([], [pod("new")])
    assert (log_choice.uid, log_choice.label) == ("new", "worker[0]: Running")


def test_a_url_selects_an_attempt_by_uid_or_by_the_name_of_its_pod() -> None:
    found = log_choices.choices([attempt(1), attempt(2)], [pod("u0.2", containers=("a", "b"))])
    by_uid = log_choices.chosen(found, {"uid": "u0.1"})
    assert by_uid is not None
    assert (by_uid.choice.uid, by_uid.container) == ("u0.1", "")
    by_name = log_choices.chosen(found, {"pod": "train-worker-0", "container": "b"})
    assert by_name is not None
    assert (by_name.choice.uid, by_name.container) == ("u0.2", "b")
    first = log_choices.chosen(found, {"container": "unknown"})
    assert first is not None
    assert (first.choice.uid, first.container) == ("u0.2", "a")
    assert log_choices.chosen(found, {"uid": "other"}) is None


def test_the_log_of_a_pod_that_ended_is_not_followed() -> None:
    (log_choice,) = log_choices.choices([attempt(1)], [pod("u0.1", phase="Succeeded")])
    assert log_choice.grows is False
