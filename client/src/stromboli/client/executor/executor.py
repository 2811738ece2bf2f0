"""``JobExecutor``: the standard executor interface over the pods of a job."""

import concurrent.futures
import contextlib
import logging
import os
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from stromboli.client import errors
from stromboli.client.blocking import Client
from stromboli.client.executor import wire
from stromboli.client.executor.session import Done, Retries, Session
from stromboli.client.executor.session_store import SessionStore
from stromboli.client.executor.worker_job import WorkerOptions, worker_job

P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[int, int], object]
"""Called with two numbers: how many calls are done, and how many were submitted."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.1
STORE_RETRY_S = 60.0
"""Seconds for which operations on a failing store are retried."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})

_log = logging.getLogger("stromboli.client.executor")


class JobExecutor(concurrent.futures.Executor):
    """Executes calls in the pods of one job, which is created immediately and deleted by
    ``shutdown``.

    Functions, arguments, results and exceptions are pickled with cloudpickle. Pods are reused, and
    short calls travel in chunks of up to 1,000. A call whose worker is lost (evicted, out of
    memory, node gone) is executed again, up to ``max_losses`` times: a call may be executed more
    than once and should be idempotent.

    ``workers``: number of pods; those that are placed execute calls. ``storage``: a directory or a
    URL of fsspec that this process and the pods reach; without it a directory of this machine, for
    process nodes. ``client``: by default ``Client()``, which is closed with the executor.
    ``retries``: how often a call that raises one of ``retry_on`` is executed again, without a
    pause; its future then has the last exception. ``progress``: called with the numbers of calls
    that are done and that were submitted, in a thread of the executor, whenever they change. While
    no worker runs, the reason why the job is pending is logged by ``stromboli.client.executor``.
    Raises ClientError when the job is refused.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        options: WorkerOptions | None = None,
        storage: str | os.PathLike[str] | None = None,
        client: Client | None = None,
        max_losses: int = 2,
        retries: int = 0,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
        progress: Progress | None = None,
    ) -> None:
        options = options or WorkerOptions()
        self.job_name = f"executor-{uuid.uuid4().hex[:8]}"
        self.namespace = options.namespace
        self._max_workers = workers  # read by libraries that accept an executor
        self._client = Client() if client is None else client
        self._owned = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            if client is None:
                undo.enter_context(self._client)
            session = _session_url(self._client.url, storage, self.job_name, undo)
            store = SessionStore(session)
            undo.callback(_remove, store)
            self._session = Session(
                self._client,
                store,
                options.namespace,
                self.job_name,
                max_losses,
                Retries(retries, retry_on),
                options.orphaned_after_s,
            )
            self._session.open()
            job = worker_job(self.job_name, workers, session, options)
            self._client.submit(job, options.namespace)
            self._owned = undo.pop_all()
        # Deletes the job of a program that does not call shutdown.
        self._delete_job = weakref.finalize(
            self, _delete_job, self._client, self.namespace, self.job_name
        )
        self._futures: dict[int, concurrent.futures.Future[Any]] = {}
        self._count = 0
        """The number of submitted calls, which is also the id of the next one."""
        self._progress = progress
        self._submitted: list[tuple[int, wire.PickledCall]] = []
        self._changed = threading.Condition()
        self._is_shut_down = False
        self._broken: errors.ClientError | None = None
        self._thread = threading.Thread(target=self._run, name=self.job_name, daemon=True)
        self._thread.start()

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[T]:
        """See ``concurrent.futures.Executor.submit``. The call is pickled immediately (about 0.1
        ms); if that fails, its future raises the error. Raises WorkersLostError once the job ended,
        RuntimeError after ``shutdown``."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            call = wire.PickledCall(wire.pickle_function(fn), wire.pickle_arguments(args, kwargs))
        except Exception as error:
            error.add_note("the call cannot be pickled")
            future.set_exception(error)
            return future
        with self._changed:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._broken is not None:
                raise self._broken
            number, self._count = self._count, self._count + 1
            self._futures[number] = future
            self._submitted.append((number, call))
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See ``concurrent.futures.Executor.shutdown``. The job and the session's files are deleted
        after the last call; immediately with ``cancel_futures``: the futures of calls that are
        being executed then raise WorkersLostError."""
        with self._changed:
            self._is_shut_down = True
            if cancel_futures:
                for future in self._futures.values():
                    future.cancel()
                self._broken = self._broken or self._ended()
            self._changed.notify()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    def _ended(self) -> errors.WorkersLostError:
        return errors.WorkersLostError(self._session.what, "the executor was shut down")

    # --- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except errors.ClientError as error:
            self._fail_all(error)
        except Exception as error:
            _log.exception("%s failed", self._session.what)
            reason = f"{type(error).__name__}: {error}"
            self._fail_all(errors.WorkersLostError(self._session.what, reason))
        finally:
            self._fail_all(self._ended())
            self._delete_job()
            self._owned.close()

    def _work(self) -> None:
        pause_s = SHORTEST_PAUSE_S
        store_failed_at: float | None = None
        while True:
            with self._changed:
                if not self._submitted and not self._is_over():
                    self._changed.wait(pause_s)
                if self._broken is not None:
                    raise self._broken
                if self._is_over():
                    return
                submitted, self._submitted = self._submitted, []
            for number, call in submitted:
                self._session.add(number, call)
            try:
                done = self._session.step(time.monotonic(), self._is_wanted)
            except errors.ClientError:
                raise
            except Exception as error:  # each implementation of fsspec has its own
                now = time.monotonic()
                store_failed_at = store_failed_at or now
                if now > store_failed_at + STORE_RETRY_S:
                    raise
                _log.warning("%s: the storage failed, retrying: %s", self._session.what, error)
                done, pause_s = [], LONGEST_PAUSE_S
            else:
                store_failed_at = None
            self._set_results(done)
            if done or submitted:
                self._report()
            pause_s = SHORTEST_PAUSE_S if done or submitted else min(pause_s * 1.5, LONGEST_PAUSE_S)

    def _report(self) -> None:
        """Report the progress. An error in the user's function is logged, and ends the reports."""
        if self._progress is None:
            return
        with self._changed:
            total, left = self._count, len(self._futures)
        try:
            self._progress(total - left, total)
        except Exception:
            _log.exception("%s: the function for the progress failed", self._session.what)
            self._progress = None

    def _is_over(self) -> bool:
        return self._is_shut_down and not self._submitted and self._session.is_idle

    def _is_wanted(self, number: int) -> bool:
        """Mark the call's future as running, so that it cannot be cancelled any more; False if it
        was cancelled already."""
        with self._changed:
            future = self._futures[number]
            if not future.set_running_or_notify_cancel():
                del self._futures[number]
                return False
            return True

    def _set_results(self, done: list[Done]) -> None:
        for each in done:
            with self._changed:
                future = self._futures.pop(each.call, None)
            if future is None or future.done():
                continue
            if each.error is None:
                future.set_result(each.value)
            else:
                future.set_exception(each.error)

    def _fail_all(self, error: errors.ClientError) -> None:
        with self._changed:
            self._broken = self._broken or error
            futures = list(self._futures.values())
            self._futures.clear()
            self._submitted.clear()
        for future in futures:
            if not future.done() and (future.running() or future.set_running_or_notify_cancel()):
                future.set_exception(error)


