"""``StromboliExecutor`` in a real Airflow, its task instances on process nodes."""

from pathlib import Path

import pytest

from integrations.airflow.tests.support.airflow_system import Airflow, until
from stromboli.airflow import manifests
from stromboli.client import Client, phases

pytestmark = pytest.mark.timeout(1800)


def phases_of(client: Client, dag: str, run: str) -> list[str]:
    """The phases of the jobs of a run."""
    return [
        phases.phase_of(each)
        for each in client.jobs("default")
        if (each.metadata.annotation(manifests.TASK_ANNOTATION) or "").startswith(f"{dag}/{run}/")
    ]


def test_tasks_of_python_and_bash_run_as_jobs(airflow: Airflow, client: Client) -> None:
    run = airflow.trigger("as_jobs")
    assert airflow.finished("as_jobs", run) == "success"
    assert airflow.xcom("as_jobs", run, "shell") == 42
    until(lambda: phases_of(client, "as_jobs", run) == ["Completed"] * 3)


def test_a_scheduler_that_restarts_adopts_the_jobs_of_its_tasks(
    airflow: Airflow, client: Client, tmp_path: Path
) -> None:
    run = airflow.trigger("adopted", folder=str(tmp_path))
    until((tmp_path / "starts").exists)
    airflow.kill("scheduler")
    airflow.start("scheduler")
    until(lambda: "is adopted" in airflow.output("scheduler"))
    (tmp_path / "go").touch()
    assert airflow.finished("adopted", run) == "success"
    assert airflow.task("adopted", run, "wait")["try_number"] == 1
    assert (tmp_path / "starts").read_text() == "start\n"
    until(lambda: phases_of(client, "adopted", run) == ["Completed"])


def test_a_task_whose_job_is_deleted_fails_with_the_reason(
    airflow: Airflow, client: Client, tmp_path: Path
) -> None:
    run = airflow.trigger("adopted", folder=str(tmp_path))
    until((tmp_path / "starts").exists)
    (name,) = [
        each.metadata.name
        for each in client.jobs("default")
        if f"adopted/{run}/" in (each.metadata.annotation(manifests.TASK_ANNOTATION) or "")
    ]
    client.delete(name)
    assert airflow.finished("adopted", run) == "failed"
    assert f"job {name} was deleted" in airflow.events("adopted", run, "state mismatch")["wait"]


def test_refused_options_and_jobs_fail_their_tasks_with_the_reason(airflow: Airflow) -> None:
    """Airflow's audit log calls an end that the executor reports a mismatch of states."""
    run = airflow.trigger("refused")
    assert airflow.finished("refused", run) == "failed"
    reasons = airflow.events("refused", run, "state mismatch")
    assert "gpu" in reasons["unknown_option"]
    assert "no-such-queue" in reasons["unknown_queue"]
