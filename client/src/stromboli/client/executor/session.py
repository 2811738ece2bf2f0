"""One session of an executor: its files, its job and its workers, advanced step by step.

A session has neither a thread nor a clock: ``JobExecutor`` calls ``step`` with the time.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from stromboli.client import errors, phases
from stromboli.client.blocking import Client
from stromboli.client.executor import wire
from stromboli.client.executor.dispatcher import Assignment, Dispatcher
from stromboli.client.executor.session_store import SessionStore
from stromboli.shared.formats import counts

BEAT_EVERY_S = 5.0
"""Longest time between two heartbeats; three fit into the time after which workers end."""
ANNOUNCEMENTS_EVERY_S = 1.0
JOB_EVERY_S = 5.0
LOST_AFTER_S = 30.0
"""Seconds without a new announcement after which a worker counts as lost."""
RESTARTS_WITHOUT_WORKER = 5
"""Restarts of pods after which a session that never had a worker fails."""

_log = logging.getLogger("stromboli.client.executor")


class Done(msgspec.Struct, frozen=True):
    """A call that has ended: its value, or the exception that its future raises."""

    call: int
    value: Any = None
    error: BaseException | None = None


class Retries(msgspec.Struct, frozen=True):
    """``on``: the exceptions after which a call is retried. ``most``: the maximum number of retries
    of each call."""

    most: int = 0
    on: type[BaseException] | tuple[type[BaseException], ...] = Exception


class _Seen(msgspec.Struct):
    """A worker's last announcement and the time at which it was read."""

    announcement: wire.Announcement
    at: float


