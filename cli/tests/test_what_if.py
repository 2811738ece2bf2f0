"""Rules of ``strom explain --if``: how changes are written, and what is shown."""

import contextlib
import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.cli.parameters import parsing
from stromboli.cli.render import what_if_view
from stromboli.shared.api.views.expected_start import ExpectedStart, StartAnswer
from stromboli.shared.api.views.what_if import JobIf, WhatIf
from stromboli.testkit import builders

NOW = builders.NOON


def start(minutes: float | None, answer: StartAnswer = "starts") -> ExpectedStart:
    at = None if minutes is None else NOW + timedelta(minutes=minutes)
    return ExpectedStart(
        pod_group="ns/train-1", answer=answer, at=NOW, draws=20, p10=at, p50=at, p90=at
    )


def shown(present: ExpectedStart, changed: ExpectedStart, **more: Any) -> list[str]:
    what_if = WhatIf(job="ns/train", at=NOW, present=present, changed=changed, **more)
    return what_if_view.render(what_if, ["queue=b", "nodes=+2"], NOW)


def test_changes_are_written_as_name_and_value() -> None:
    job_if = parsing.changes(
        ["priority=high", "queue=b", "gpus=4", "nodes=+2", "minAvailable=3", "replicas=worker:8"]
    )
    assert job_if == JobIf(
        priority_class_name="high",
        queue="b",
        gpus={"": 4},
        nodes=2,
        min_available=3,
        replicas={"worker": 8},
    )
    both = parsing.changes(["replicas=ps:1", "replicas=worker:8"])
    assert both.replicas == {"ps": 1, "worker": 8}


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["prio=high"], "'prio=high' is not a change; write the name of a PriorityClass"),
        (["queue="], "'queue=' is not a change"),
        (["gpus=four"], "'four' is not a number; GPUs of each pod: gpus=4"),
        (["gpus=:4"], "names no task"),
        (["nodes=2"], "nodes can only be added"),
        (["nodes=-1"], "nodes can only be added"),
        (["nodes=+2000"], "<= 1000"),
        (["queue=a", "queue=b"], "queue is given twice"),
        (["gpus=4", "gpus=8"], "gpus of the job is given twice"),
    ],
)
def test_a_wrong_change_says_what_would_be_right(texts: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        parsing.changes(texts)


@given(st.lists(st.text(max_size=12), max_size=3))
def test_any_text_is_a_change_or_a_mistake(texts: list[str]) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parsing.changes(texts), JobIf)


def test_both_starts_are_shown_with_their_difference() -> None:
    lines = shown(start(20), start(5), notes=("2 empty nodes with 8 cpu",))
    assert lines == [
        "ns/train with queue=b, nodes=+2:",
        "  now        in 20m (as of 0s ago)",
        "  then       in 5m (as of 0s ago)",
        "  median     15m earlier",
        "  assumed    2 empty nodes with 8 cpu",
    ]
    assert shown(start(5), start(20))[3] == "  median     15m later"
    assert shown(start(5), start(5))[3] == "  median     no difference"


def test_a_job_that_could_not_start_then_has_the_reason() -> None:
    lines = shown(start(5), start(None, "can-never-fit"), reason="a pod needs 9 GPUs")
    assert lines[2:] == [
        "  then       can never fit (as of 0s ago)",
        "  because    a pod needs 9 GPUs",
    ]


def test_no_answer_says_why() -> None:
    what_if = WhatIf(job="ns/train", at=NOW, cannot_tell="it has started")
    assert what_if_view.render(what_if, ["nodes=+1"], NOW) == [
        "ns/train with nodes=+1: cannot tell.",
        "  because    it has started",
    ]
