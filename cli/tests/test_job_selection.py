"""Rules of the selection and the order of jobs: ``job list`` and bulk changes."""

import contextlib
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer

from stromboli.cli.commands.jobs import job_list, job_selection
from stromboli.cli.render import listing
from stromboli.shared.api import batch, meta


def test_names_are_sorted_in_natural_order() -> None:
    names = ["train-10", "train-2", "train", "a2b", "a10b"]
    assert sorted(names, key=listing.natural) == ["a2b", "a10b", "train", "train-2", "train-10"]


def job(name: str, age_s: float, phase: str, queue: str) -> batch.Job:
    created = datetime(2026, 1, 2, tzinfo=UTC) - timedelta(seconds=age_s)
    return batch.Job(
        metadata=meta.ObjectMeta(name=name, namespace="default", creation_timestamp=created),
        spec=batch.JobSpec(queue=queue),
        status=batch.JobStatus(state=batch.JobState(phase=phase)),
    )


@pytest.mark.parametrize(
    ("order", "names"),
    [("name", "a2 a10 b"), ("age", "b a10 a2"), ("phase", "b a2 a10"), ("queue", "a10 a2 b")],
)
def test_jobs_are_sorted_as_asked_and_else_by_name(order: str, names: str) -> None:
    jobs = [
        job("a10", 20, "Running", "alpha"),
        job("a2", 30, "Running", "beta"),
        job("b", 10, "Pending", "gamma"),
    ]
    chosen = job_list.Order(order)
    found = sorted(jobs, key=lambda each: job_list.sort_key(chosen, each))
    assert " ".join(each.metadata.name for each in found) == names


def test_since_is_relative_to_now() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert job_list.submitted_after("90m", now) == now - timedelta(minutes=90)
    assert job_list.submitted_after(None, now).year == 1


def test_a_list_shows_at_most_limit_jobs_and_counts_the_others(strom: Any) -> None:
    for name in ("a-1", "a-2", "a-10"):
        strom("job", "run", name)
    shown = strom("job", "list", "--limit", "2", "-o", "name")
    assert [line.rpartition("/")[2] for line in shown.stdout.splitlines()] == ["a-1", "a-2"]
    assert shown.stderr == "1 more jobs; raise --limit to see them\n"


def test_bulk_changes_take_jobs_by_selector_phase_or_all(api_server: Any, strom: Any) -> None:
    for name in ("a", "b", "c"):
        strom("job", "run", name)
    api_server.set_status("a", "Completed")
    suspended = strom("job", "suspend", "--all")
    assert suspended.exit_code == 0
    assert [line.split()[0].rpartition("/")[2] for line in suspended.stdout.splitlines()] == [
        "b", "c",
    ]  # fmt: skip
    deleted = strom("job", "delete", "--state", "completed")
    assert deleted.stdout == "job.batch.volcano.sh/a deleted\n"
    assert strom("job", "delete", "-l", "team=none").exit_code == 1


@pytest.mark.parametrize("arguments", [(), ("a", "--all")])
def test_a_bulk_change_names_jobs_or_selects_them(strom: Any, arguments: tuple[str, ...]) -> None:
    refused = strom("job", "delete", *arguments)
    assert refused.exit_code == 2
    assert "set either names of jobs, or --selector, --state or --all" in refused.stderr


class Terminal(io.StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "is_confirmed"), [("y\n", True), ("\n", False), ("", False)])
def test_a_bulk_change_asks_on_a_terminal_and_names_the_jobs(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    is_confirmed: bool,
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    refused = contextlib.nullcontext() if is_confirmed else pytest.raises(typer.Exit)
    with refused:
        job_selection.confirm([f"j{n}" for n in range(7)], "delete", "default")
    requested = "delete 7 jobs of namespace default (j0, j1, j2, j3, j4, ...)? [y/N] "
    assert capsys.readouterr().err.startswith(requested)


def test_slurm_names_and_states_select_the_same_jobs(api_server: Any, strom: Any) -> None:
    for name in ("a", "b"):
        strom("job", "run", name)
    api_server.set_status("a", "Running")
    assert strom("job", "list", "--state", "PD", "-o", "name").stdout.endswith("/b\n")
    assert strom("job", "hold", "--state", "pd,r", "--yes").stdout.count("suspend requested") == 2
    api_server.set_status("a", "Aborted")
    assert strom("job", "release", "--state", "S").stdout.endswith("/a resume requested\n")


def test_a_list_shows_the_progress_of_an_array_in_indexes(api_server: Any, strom: Any) -> None:
    strom("job", "run", "sweep", "--array", "0-99%2")
    api_server.set_status("sweep", "Running", array={"succeeded": "0-36", "failed": "37"})
    header, row = strom("job", "list").stdout.splitlines()
    shown = dict(zip(header.split(), row.split(), strict=True))
    assert (shown["SUCCEEDED"], shown["FAILED"]) == ("37/100", "1")