def _session_url(
    server: str, storage: str | os.PathLike[str] | None, name: str, undo: contextlib.ExitStack
) -> str:
    """URL of the session's files; a directory that is created for them is removed by ``undo``."""
    if storage is not None:
        return f"{os.fspath(storage).rstrip('/')}/{name}"
    if urlsplit(server).hostname not in _LOCAL:
        raise errors.InvalidArgumentError(
            "executor",
            f"the server {server} is not on this machine; pass storage=, a directory or a URL such "
            "as s3://bucket/prefix that this process and the pods reach",
        )
    folder = undo.enter_context(
        tempfile.TemporaryDirectory(prefix="strom-executor-", ignore_cleanup_errors=True)
    )
    return f"{Path(folder).resolve()}/{name}"


def _remove(store: SessionStore) -> None:
    try:
        store.remove_all()
    except Exception as error:  # each implementation of fsspec has its own
        _log.warning("the files of a session could not be deleted: %s", error)


def _delete_job(client: Client, namespace: str, name: str) -> None:
    try:
        client.delete(name, namespace)
    except errors.NotFoundError:
        pass
    except (errors.ClientError, RuntimeError) as error:  # RuntimeError: the client was closed
        _log.warning("job %s/%s could not be deleted: %s", namespace, name, error)
