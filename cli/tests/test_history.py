"""Rules of ``strom job history``."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from stromboli.cli.commands.jobs import job_history
from stromboli.cli.render import output
from stromboli.client import phases
from stromboli.shared.api.views.task_history import TaskAttempt
from stromboli.testkit.builders import NOON


def test_an_attempt_has_its_pending_and_run_time() -> None:
    minute = msgspec.structs.replace(
        TaskAttempt(task="w", index=3, attempt=2, pod="p", pod_uid="u", state="Failed"),
        node="n1",
        reason="OOMKilled",
        exit_code=137,
        created_at=NOON,
        running_at=NOON.replace(minute=1),
        ended_at=NOON.replace(minute=3),
    )
    cells = dict(
        zip(job_history.HEADERS, job_history.row(minute, NOON.replace(minute=5)), strict=True)
    )
    assert (cells["STATE"], cells["EXIT"], cells["REASON"]) == ("Failed", "137", "OOMKilled")
    assert (cells["PENDING"], cells["RAN"], cells["AGE"]) == ("60s", "2m", "5m")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("AbortJob", "suspended"),
        ("QueueChanged", "moved to another queue"),
        ("DeadlineExceeded", "the time limit has passed"),
        ("OOMKilled", "OOMKilled"),
        ("", ""),
    ],
)
def test_the_reason_of_an_attempt_is_in_words(reason: str, words: str) -> None:
    """Except reasons of Kubernetes, which policies name."""
    assert phases.attempt_in_words(reason, "") == words
    assert phases.attempt_in_words(reason, "preempted by team/x") == "preempted by team/x"


@pytest.mark.parametrize(("ran_s", "shown"), [(0.9, "1s"), (1.2, "1s"), (0.3, "0s"), (14.7, "15s")])
def test_a_run_time_is_rounded_to_the_nearest_second(ran_s: float, shown: str) -> None:
    """The start of a run of one second is observed later than its end, by a tenth of a second."""
    ran = TaskAttempt(
        task="w",
        index=0,
        attempt=1,
        pod="p",
        pod_uid="u",
        state="Succeeded",
        running_at=NOON,
        ended_at=NOON + timedelta(seconds=ran_s),
    )
    cells = dict(zip(job_history.HEADERS, job_history.row(ran, NOON), strict=True))
    assert cells["RAN"] == shown


def test_an_attempt_that_never_ran_is_pending_until_now() -> None:
    waiting = TaskAttempt(
        task="w", index=0, attempt=1, pod="p", pod_uid="u", state="Pending", created_at=NOON
    )
    cells = dict(
        zip(job_history.HEADERS, job_history.row(waiting, NOON.replace(minute=5)), strict=True)
    )
    assert (cells["PENDING"], cells["RAN"]) == ("5m", "-")


def test_devices_are_shown_where_anything_had_some() -> None:
    plain = TaskAttempt(task="w", index=0, attempt=1, pod="p", pod_uid="u", state="Running")
    had = msgspec.structs.replace(plain, devices={"nvidia.com/gpu": ("GPU-1", "GPU-2")})
    rows = [job_history.row(each, NOON) for each in (plain, had)]
    headers, shown = output.without_empty_last_column(job_history.HEADERS, rows)
    assert [headers[-1], *(row[-1] for row in shown)] == ["DEVICES", "", "gpu GPU-1,GPU-2"]
    headers, shown = output.without_empty_last_column(job_history.HEADERS, rows[:1])
    assert headers[-1] == "AGE"
    assert len(shown[0]) == len(headers)


def test_a_job_that_was_deleted_while_pending_has_the_time_of_its_deletion(
    api_server: Any, strom: Any
) -> None:
    api_server.tell_deletion("default/waiter", "u1")
    shown = strom("job", "history", "waiter")
    assert shown.stderr.endswith(
        "The job was deleted at 2026-01-01 12:00:00 UTC, before it had a pod.\n"
    )


def test_every_attempt_is_listed_and_for_programs_as_json(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    assert strom("job", "history", "a").stderr.endswith(
        "No attempts of job a found in namespace default.\n"
    )
    uid = api_server.job("a").metadata.uid
    api_server.tell_tasks("default/a", uid, "Pending", "Running", "Failed", attempt=1)
    api_server.tell_tasks("default/a", uid, "Pending", attempt=2)
    shown = strom("job", "history", "a")
    rows = [line.split()[:4] for line in shown.stdout.splitlines()]
    assert rows[1:] == [["w", "0", "1", "Failed"], ["w", "0", "2", "Pending"]]
    last = strom("job", "history", "a", "--last", "-o", "json")
    assert [it["attempt"] for it in json.loads(last.stdout)["tasks"]] == [2]
    assert strom("job", "history", "a", "--task", "other").stdout == ""
    absent = strom("job", "history", "none")
    assert absent.exit_code == 1
    assert "not found" in absent.stderr
