"""The texts of Events about phases: no code where there are words for it."""

from typing import Any

import pytest

from stromboli.controller.core.jobs import event_messages
from stromboli.shared.messages import batch
from stromboli.testkit.builders import NOON

COUNTS = batch.TaskCounts(running=3)


def changed(before: str, after: str, **fields: Any) -> str:
    known: dict[str, Any] = {"job": "a/j", "uid": "u", "queue": "q", "at": NOON, "counts": COUNTS}
    return event_messages.of_phase(
        batch.JobPhaseChanged(**(known | {"before": before, "after": after} | fields))
    )


@pytest.mark.parametrize(
    ("reason", "message", "words"),
    [
        ("Started", "", ""),
        ("AbortJob", "command hold, 4711", " (suspended by a user)"),
        ("Cleared", "RestartJob was requested", " (restarted by a user)"),
        ("DeadlineExceeded", "activeDeadlineSeconds 60 has passed", " (the time limit has passed)"),
        (
            "FellShort",
            "1 of 2 needed pods are running or have ended",
            " (1 of 2 needed pods are running or have ended)",
        ),
        ("FellShort", "", " (too few pods run)"),
        (
            "RestartJob",
            "policy RestartJob on PodFailed: j-w-0 failed",
            " (restarted: policy RestartJob on PodFailed: j-w-0 failed)",
        ),
    ],
)
def test_the_cause_of_a_phase_is_in_words(reason: str, message: str, words: str) -> None:
    text = changed("Running", "Failed", reason=reason, message=message)
    assert text == f"from Running to Failed{words}: 3 running pods"


def test_a_restarted_job_has_the_number_of_its_attempt() -> None:
    text = changed("Pending", "Running", reason="Started", retry_count=1)
    assert text == "from Pending to Running, attempt 2: 3 running pods"
