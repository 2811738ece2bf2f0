"""DAGs whose task instances are jobs."""

import os
import time
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag, task


@dag(schedule=None, catchup=False)
def as_jobs() -> None:
    """Python and Bash."""

    @task
    def number() -> int:
        return 20

    @task(executor_config={"env": {"ADDEND": "22"}, "requests": {"cpu": "50m"}})
    def added(left: int) -> int:
        return left + int(os.environ["ADDEND"])

    BashOperator(task_id="shell", bash_command="echo {{ ti.xcom_pull('added') }}") << added(
        number()
    )


@dag(schedule=None, catchup=False)
def adopted() -> None:
    """A task that waits for the test."""

    @task
    def wait(params: dict[str, str] | None = None, **context: object) -> str:
        folder = Path(context["dag_run"].conf["folder"])  # type: ignore[attr-defined]
        with (folder / "starts").open("a") as file:
            file.write("start\n")
        while not (folder / "go").exists():
            time.sleep(0.2)
        return "done"

    wait()


@dag(schedule=None, catchup=False)
def refused() -> None:
    """Options that the executor and the server refuse."""
    BashOperator(task_id="unknown_option", bash_command="true", executor_config={"gpu": 1})
    BashOperator(task_id="unknown_queue", bash_command="true", queue="no-such-queue")


as_jobs()
adopted()
refused()
