"""The jobs of an executor's task instances, followed with one watch.

A thread with an event loop reads the watch, because Airflow's scheduler is synchronous; ``sync``
takes the changes. A missing job is reported only after the server responded that it does not exist.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

import msgspec

from stromboli.client import AsyncClient, errors, phases
from stromboli.client.events import Change
from stromboli.client.operations import calls
from stromboli.shared.api import batch

K = TypeVar("K", bound=Hashable)
RECONNECT_S = 2.0
STOPS_WITHIN_S = 5.0


class Fact(msgspec.Struct, frozen=True):
    """The state of a tracked job. ``ended``: in one of ``phases.ENDS``. ``deleted``: it was
    deleted. ``unlisted``: the watch did not list it, and it must be read."""

    name: str
    state: str
    job: batch.Job | None = None


class TrackedJobs(Generic[K]):
    """Job name -> task instance, for jobs whose end has not been reported. Pure."""

    def __init__(self) -> None:
        self._keys: dict[str, K] = {}
        self._names: dict[K, str] = {}
        self._expected: set[str] = set()

    def add(self, name: str, key: K) -> None:
        """Track a job. An earlier one of the task instance is not tracked any more: the task was
        deferred, its job ends, and its end must not be reported as that of the resumed task."""
        self.remove(key)
        self._keys[name] = key
        self._names[key] = name

    def remove(self, key: K) -> str | None:
        """Stop tracking the job of a task instance; returns the job's name, None without a job."""
        name = self._names.pop(key, None)
        if name is not None:
            del self._keys[name]
            self._expected.discard(name)
        return name

    def key(self, name: str) -> K | None:
        """The task instance of a job; None if the job is not tracked."""
        return self._keys.get(name)

    def fold(self, change: Change[batch.Job]) -> list[Fact]:
        """Apply a change; returns the new states of tracked jobs."""
        if change.type == "reset":
            self._expected = set(self._keys)
            return []
        if change.type == "synced":
            missing, self._expected = sorted(self._expected), set()
            return [Fact(name, "unlisted") for name in missing]
        job = change.object
        if job is None or job.metadata.name not in self._keys:
            return []
        name = job.metadata.name
        self._expected.discard(name)
        if change.type == "deleted":
            return [Fact(name, "deleted", job)]
        if phases.phase_of(job) in phases.ENDS:
            return [Fact(name, "ended", job)]
        return []


class JobWatch:
    """A watch of all jobs of a namespace in a thread. ``changes`` begin with ``reset`` after every
    connection that does not resume an earlier one."""

    def __init__(
        self,
        open_client: Callable[[], AsyncClient],
        namespace: str,
        log: Callable[[str], object],
    ) -> None:
        self._open_client = open_client
        self._namespace = namespace
        self._log = log
        self._changes: queue.SimpleQueue[Change[batch.Job]] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="stromboli-jobs", daemon=True)

    def start(self) -> None:
        """Start the watch in its thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch; waits at most ``STOPS_WITHIN_S`` seconds for its thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._cancel)
            self._thread.join(STOPS_WITHIN_S)

    def changes(self) -> Iterator[Change[batch.Job]]:
        """The changes since the last call; never waits."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._changes.get_nowait()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        with (
            asyncio.Runner(loop_factory=lambda: self._loop) as runner,
            contextlib.suppress(asyncio.CancelledError),
        ):
            runner.run(self._follow())

    async def _follow(self) -> None:
        self._task = asyncio.current_task()
        while True:
            self._changes.put(Change("reset"))
            try:
                async with self._open_client() as client:
                    call = calls.watch_jobs(self._namespace)
                    async with contextlib.aclosing(client.watch(call)) as changes:
                        async for change in changes:
                            self._changes.put(change)
            except errors.ClientError as error:
                self._log(
                    f"the state of the jobs in namespace {self._namespace} is unknown: {error}"
                )
            await asyncio.sleep(RECONNECT_S)