class Session:
    """One session. ``what`` names the executor in errors; ``namespace`` and ``job`` name the job of
    its workers; ``orphaned_after_s``: see ``WorkerOptions``."""

    def __init__(
        self,
        client: Client,
        store: SessionStore,
        namespace: str,
        job: str,
        max_losses: int,
        retries: Retries = Retries(),  # noqa: B008 - frozen
        orphaned_after_s: float = 3 * BEAT_EVERY_S,
    ) -> None:
        self.what = f"executor {namespace}/{job}"
        self._client = client
        self._store = store
        self._namespace = namespace
        self._job = job
        self._dispatcher = Dispatcher(max_losses)
        self._calls: dict[int, wire.PickledCall] = {}
        self._retries = retries
        self._beat_every_s = min(BEAT_EVERY_S, orphaned_after_s / 3)
        self._failures: dict[int, int] = {}
        """Call -> how often it was retried."""
        self._unsent: list[Assignment] = []
        self._workers: dict[str, _Seen] = {}
        """Index of a pod -> its announcement."""
        self._had_worker = False
        self._reason = ""
        self._beat = 0
        self._beat_at = self._announcements_at = self._job_at = float("-inf")

    @property
    def is_idle(self) -> bool:
        """Whether every call has ended."""
        return self._dispatcher.is_idle

    def open(self) -> None:
        """Create the session's folders and the heartbeat for workers. Raises OSError."""
        for folder in ("inbox", "workers", "results"):
            self._store.make(folder)
        self._store.write("client", b"0")

    def add(self, number: int, call: wire.PickledCall) -> None:
        """Queue a call; the next ``step`` sends it. ``number``: its new id."""
        self._calls[number] = call
        self._dispatcher.add(number)

    def step(self, now: float, is_wanted: Callable[[int], bool]) -> list[Done]:
        """Read results, check workers and the job, send calls. Returns the calls that ended.

        ``now``: seconds of a monotonic clock. ``is_wanted``: see ``Dispatcher.assign``. Raises
        WorkersLostError if no worker will start any more, OSError and other errors of the store;
        then the step may be repeated.
        """
        done = self._read_results()
        if now >= self._beat_at + self._beat_every_s:
            self._beat_at = now
            self._beat += 1
            self._store.write("client", str(self._beat).encode())
        if now >= self._announcements_at + ANNOUNCEMENTS_EVERY_S:
            self._announcements_at = now
            done += self._look_at_workers(now)
        if now >= self._job_at + JOB_EVERY_S:
            self._job_at = now
            self._look_at_job()
        self._send_calls(is_wanted)
        return done

    def _read_results(self) -> list[Done]:
        done = []
        for name in self._store.names("results"):
            content = self._store.read(f"results/{name}")
            if content is None:
                continue  # not written completely yet
            chunk = wire.decode_chunk_result(content)
            by_call = {result.call: result for result in chunk.results}
            new = self._dispatcher.chunk_done(int(name), tuple(by_call), chunk.seconds)
            for call in new:
                value, error = wire.value_or_exception(by_call[call])
                if self._is_retried(call, error):
                    self._dispatcher.repeat(call)
                    continue
                self._calls.pop(call, None)
                if (tried := self._failures.pop(call, 0)) and error is not None:
                    error.add_note(
                        f"raised again after {counts.counted(tried, 'retry', 'retries')}"
                    )
                done.append(Done(call, value, error))
            self._store.remove(f"results/{name}")
        return done

    def _is_retried(self, call: int, error: BaseException | None) -> bool:
        """Whether a call is executed again because of this exception; counts the retry."""
        tried = self._failures.get(call, 0)
        if tried >= self._retries.most or not isinstance(error, self._retries.on):
            return False
        self._failures[call] = tried + 1
        return True

    # --- workers and their job -----------------------------------------------------------------

    def _look_at_workers(self, now: float) -> list[Done]:
        done = []
        for index in self._store.names("workers"):
            content = self._store.read(f"workers/{index}")
            if content is None:
                continue
            announcement = wire.decode_announcement(content)
            before = self._workers.get(index)
            if before is not None and announcement == before.announcement:
                continue
            if before is not None and announcement.worker != before.announcement.worker:
                done += self._lost(before.announcement.worker, "its pod was replaced")
            self._workers[index] = _Seen(announcement, now)
            if announcement.python != wire.PYTHON:
                raise errors.WorkersLostError(
                    self.what,
                    f"its workers have Python {announcement.python}, this program has "
                    f"{wire.PYTHON}; "
                    "choose an image with the same minor version",
                )
            if announcement.leaving:
                done += self._lost(announcement.worker, "its pod was deleted or evicted")
            else:
                self._had_worker = True
                self._dispatcher.worker_joined(announcement.worker)
        for known_worker in self._workers.values():
            if now >= known_worker.at + LOST_AFTER_S:
                done += self._lost(
                    known_worker.announcement.worker, f"it sent no heartbeat for {LOST_AFTER_S:g} s"
                )
        return done

    def _lost(self, worker: str, reason: str) -> list[Done]:
        if worker in self._dispatcher.workers:
            _log.warning("%s: worker %s is lost: %s", self.what, worker, reason)
        text = f"the call's worker was lost too often; the last time, {reason}"
        done = []
        for call in self._dispatcher.worker_lost(worker):
            self._calls.pop(call, None)
            done.append(Done(call, error=errors.WorkersLostError(self.what, text)))
        return done

    def _look_at_job(self) -> None:
        """Raises WorkersLostError when the job has ended; an unavailable server is retried."""
        try:
            job = self._client.job(self._job, self._namespace)
            phase = phases.phase_of(job)
            if phase in phases.ENDS:
                message = job.status.state.message
                raise errors.WorkersLostError(
                    self.what, f"its job is {phase}" + (f": {message}" if message else "")
                )
            if not self._had_worker and job.status.retry_count >= RESTARTS_WITHOUT_WORKER:
                raise errors.WorkersLostError(
                    self.what,
                    f"its pods failed {job.status.retry_count} times and none became a worker; "
                    f"see strom job logs {self._job} -n {self._namespace}",
                )
            if not self._dispatcher.workers:
                self._report_wait()
        except errors.NotFoundError:
            raise errors.WorkersLostError(self.what, "its job was deleted") from None
        except (errors.UnreachableError, errors.UnavailableError) as error:
            _log.warning("%s: the server is unavailable: %s", self.what, error.reason)

    def _report_wait(self) -> None:
        reason = self._client.explanation(self._job, self._namespace).reason
        if reason and reason != self._reason:
            self._reason = reason
            _log.warning("%s waits for a worker: %s", self.what, reason)

    # --- sending -------------------------------------------------------------------------------

    def _send_calls(self, is_wanted: Callable[[int], bool]) -> None:
        assigned = self._dispatcher.assign(is_wanted)
        self._unsent += assigned
        while self._unsent:
            first = self._unsent[0]
            if first.worker in self._dispatcher.workers:
                calls = [(it, self._calls[it]) for it in first.calls if it in self._calls]
                chunk = wire.encode(wire.chunk_of(calls))
                self._store.write(f"inbox/{first.worker}/{first.chunk:012d}", chunk)
            del self._unsent[0]
