"""Every attempt of every task, folded from ``batch.events``.

Pure. A message costs O(1), also one that comes again: a time stands from when it is first told, and
a state never goes back. Memory is bounded by the number of attempts: the jobs that have been gone
longest are let go first, then those of which nothing was heard for longest.
"""

from collections import OrderedDict
from datetime import datetime

import msgspec

from stromboli.shared import envelope, topics
from stromboli.shared.api.task_history import TaskAttempt, TaskHistory
from stromboli.shared.messages import batch

ORDER = {"Pending": 0, "Bound": 1, "Running": 2, "Unknown": 2, "Terminating": 3}
"""State -> how far it is; all others are ends."""
END = 4
_TIMES = {
    "Pending": "created_at",
    "Bound": "bound_at",
    "Running": "running_at",
    "Terminating": "terminating_at",
}


class _Job(msgspec.Struct):
    uid: str
    deleted_at: datetime | None = None
    attempts: dict[str, TaskAttempt] = msgspec.field(default_factory=dict)


class Histories:
    """Job key -> its last job's attempts. ``most_attempts``: how many are kept in all."""

    def __init__(self, most_attempts: int) -> None:
        self.is_complete = False
        """Whether everything that the log keeps was read."""
        self._most = most_attempts
        self._count = 0
        self._alive: OrderedDict[str, _Job] = OrderedDict()
        self._gone: OrderedDict[str, _Job] = OrderedDict()

    def fold(self, record: envelope.Record) -> None:
        """Take in a record of ``batch.events``. Raises UndecodableError."""
        if record.topic != topics.BATCH_EVENTS:
            return
        match envelope.decode(record):
            case batch.TaskChanged() as told:
                self._observe(told)
            case batch.JobPhaseChanged() as told:
                self._job(told.job, told.uid)
            case batch.JobDeleted() as told:
                self._delete(told)
            case _:
                pass

    def of(self, job: str) -> TaskHistory | None:
        """What is kept of the last job of this name. O(attempts of the job)."""
        found = self._alive.get(job) or self._gone.get(job)
        if found is None:
            return None
        ordered = sorted(
            found.attempts.values(),
            key=lambda it: (it.task, it.index, it.retry_count, it.attempt, _began(it)),
        )
        return TaskHistory(
            job=job,
            uid=found.uid,
            deleted_at=found.deleted_at,
            complete=self.is_complete,
            tasks=tuple(ordered),
        )

    def _job(self, key: str, uid: str) -> _Job | None:
        """The living job; None for one that is gone already."""
        gone = self._gone.get(key)
        if gone is not None and gone.uid == uid:
            return None
        found = self._alive.get(key)
        if found is None or found.uid != uid:
            self._forget(self._alive, key)
            self._forget(self._gone, key)
            found = self._alive[key] = _Job(uid)
        self._alive.move_to_end(key)
        return found

    def _observe(self, told: batch.TaskChanged) -> None:
        job = self._job(told.job, told.uid)
        if job is None:
            return
        before = job.attempts.get(told.pod_uid)
        if before is None:
            self._count += 1
        job.attempts[told.pod_uid] = _after(before, told)
        while self._count > self._most and (len(self._alive) > 1 or self._gone):
            jobs = self._gone or self._alive
            self._forget(jobs, next(iter(jobs)))

    def _delete(self, told: batch.JobDeleted) -> None:
        job = self._alive.get(told.job)
        if job is None or job.uid != told.uid:
            return
        del self._alive[told.job]
        job.deleted_at = told.at
        self._gone[told.job] = job

    def _forget(self, jobs: OrderedDict[str, _Job], key: str) -> None:
        found = jobs.pop(key, None)
        if found is not None:
            self._count -= len(found.attempts)


def _after(before: TaskAttempt | None, told: batch.TaskChanged) -> TaskAttempt:
    found = before or TaskAttempt(
        task=told.task,
        index=told.index,
        attempt=told.attempt,
        pod=told.pod,
        pod_uid=told.pod_uid,
        state=told.after,
        retry_count=told.retry_count,
        created_at=None if told.after == "Pending" else told.created_at,
    )
    rank = ORDER.get(told.after, END)
    field = _TIMES.get(told.after, "ended_at" if rank == END else "")
    if field and getattr(found, field) is None:
        found = msgspec.structs.replace(found, **{field: told.at})
    if rank < ORDER.get(found.state, END):
        return found
    return msgspec.structs.replace(
        found,
        state=told.after,
        node=told.node or found.node,
        devices=told.devices or found.devices,
        reason=told.reason or found.reason,
        exit_code=found.exit_code if told.exit_code is None else told.exit_code,
    )


def _began(attempt: TaskAttempt) -> float:
    times = (attempt.created_at, attempt.bound_at, attempt.running_at, attempt.ended_at)
    return min((at.timestamp() for at in times if at is not None), default=0.0)
