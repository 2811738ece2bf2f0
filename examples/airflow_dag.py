"""An Airflow DAG whose tasks are jobs: a gang of four pods, then a report of its result.

Needs `stromboli-airflow` in Airflow, and a server: in `STROM_SERVER`, such as that of
`strom up --process-nodes 2`, or in an Airflow connection `stromboli_default`.
"""

from datetime import timedelta

from airflow.sdk import dag, task

from stromboli.airflow.operators import StromboliJobOperator

PROGRAM = "echo training in run {{ run_id }}; echo done"


@dag(schedule=None, catchup=False, default_args={"retries": 1})
def stromboli_example() -> None:
    """Train as a gang, then report the result."""
    train = StromboliJobOperator(
        task_id="train",
        image="busybox",
        command=["sh", "-c", PROGRAM],
        replicas=4,
        requests={"cpu": "500m"},
        job_queue="default",
        time_limit=timedelta(minutes=10),
        start_timeout=timedelta(hours=2),
    )

    @task
    def report(result: dict[str, object]) -> str:
        return f"{result['name']}: {result['last_line']}"

    report(train.output)


stromboli_example()
