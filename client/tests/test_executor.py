"""``JobExecutor`` and ``AsyncJobExecutor`` on process nodes: real workers of a real job."""

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dask.delayed import delayed

from stromboli.client import Client, errors
from stromboli.client.executor import AsyncJobExecutor, JobExecutor, WorkerOptions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")
SMALL = WorkerOptions(requests={"cpu": "100m"})
DEADLINE_S = 60.0


@pytest.fixture
def client(process_url: str) -> Iterator[Client]:
    with Client(process_url) as opened:
        yield opened


@contextlib.contextmanager
def executor(client: Client, workers: int = 1, max_losses: int = 2) -> Iterator[JobExecutor]:
    with JobExecutor(workers, options=SMALL, client=client, max_losses=max_losses) as opened:
        yield opened


def executor_jobs(client: Client) -> list[str]:
    names = (job.metadata.name for job in client.jobs("default"))
    return [name for name in names if name.startswith("executor-")]


def test_values_exceptions_and_keyword_arguments_come_back(client: Client) -> None:
    with executor(client) as pool:
        assert pool.submit(divmod, 17, 5).result(DEADLINE_S) == (3, 2)
        assert pool.submit(sorted, [1, 3, 2], reverse=True).result(DEADLINE_S) == [3, 2, 1]
        error = pool.submit(divmod, 1, 0).exception(DEADLINE_S)
        assert isinstance(error, ZeroDivisionError)
        assert "_execute_call" in str(error.__cause__)  # the worker's traceback
        assert isinstance(pool.submit(sys.exit, 3).exception(DEADLINE_S), SystemExit)


def test_functions_that_have_no_name_travel_by_value(client: Client) -> None:
    offset = 10
    with executor(client) as pool:
        assert pool.submit(lambda value: value + offset, 1).result(DEADLINE_S) == 11


def test_what_cannot_be_pickled_fails_its_own_call_alone(client: Client) -> None:
    with executor(client) as pool:
        unsendable = pool.submit(repr, threading.Lock())
        unreturnable = pool.submit(threading.Lock)
        assert pool.submit(abs, -1).result(DEADLINE_S) == 1
        assert isinstance(unsendable.exception(DEADLINE_S), TypeError)
        assert isinstance(unreturnable.exception(DEADLINE_S), TypeError)


def test_ten_thousand_calls_keep_their_order_and_nothing_is_left_behind(client: Client) -> None:
    with executor(client, workers=2) as pool:
        assert list(pool.map(abs, range(-10_000, 0), timeout=DEADLINE_S)) == [*range(10_000, 0, -1)]
        folder = pool._session._store._root
        assert executor_jobs(client) == [pool.job_name]
    assert not Path(folder).parent.exists()
    with pytest.raises(errors.NotFoundError):
        client.job(pool.job_name)


def test_a_worker_that_is_killed_is_replaced_and_its_calls_run_again(
    client: Client, tmp_path: Path
) -> None:
    """The first execution kills its process; the second finds the mark of the first."""
    marker = tmp_path / "killed"

    def killed_once(number: int) -> int:
        if number == 3 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    with executor(client) as pool:
        assert list(pool.map(killed_once, range(8), timeout=DEADLINE_S)) == list(range(8))
    assert marker.exists()


def test_a_call_that_always_ends_its_worker_is_given_up_and_others_are_not(
    client: Client,
) -> None:
    with executor(client, max_losses=0) as pool:
        fatal = pool.submit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        assert isinstance(fatal.exception(DEADLINE_S), errors.WorkersLostError)
        assert pool.submit(abs, -2).result(DEADLINE_S) == 2


def test_cancelled_calls_are_not_executed_and_shutdown_ends_those_that_are(
    client: Client, tmp_path: Path
) -> None:
    def slow(number: int) -> None:
        (tmp_path / str(number)).touch()
        time.sleep(600)

    pool = JobExecutor(1, options=SMALL, client=client)
    futures = [pool.submit(slow, number) for number in range(10)]
    assert futures[9].cancel()
    while not (tmp_path / "0").exists():
        time.sleep(0.02)
    pool.shutdown(cancel_futures=True)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    assert isinstance(futures[0].exception(), errors.WorkersLostError)
    assert all(future.cancelled() for future in futures[2:])
    assert pool.job_name not in executor_jobs(client)
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, 1)


def test_when_the_job_is_deleted_all_calls_fail_with_the_reason(client: Client) -> None:
    pool = JobExecutor(1, options=SMALL, client=client)
    future = pool.submit(time.sleep, 600)
    client.delete(pool.job_name)
    with pytest.raises(errors.WorkersLostError, match="its job was deleted"):
        future.result(DEADLINE_S)
    with pytest.raises(concurrent.futures.BrokenExecutor):
        pool.submit(abs, 1)
    pool.shutdown()


