"""DAGs with the operator and the sensor."""

from datetime import timedelta

from airflow.sdk import dag

from stromboli.airflow.operators import StromboliJobOperator
from stromboli.airflow.sensors import StromboliJobSensor

GATE = "{{ dag_run.conf['folder'] }}"
"""A folder of the test: each start adds a line to ``starts``; the job ends once ``go`` exists."""
WAIT = f"echo start >> {GATE}/starts; while [ ! -e {GATE}/go ]; do sleep 0.2; done; echo done"
MANIFEST = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: manifest}
spec:
  minAvailable: 1
  tasks:
  - name: work
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers:
        - {name: main, image: busybox, command: [sh, -c, "echo the reason; exit 3"]}
"""


@dag(schedule=None, catchup=False)
def waiting() -> None:
    """A job that waits for the test."""
    StromboliJobOperator(task_id="job", image="busybox", command=["sh", "-c", WAIT])


@dag(schedule=None, catchup=False)
def waiting_in_worker() -> None:
    """The same, without the triggerer; a lost worker is followed by another try."""
    StromboliJobOperator(
        task_id="job",
        image="busybox",
        command=["sh", "-c", WAIT],
        deferrable=False,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )


@dag(schedule=None, catchup=False)
def failing() -> None:
    """A failed job of a manifest, whose exit code is retried once."""
    StromboliJobOperator(
        task_id="retried", job=MANIFEST, retries=1, retry_delay=timedelta(seconds=1)
    )
    StromboliJobOperator(task_id="final", job=MANIFEST, retries=1, final_exit_codes=[3])
    StromboliJobOperator(
        task_id="rejected", image="busybox", command=["true"], job_queue="no-such-queue", retries=1
    )
    StromboliJobOperator(
        task_id="too_large",
        image="busybox",
        command=["true"],
        requests={"cpu": "1000"},
        start_timeout=timedelta(seconds=3),
        retries=1,
    )


@dag(schedule=None, catchup=False)
def sensing() -> None:
    """Sensors for jobs of the test."""
    StromboliJobSensor(task_id="completed", job_name="sensed")
    StromboliJobSensor(task_id="missing", job_name="no-such-job", soft_fail=True)
    StromboliJobSensor(
        task_id="poked", job_name="sensed", deferrable=False, mode="reschedule", poke_interval=1
    )


waiting()
waiting_in_worker()
failing()
sensing()
