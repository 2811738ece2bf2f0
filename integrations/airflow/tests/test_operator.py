"""``StromboliJobOperator`` and ``StromboliJobSensor`` in a real Airflow, jobs on process nodes."""

from pathlib import Path

import pytest

from integrations.airflow.tests.support.airflow_system import Airflow, until
from stromboli.airflow import manifests, task_jobs
from stromboli.client import Client, job

pytestmark = pytest.mark.timeout(1800)


def jobs_of(client: Client, dag: str, run: str) -> list[str]:
    """The names of the jobs that the tasks of a run submitted, also of ended ones."""
    return sorted(
        each.metadata.name
        for each in client.jobs("default")
        if (each.metadata.annotation(manifests.TASK_ANNOTATION) or "").startswith(f"{dag}/{run}/")
        and each.metadata.label(task_jobs.TASK_LABEL) is None  # that of the task instance itself
    )


def starts(folder: Path) -> int:
    """How many pods of a waiting job have started."""
    file = folder / "starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_the_example_finishes_and_its_result_is_an_xcom(airflow: Airflow) -> None:
    run = airflow.trigger("stromboli_example")
    assert airflow.finished("stromboli_example", run) == "success"
    result = airflow.xcom("stromboli_example", run, "train")
    assert result["phase"] == "Completed"
    assert result["exit_codes"] == {f"main-{index}": 0 for index in range(4)}
    assert airflow.xcom("stromboli_example", run, "train", "job_name") == result["name"]
    assert airflow.xcom("stromboli_example", run, "report") == f"{result['name']}: done"
    assert f"training in run {run}" in airflow.log("stromboli_example", run, "train")


def test_a_failure_has_its_reason_and_is_retried_if_another_try_can_succeed(
    airflow: Airflow, client: Client
) -> None:
    run = airflow.trigger("failing")
    assert airflow.finished("failing", run) == "failed"
    tries = {
        task: airflow.task("failing", run, task)["try_number"]
        for task in ("retried", "final", "rejected", "too_large")
    }
    assert tries == {"retried": 2, "final": 1, "rejected": 1, "too_large": 1}
    text = airflow.log("failing", run, "retried")
    assert "the reason" in text
    assert "is Failed: pod manifest-" in text
    assert "exit code 3" in text
    assert "no-such-queue" in airflow.log("failing", run, "rejected")
    assert "did not start within 0:00:03" in airflow.log("failing", run, "too_large")
    # Two tries, one final try, none of the rejected job; the one that did not start is deleted.
    assert len(jobs_of(client, "failing", run)) == 3


def test_a_triggerer_that_is_killed_while_a_task_is_deferred_leads_to_no_second_job(
    airflow: Airflow, client: Client, tmp_path: Path
) -> None:
    run = airflow.trigger("waiting", folder=str(tmp_path))
    airflow.in_state("waiting", run, "job", "deferred")
    until(lambda: starts(tmp_path) == 1)
    airflow.kill("triggerer")
    (name,) = jobs_of(client, "waiting", run)
    airflow.start("triggerer")
    (tmp_path / "go").touch()
    assert airflow.finished("waiting", run) == "success"
    assert airflow.xcom("waiting", run, "job")["name"] == name
    assert jobs_of(client, "waiting", run) == [name]
    assert starts(tmp_path) == 1


def test_a_deferred_task_that_is_marked_as_failed_deletes_its_job(
    airflow: Airflow, client: Client, tmp_path: Path
) -> None:
    run = airflow.trigger("waiting", folder=str(tmp_path))
    airflow.in_state("waiting", run, "job", "deferred")
    until(lambda: starts(tmp_path) == 1)
    airflow.is_watched("waiting", run, "job")
    airflow.set_state("waiting", run, "job", "failed")
    until(lambda: not jobs_of(client, "waiting", run))


def test_a_deferred_task_that_is_cleared_gets_a_new_job_and_its_old_one_is_deleted(
    airflow: Airflow, client: Client, tmp_path: Path
) -> None:
    run = airflow.trigger("waiting", folder=str(tmp_path))
    airflow.in_state("waiting", run, "job", "deferred")
    until(lambda: starts(tmp_path) == 1)
    airflow.is_watched("waiting", run, "job")
    (first,) = jobs_of(client, "waiting", run)
    airflow.clear("waiting", run, "job")
    until(lambda: first not in jobs_of(client, "waiting", run))
    until(lambda: starts(tmp_path) == 2)
    (tmp_path / "go").touch()
    assert airflow.finished("waiting", run) == "success"
    assert airflow.xcom("waiting", run, "job")["name"] != first


def test_a_task_in_a_worker_that_is_marked_as_failed_deletes_its_job(
    airflow: Airflow, client: Client, tmp_path: Path
) -> None:
    run = airflow.trigger("waiting_in_worker", folder=str(tmp_path))
    until(lambda: starts(tmp_path) == 1)
    airflow.set_state("waiting_in_worker", run, "job", "failed")
    until(lambda: not jobs_of(client, "waiting_in_worker", run))


def test_a_sensor_waits_for_a_job_of_another_program(airflow: Airflow, client: Client) -> None:
    client.submit(job("sensed", image="busybox", command=["true"]))
    run = airflow.trigger("sensing")
    assert airflow.finished("sensing", run) == "success"
    states = {
        task: airflow.task("sensing", run, task)["state"]
        for task in ("completed", "poked", "missing")
    }
    assert states == {"completed": "success", "poked": "success", "missing": "skipped"}
