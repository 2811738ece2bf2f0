"""Rules of ``strom history`` and ``strom usage``: what is asked for, and what is shown."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from stromboli.cli.commands.accounting import usage
from stromboli.cli.parameters import time_options
from stromboli.shared import errors
from stromboli.shared.api.views import accounting
from stromboli.testkit.builders import NOON
from stromboli.testkit.doubles import empty_history

LATER = NOON + timedelta(hours=1)


def attempt(number: int, **fields: Any) -> accounting.Attempt:
    known: dict[str, Any] = {"namespace": "default", "job": "a", "uid": "u", "queue": "q"}
    known |= {"user": "ann", "task": "w", "index": number, "attempt": 1, "retry_count": 0}
    known |= {"pod": f"a-w-{number}", "pod_uid": f"p{number}", "state": "Failed", "node": "n1"}
    known |= {"reason": "OOMKilled", "exit_code": 137, "submitted_at": NOON, "started_at": NOON}
    known |= {"allocated_at": NOON, "ended_at": LATER, "cpu_seconds": 7200.0, "gpu_seconds": 3600.0}
    return accounting.Attempt(**(known | fields))


class Past(empty_history.EmptyHistory):
    """A history with some attempts, two on a page."""

    def __init__(self, *attempts: accounting.Attempt) -> None:
        super().__init__()
        self.found = attempts
        self.complete = True

    async def attempts(self, query: accounting.AttemptQuery) -> accounting.AttemptPage:
        self.requested.append(query)
        begin = int(query.after or 0)
        more = str(begin + 2) if begin + 2 < len(self.found) else ""
        return accounting.AttemptPage(
            attempts=self.found[begin : begin + 2], continue_=more, complete=self.complete
        )

    async def usage(self, query: accounting.UsageQuery) -> accounting.UsageReport:
        self.requested.append(query)
        used = accounting.Usage(
            group={key: "" if key == "user" else f"some {key}" for key in query.by},
            attempts=3,
            cpu_seconds=5400.0,
            memory_gib_seconds=3600.0,
            gpu_seconds=0.0,
            evicted_cpu_seconds=1800.0,
            evicted_gpu_seconds=0.0,
            idle_cpu_seconds=36.0,
            idle_gpu_seconds=0.0,
            used_cpu_seconds=1350.0,
            measured_cpu_seconds=2700.0,
        )
        shares = tuple(
            accounting.QueueShare(
                queue=name,
                depth=depth,
                cpu_seconds=5400.0,
                gpu_seconds=0.0,
                deserved_cpu_seconds=3600.0,
                deserved_gpu_seconds=0.0,
            )
            for depth, name in enumerate(("org", "team"))
        )
        return accounting.UsageReport(
            since=query.since, until=query.until, usage=(used,), shares=shares
        )


@pytest.fixture
def past(api_server: Any) -> Past:
    made = Past(*(attempt(number) for number in range(5)))
    api_server.keep_history(made)
    return made


def test_json_is_a_list_of_all_attempts_for_programs(past: Past, strom: Any) -> None:
    found = json.loads(strom("history", "-o", "json").stdout)
    assert [it["index"] for it in found] == [0, 1, 2, 3, 4]
    wanted = {"namespace", "job", "uid", "queue", "user", "task", "index", "attempt", "state"}
    wanted |= {"reason", "exit_code", "node", "submitted_at", "started_at", "ended_at"}
    wanted |= {"cpu_seconds", "gpu_seconds"}
    assert wanted <= found[0].keys()
    assert (found[0]["exit_code"], found[0]["submitted_at"]) == (137, "2026-01-01T12:00:00Z")
    assert (found[0]["cpu_seconds"], found[0]["gpu_seconds"]) == (7200.0, 3600.0)
    assert len(past.requested) == 3


def test_filters_reach_the_history(past: Past, strom: Any) -> None:
    strom(
        *("history", "a", "-n", "team", "-u", "ann", "-q", "gpu", "-s", "failed,gone"),
        *("--since", "2026-01-01", "--until", "2026-01-02T00:00:00+01:00", "-l", "team=vision"),
        *("--node", "n1", "--device", "GPU-1", "--uid", "u"),
    )
    assert past.requested[0] == accounting.AttemptQuery(
        namespace="team",
        job="a",
        uid="u",
        user="ann",
        queue="gpu",
        states=("Failed", "Gone"),
        since=datetime(2026, 1, 1, tzinfo=UTC),
        until=datetime(2026, 1, 1, 23, tzinfo=UTC),
        node="n1",
        device="GPU-1",
        labels={"team": "vision"},
    )
    strom("history", "-A")
    assert past.requested[-1].namespace == ""


def test_an_empty_history_says_that_it_was_filtered(api_server: Any, strom: Any) -> None:
    api_server.keep_history(Past())
    assert strom("history").stderr == "No attempts found in namespace default.\n"
    for filtered in (("--user", "ann"), ("a",), ("--state", "F"), ("--since", "7d")):
        listed = strom("history", *filtered)
        assert listed.stderr == "No attempts in namespace default match the filter.\n"


def test_the_table_has_the_columns_that_were_asked_for(past: Past, strom: Any) -> None:
    shown = strom("history", "--format", "job,index,elapsed,exit_code", "--limit", "2")
    assert shown.stdout.splitlines()[0].split() == ["JOB", "INDEX", "ELAPSED", "EXIT", "CODE"]
    assert [line.split() for line in shown.stdout.splitlines()[1:]] == [
        ["a", "0", "60m", "137"],
        ["a", "1", "60m", "137"],
    ]
    assert "Only the newest 2 attempts" in shown.stderr


def test_csv_and_exported_files_have_every_field(past: Past, strom: Any, tmp_path: Path) -> None:
    printed = strom("history", "-o", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert (rows[0]["cpu_seconds"], rows[0]["ended_at"]) == ("7200.000", "2026-01-01T13:00:00Z")
    strom("history", "--export", str(tmp_path / "all.csv"))
    assert (tmp_path / "all.csv").read_text() == printed
    strom("history", "--export", str(tmp_path / "all.json"))
    assert len(json.loads((tmp_path / "all.json").read_text())) == 5


def test_an_answer_that_may_lack_the_latest_attempts_says_so(past: Past, strom: Any) -> None:
    past.complete = False
    assert "still loading" in strom("history").stderr


def test_usage_of_a_queue_is_shown_against_what_it_deserved(past: Past, strom: Any) -> None:
    """A queue below another one is indented; without a share there is no percentage."""
    lines = strom("usage", "-A", "--shares").stdout.splitlines()
    headers = "QUEUE CPU HOURS DESERVED CPU GPU HOURS DESERVED GPU"
    assert " ".join(lines[0].split()) == headers
    assert lines[1].split() == ["org", "1.50", "1.00", "150%", "0.00", "0.00", "-"]
    assert lines[2].startswith("  team ")
    document = json.loads(strom("usage", "-A", "--shares", "-o", "json").stdout)
    assert document[0]["deserved_cpu_seconds"] == 3600.0
    assert strom("usage", "-A", "--shares", "-o", "csv").stdout.splitlines()[1] == (
        "org,0,5400.0,0.0,3600.0,0.0"
    )


def test_columns_of_gpus_and_evictions_without_any_are_left_out() -> None:
    """With all columns the table is wider than most terminals."""
    none = dict.fromkeys(usage.SUMS[2:], 0.0)
    used = accounting.Usage(group={"queue": "a"}, attempts=1, cpu_seconds=3600.0, **none)
    headers, rows = usage.table(["QUEUE"], [used])
    assert headers == ["QUEUE", "ATTEMPTS", "CPU HOURS", "GIB HOURS"]
    assert rows == [["a", "1", "1.00", "0.00"]]


def test_usage_is_shown_in_hours_by_group(past: Past, strom: Any) -> None:
    shown = strom("usage", "--by", "queue,user", "--since", "2026-01-01", "--until", "2026-02-01")
    header, row = shown.stdout.splitlines()
    assert header.split()[:2] == ["QUEUE", "USER"]
    assert row.split() == [
        "some",
        "queue",
        "-",
        "3",
        "1.50",
        "1.00",
        "0.50",
        "0.01",
        "50%",
    ]
    assert past.requested[0] == accounting.UsageQuery(
        since=datetime(2026, 1, 1, tzinfo=UTC),
        until=datetime(2026, 2, 1, tzinfo=UTC),
        by=("queue", "user"),
        namespace="default",
    )
    (found,) = json.loads(strom("usage", "-o", "json", "--by", "label:team").stdout)
    assert (found["label:team"], found["cpu_seconds"]) == ("some label:team", 5400.0)
    assert (found["used_cpu_seconds"], found["measured_cpu_seconds"]) == (1350.0, 2700.0)
    assert strom("usage", "-o", "csv").stdout.splitlines()[0].startswith("queue,attempts,cpu_sec")
    assert strom("usage", "--by", "gpu-type").stdout.split()[:2] == ["GPU-TYPE", "ATTEMPTS"]


def test_an_attempt_has_what_it_used_and_an_unmeasured_one_has_nothing(
    api_server: Any, strom: Any
) -> None:
    used: dict[str, Any] = {"used_cpu_seconds": 1800.0, "max_memory_bytes": 3 * 2**29}
    measured = attempt(0, **used, requests={"memory": 2**31})
    api_server.keep_history(Past(measured, attempt(1)))
    columns = "index,used_cpu_seconds,max_memory_bytes,cpu_efficiency,memory_efficiency"
    rows = strom("history", "--format", columns).stdout.splitlines()[1:]
    assert rows[0].split() == ["0", "1800", "1.5", "GiB", "25.0%", "75.0%"]
    assert rows[1].split() == ["1", "-", "-", "-", "-"]
    found = json.loads(strom("history", "-o", "json").stdout)
    assert (found[0]["used_cpu_seconds"], found[0]["max_memory_bytes"]) == (1800.0, 3 * 2**29)
    assert found[1]["used_cpu_seconds"] is found[1]["max_memory_bytes"] is None
    lines = strom("history", "-o", "csv").stdout
    assert [it["used_cpu_seconds"] for it in csv.DictReader(io.StringIO(lines))] == ["1800.000", ""]


def test_a_job_that_has_ended_is_shown_with_what_it_used(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    api_server.set_status("a", "Completed")
    assert "used " not in strom("job", "get", "a").stdout  # this server has no history
    past = Past(attempt(0, used_cpu_seconds=1800.0), attempt(1, used_cpu_seconds=3600.0))
    api_server.keep_history(past)
    expected = "used      cpu 1.5 of 4.0 core-hours (38 %)\n"
    assert expected in strom("job", "get", "a").stdout
    assert past.requested[0].uid == api_server.job("a").metadata.uid
    api_server.set_status("a", "Running")
    assert "used " not in strom("job", "get", "a").stdout


def test_states_have_the_codes_of_slurm(past: Past, strom: Any) -> None:
    assert strom("history", "--state", "F,pd").exit_code == 0
    assert past.requested[-1].states == ("Failed", "Pending", "Bound")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("history", "--format", "colour"), "'colour' is not a column"),
        (("history", "-s", "Happy"), "'Happy' is not a state"),
        (("history", "--since", "soon"), "'soon' is not a time"),
        (("history", "-l", "team!=a"), "'team!=a' is not KEY=VALUE"),
        (("usage", "--by", "moon"), "'moon' is not a group"),
        (("usage", "--since", "1h", "--until", "2h"), "not before --until"),
        (("usage", "--me", "--user", "ann"), "either --me or --user"),
        (("usage", "--shares"), "use it with -A"),
        (("usage", "-A", "--shares", "--by", "user"), "without --by"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_can(
    strom: Any, words: tuple[str, ...], reason: str
) -> None:
    refused = strom(*words)
    assert refused.exit_code == 2
    assert reason in refused.stderr


def test_a_server_without_a_history_says_so(api_server: Any, strom: Any) -> None:
    refused = strom("history")
    assert refused.exit_code != 0
    assert "without a history service" in refused.stderr


def test_a_time_is_a_date_a_time_or_a_duration_ago() -> None:
    assert time_options.time("", NOON, "--since") is None
    assert time_options.time("90m", NOON, "--since") == NOON - timedelta(minutes=90)
    assert time_options.time("2026-01-01T12:00", NOON, "--since") == NOON
    assert time_options.time("7d", NOON, "--since") == NOON - timedelta(days=7)
    today = NOON.replace(hour=0)
    assert time_options.time("today", NOON, "--since") == today
    assert time_options.time("now", NOON, "--until") == NOON
    assert time_options.time("yesterday", NOON, "--since") == today - timedelta(days=1)
    assert time_options.time("11:30", NOON, "--since") == NOON.replace(hour=11, minute=30)
    assert time_options.time("22:00", NOON, "--since") == today - timedelta(hours=2), "the latest"
    with pytest.raises(typer.BadParameter):
        time_options.time("25:00", NOON, "--since")
    with pytest.raises(typer.BadParameter):
        time_options.time("tomorrow", NOON, "--since")


def test_an_error_of_the_history_is_the_answer(past: Past, api_server: Any, strom: Any) -> None:
    async def fail(_: object) -> accounting.AttemptPage:
        raise errors.UnavailableError("history store", "disk is full")

    past.attempts = fail  # type: ignore[assignment,method-assign]  # this one has failed
    assert "disk is full" in strom("history").stderr


@pytest.mark.parametrize("command", ["get", "describe", "wait", "delete", "suspend"])
def test_a_deleted_job_is_not_found_with_the_command_that_shows_its_attempts(
    api_server: Any, strom: Any, command: str
) -> None:
    strom("job", "run", "gone")
    uid = api_server.job("gone").metadata.uid
    api_server.tell_tasks("default/gone", uid, "Pending", attempt=1)
    strom("job", "delete", "gone")
    api_server.tell_deletion("default/gone", uid)
    assert strom("job", command, "gone").stderr == (
        "strom: job default/gone: not found; it was deleted at 2026-01-01 12:00:00 UTC\n"
        "next: see its attempts: strom job history gone -n default\n"
    )


def test_a_job_that_only_the_history_knows_is_not_found_with_its_command(
    past: Past, strom: Any
) -> None:
    """The event log has dropped it."""
    assert strom("job", "get", "a").stderr == (
        "strom: job default/a: not found; it was deleted\n"
        "next: see its attempts: strom history a -n default\n"
    )
