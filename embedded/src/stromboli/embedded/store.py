"""One SQLite file behind one thread: the storage of the embedded log and the embedded cluster.

* A resolved ``write`` survives the end of the process, however it ends: SQLite in WAL mode writes
  every commit to the operating system. After a power failure the last commits may be missing, but
  always a suffix of all commits, and no commit is partial.
* Writes are executed in the order of the calls. Pending writes share one commit: a commit costs
  about 0.1 ms, whatever its size.
* A failed write stops the store: later writes may depend on it. After a restart the file has every
  acknowledged write.
* One process at a time: two would have diverging caches.
"""

import asyncio
import contextlib
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

import structlog

from stromboli.shared import errors

T = TypeVar("T")
Change = Callable[[sqlite3.Connection], T]
Settled = tuple["_Job[Any]", Any, BaseException | None]

_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",  # FULL would wait for the disk: 5 ms per commit
    "PRAGMA journal_size_limit = 67108864",
)

_log = structlog.get_logger(__name__)


class _Job(Generic[T]):
    """A queued change or query, and the future of its result."""

    def __init__(
        self,
        work: Change[T],
        future: asyncio.Future[T],
        then: Callable[[T], None] | None,
        *,
        is_write: bool,
    ) -> None:
        self.work = work
        self.future = future
        self.then = then
        self.is_write = is_write


def _ignore(_: Any) -> None:
    """The default callback of a write, which ignores the result."""


class Store:
    """The store. All methods belong to the event loop in which it was opened."""

    def __init__(self, path: Path, schema: Sequence[str]) -> None:
        self._path = path
        self._schema = schema
        self._queue: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    async def open(self) -> None:
        """Lock the file, create missing tables, start the thread.

        Raises PermanentError if another process has the lock or the file is not a store.
        """
        self._loop = asyncio.get_running_loop()
        self._queue = queue.SimpleQueue()
        self._failure = None
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._run, args=(opened,), name=f"store {self._path.name}", daemon=True
        )
        self._thread.start()
        await opened

    async def close(self) -> None:
        """Finish pending work and release the file."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def write(self, change: Change[T], then: Callable[[T], None] = _ignore) -> asyncio.Future[T]:
        """Change the file. ``then`` is called in the event loop once the change is durable, in the
        order of the writes and before the future resolves, even if it was cancelled.

        The future raises UnavailableError if the write failed.
        """
        return self._ask(change, then, is_write=True)

    def read(self, query: Change[T]) -> asyncio.Future[T]:
        """Query the file: a query sees every earlier write, and whole writes only."""
        return self._ask(query, None, is_write=False)

    def _ask(
        self, work: Change[T], then: Callable[[T], None] | None, *, is_write: bool
    ) -> asyncio.Future[T]:
        if self._loop is None or self._thread is None:
            raise errors.UnavailableError(str(self._path), "the file is not open")
        future: asyncio.Future[T] = self._loop.create_future()
        # A caller that does not wait needs no error: a failure stops the store for all callers.
        future.add_done_callback(_retrieve)
        self._queue.put(_Job(work, future, then, is_write=is_write))
        return future

    # --- in the thread ---------------------------------------------------------------------

    def _run(self, opened: asyncio.Future[None]) -> None:
        with contextlib.ExitStack() as resources:
            try:
                resources.enter_context(_locked(self._path))
                # SQLite gives the files of its write-ahead log the mode of this one.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
                database = sqlite3.connect(self._path, isolation_level=None)
                resources.callback(database.close)
                for statement in (*_PRAGMAS, *self._schema):
                    database.execute(statement)
            except errors.ExternalError as error:
                self._call(_settle, [(_Job(_ignore, opened, None, is_write=False), None, error)])
                return
            except (OSError, sqlite3.Error) as error:
                failure = errors.PermanentError(f"open {self._path}", str(error))
                self._call(_settle, [(_Job(_ignore, opened, None, is_write=False), None, failure)])
                return
            self._call(_settle, [(_Job(_ignore, opened, None, is_write=False), None, None)])
            self._serve(database)

    def _serve(self, database: sqlite3.Connection) -> None:
        is_open = True
        while is_open:
            jobs = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while True:
                    jobs.append(self._queue.get_nowait())
            is_open = None not in jobs
            requested = [job for job in jobs if job is not None]
            self._commit(database, [job for job in requested if job.is_write])
            self._answer(database, [job for job in requested if not job.is_write])

    def _commit(self, database: sqlite3.Connection, writes: list[_Job[Any]]) -> None:
        if not writes:
            return
        settled: list[Settled] = []
        if self._failure is None:
            try:
                database.execute("BEGIN IMMEDIATE")
                settled = [(job, job.work(database), None) for job in writes]
                database.execute("COMMIT")
            except Exception as error:
                self._failure = error
                _log.exception("store stopped", path=str(self._path))
                if database.in_transaction:
                    database.execute("ROLLBACK")
        if self._failure is not None:
            reason = f"stopped because a write failed: {self._failure}; correct this and restart"
            stopped = errors.UnavailableError(f"write {self._path}", reason)
            settled = [(job, None, stopped) for job in writes]
        self._call(_settle, settled)

    def _answer(self, database: sqlite3.Connection, queries: list[_Job[Any]]) -> None:
        settled: list[Settled] = []
        for job in queries:
            try:
                settled.append((job, job.work(database), None))
            except sqlite3.Error as error:
                failure = errors.UnavailableError(f"read {self._path}", str(error))
                settled.append((job, None, failure))
            except Exception as error:  # an error in the query is raised to its caller
                settled.append((job, None, error))
        if settled:
            self._call(_settle, settled)

    def _call(self, call: Callable[[list[Settled]], None], settled: list[Settled]) -> None:
        assert self._loop is not None
        # A closed loop has no waiting callers.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, settled)


def _settle(settled: list[Settled]) -> None:
    for job, result, failure in settled:
        if failure is None and job.then is not None:
            job.then(result)
        if job.future.done():  # cancelled
            continue
        if failure is None:
            job.future.set_result(result)
        else:
            job.future.set_exception(failure)


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock beside the file. Raises PermanentError that names the holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_name(f"{path.name}.lock")
    with open(file, "a+", encoding="utf-8", opener=_private) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.PermanentError(f"open {path}", _holder(lock)) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _holder(lock: IO[str]) -> str:
    lock.seek(0)
    process = lock.read().strip()
    return f"process {process or 'unknown'} has it open: stop that process, or use another folder"