def test_a_refused_job_leaves_no_files(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # read once from the environment
    with pytest.raises(errors.RejectedError, match="no-such-queue"):
        JobExecutor(1, options=WorkerOptions(queue="no-such-queue"), client=client)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(errors.InvalidArgumentError, match="at least 1"):
        JobExecutor(0, client=client)


def test_a_server_elsewhere_needs_a_storage_that_its_pods_reach() -> None:
    with (
        Client("http://batch.example", token=None) as remote,
        pytest.raises(errors.InvalidArgumentError, match="pass storage="),
    ):
        JobExecutor(client=remote)


PROGRAM = """
import os, signal, sys
from stromboli.client.executor import JobExecutor, WorkerOptions

def double(number):
    return 2 * number

options = WorkerOptions(requests={"cpu": "100m"}, orphaned_after_s=10)
pool = JobExecutor(1, options=options, storage=sys.argv[1])
print(pool.job_name, *pool.map(double, range(3)), flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run_program(url: str, folder: Path, end: str) -> tuple[str, str]:
    """Run a program that does not shut its executor down. Returns the job and the results."""
    file = folder / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, str(file), str(folder / "sessions"), end]
    environment = {**os.environ, "STROM_SERVER": url}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout, ran.stderr
    job, _, results = ran.stdout.strip().partition(" ")
    return job, results


def test_a_program_that_does_not_shut_down_leaves_no_job(
    client: Client, process_url: str, tmp_path: Path
) -> None:
    job, results = run_program(process_url, tmp_path, "normally")
    assert results == "0 2 4"
    assert job not in executor_jobs(client)


def test_workers_of_a_killed_program_end_and_remove_the_session(
    client: Client, process_url: str, tmp_path: Path
) -> None:
    job, results = run_program(process_url, tmp_path, "killed")
    assert results == "0 2 4"
    assert client.wait(job, timeout_s=DEADLINE_S).status.state.phase == "Completed"
    assert list((tmp_path / "sessions").iterdir()) == []
    client.delete(job)


def test_dask_computes_a_graph_in_the_workers(client: Client) -> None:
    @delayed  # type: ignore[untyped-decorator]
    def pid(_: int) -> int:
        return os.getpid()

    with executor(client) as pool:
        pids = delayed(set)([pid(number) for number in range(4)]).compute(scheduler=pool)
        assert len(pids) == 1
        assert os.getpid() not in pids


async def test_the_async_twin_awaits_calls_and_maps_in_order(client: Client) -> None:
    async with AsyncJobExecutor(1, options=SMALL, client=client) as pool:
        assert await pool.submit(abs, -3) == 3
        with pytest.raises(ZeroDivisionError):
            await pool.submit(divmod, 1, 0)
        assert [each async for each in pool.map(pow, range(5), [2] * 5)] == [0, 1, 4, 9, 16]
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(pool.blocking, abs, -4) == 4


def test_a_call_that_raises_is_executed_again_as_often_as_allowed(
    client: Client, tmp_path: Path
) -> None:
    """Only for the given exceptions; the future has the last one."""

    def raises(name: str, error: type[Exception], times: int) -> int:
        (tmp_path / name).open("a").write("x")
        tried = len((tmp_path / name).read_text())
        if tried <= times:
            raise error(tried)
        return tried

    with JobExecutor(
        1, options=SMALL, client=client, retries=2, retry_on=(ConnectionError, TimeoutError)
    ) as pool:
        assert pool.submit(raises, "twice", ConnectionError, 2).result(DEADLINE_S) == 3
        last = pool.submit(raises, "always", TimeoutError, 9).exception(DEADLINE_S)
        assert isinstance(last, TimeoutError)
        assert (last.args, last.__notes__) == ((3,), ["raised again after 2 retries"])
        other = pool.submit(raises, "other", ValueError, 9).exception(DEADLINE_S)
        assert isinstance(other, ValueError)
        assert other.args == (1,)


def test_progress_counts_calls_that_are_done_with_failed_and_cancelled_ones(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[int, int]] = []

    def report(done: int, total: int) -> None:
        seen.append((done, total))

    with JobExecutor(1, options=SMALL, client=client, progress=report) as pool:
        concurrent.futures.wait([pool.submit(divmod, 4, number) for number in range(4)], DEADLINE_S)
    assert seen == sorted(seen)
    assert seen[-1] == (4, 4)
    with JobExecutor(1, options=SMALL, client=client, progress=lambda done, total: 1 // 0) as pool:
        assert pool.submit(abs, -1).result(DEADLINE_S) == 1
    assert "the function for the progress failed" in caplog.text
