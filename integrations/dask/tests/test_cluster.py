"""``StromCluster`` on process nodes: Dask's scheduler here, its workers as jobs."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import dask
import msgspec
import pytest
from dask.distributed import Client as DaskClient
from distributed.scheduler import KilledWorker

from stromboli.client import Client, errors
from stromboli.dask import StromCluster, WorkerOptions
from stromboli.dask.worker_job import CLUSTER_LABEL, worker_job

EXAMPLE = Path(__file__).parents[3] / "examples/dask_cluster.py"
DEADLINE_S = 90
SMALL = WorkerOptions(
    memory="256 MiB", requests={"cpu": "100m"}, arguments=("--no-nanny",), orphaned_after_s=5
)


@contextlib.contextmanager
def cluster(workers: int, name: str, options: WorkerOptions = SMALL) -> Iterator[StromCluster]:
    with StromCluster(workers, name=name, options=options) as opened:
        yield opened


def worker_jobs(client: Client, name: str) -> set[str]:
    return {
        job.metadata.name
        for job in client.jobs("default")
        if (job.metadata.labels or {}).get(CLUSTER_LABEL) == name
    }


def dask_workers(opened: StromCluster) -> set[str]:
    return {each["name"] for each in opened.scheduler_info["workers"].values()}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_example_finishes_and_leaves_no_job(client: Client) -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, check=True, timeout=DEADLINE_S
    )
    assert ran.stdout == "pi is about 3.14\n"
    assert not [job for job in client.jobs() if CLUSTER_LABEL in (job.metadata.labels or {})]


def test_scaling_chooses_workers_and_a_deleted_job_is_replaced(client: Client) -> None:
    with cluster(2, "scaled") as opened:
        opened.wait_for_workers(2, DEADLINE_S)
        assert worker_jobs(client, "scaled") == {"scaled-0", "scaled-1"}
        client.delete("scaled-0")
        until(lambda: dask_workers(opened) == {"scaled-1", "scaled-2"})
        opened.scale(1)
        until(lambda: len(worker_jobs(client, "scaled")) == 1)
        with DaskClient(opened) as user:
            assert user.submit(abs, -3).result(DEADLINE_S) == 3
    assert worker_jobs(client, "scaled") == set()


def test_a_task_that_kills_its_workers_fails_with_dasks_error(client: Client) -> None:
    """The pods of the killed workers are restarted, so that other tasks still run."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        cluster(1, "killed") as opened,
        DaskClient(opened) as user,
    ):
        with pytest.raises(KilledWorker):
            user.submit(os._exit, 3, pure=False).result(DEADLINE_S)
        with pytest.raises(ZeroDivisionError):
            user.submit(divmod, 1, 0).result(DEADLINE_S)
        assert worker_jobs(client, "killed") == {"killed-0"}


def test_a_pod_that_never_becomes_a_worker_fails_the_cluster_with_its_output(
    client: Client,
) -> None:
    broken = msgspec.structs.replace(SMALL, env={"PYTHONHOME": "/nowhere"})
    with cluster(1, "broken", broken) as opened:
        with pytest.raises(errors.WorkersLostError, match=r"became no worker: exit code 1;"):
            opened.wait_for_workers(1, DEADLINE_S)
        with pytest.raises(errors.WorkersLostError):
            opened.scale(3)
    assert worker_jobs(client, "broken") == set()


def test_a_refused_job_fails_the_cluster_at_once(client: Client) -> None:
    refused = msgspec.structs.replace(SMALL, queue="no-such-queue")
    with pytest.raises(errors.RejectedError, match="no-such-queue"):
        StromCluster(1, name="refused", options=refused)
    assert worker_jobs(client, "refused") == set()


PROGRAM = """
import os, signal, sys
from stromboli.dask import StromCluster, WorkerOptions

options = WorkerOptions(
    memory="256 MiB", requests={"cpu": "100m"}, arguments=("--no-nanny",), orphaned_after_s=5
)
if __name__ == "__main__":
    cluster = StromCluster(1, name="again", options=options)
    cluster.wait_for_workers(1)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_cluster_of_the_same_name_replaces_the_workers_of_a_killed_program(
    client: Client, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run([sys.executable, program], check=False, timeout=DEADLINE_S)
    assert ran.returncode == -signal.SIGKILL
    assert worker_jobs(client, "again") == {"again-0"}
    with cluster(1, "again") as opened:
        opened.wait_for_workers(1, DEADLINE_S)
        assert worker_jobs(client, "again") == {"again-1"}
    assert worker_jobs(client, "again") == set()


def test_options_become_requests_queue_priority_and_time_limit() -> None:
    options = WorkerOptions(
        image="dask:1",
        threads=4,
        memory="8 GiB",
        gpus=2,
        queue="research",
        priority_class="high",
        time_limit=timedelta(hours=2),
        env={"A": "b"},
    )
    job = worker_job("etl-0", "etl", "tcp://10.0.0.1:8786", options)
    (container,) = msgspec.json.decode(job.spec.tasks[0].template.spec)["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": str(8 << 30), "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert container["command"][:6] == [
        *("python", "-m", "distributed.cli.dask_worker"),
        *("tcp://10.0.0.1:8786", "--name", "etl-0"),
    ]
    assert container["env"] == [{"name": "A", "value": "b"}]
    assert (job.spec.queue, job.spec.priority_class_name) == ("research", "high")
    assert job.spec.active_deadline_seconds == 7200
