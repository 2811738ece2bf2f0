"""Every attempt of every task, materialized from ``batch.events``.

Pure. An event costs O(1), also when it is delivered twice: a time keeps the value of its first
event, and a state never goes back. Deletion of a job costs O(its attempts). Memory is bounded by
the number of attempts: the jobs that were deleted first are dropped first, then the least recently
updated ones. The same limit applies separately to jobs without attempts, so they displace no job
with attempts: a user may submit and delete any number of jobs that never get a pod. Jobs are keyed
by uid, so earlier jobs of the same name remain reachable.
"""

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime

import msgspec

from stromboli.shared import envelope, topics
from stromboli.shared.api.views import accounting
from stromboli.shared.api.views.task_history import TaskAttempt, TaskHistory
from stromboli.shared.messages import batch

ORDER = {"Pending": 0, "Bound": 1, "Running": 2, "Unknown": 2, "Terminating": 3}
"""State -> its position in the life cycle; all others are final."""
END = 4
JOB_DELETED = "JobDeleted"
"""Reason of an attempt that was open when its job was deleted."""
_TIMES = {
    "Pending": "created_at",
    "Bound": "bound_at",
    "Running": "running_at",
    "Terminating": "terminating_at",
}


class _JobHistory(msgspec.Struct):
    key: str
    uid: str
    submitted_at: datetime | None = None
    begun_at: datetime | None = None
    deleted_at: datetime | None = None
    attempts: dict[str, TaskAttempt] = msgspec.field(default_factory=dict)


class TaskHistories:
    """Job key -> the attempts of its jobs, including earlier jobs of the same name, by uid.

    ``most_attempts``: the limit of attempts over all jobs.
    """

    def __init__(self, most_attempts: int) -> None:
        self.is_complete = False
        """Whether all retained records of ``batch.events`` have been read."""
        self._most = most_attempts
        self._count = 0
        self._alive: OrderedDict[str, _JobHistory] = OrderedDict()
        """uid -> job, the least recently updated first."""
        self._gone: OrderedDict[str, _JobHistory] = OrderedDict()
        """uid -> job that was deleted or replaced by another of its name, the earliest first."""
        self._without_attempts: OrderedDict[str, None] = OrderedDict()
        """uids of jobs without attempts, the oldest job first."""
        self._uids: dict[str, dict[str, None]] = {}
        """Job key -> uids, the oldest job first; only the last one may be alive. A dictionary,
        since a name may have had a hundred thousand jobs."""

    def __len__(self) -> int:
        """The number of jobs."""
        return len(self._alive) + len(self._gone)

    def fold(self, record: envelope.Record) -> None:
        """Apply a record of ``batch.events``. Raises UndecodableError."""
        if record.topic != topics.BATCH_EVENTS:
            return
        match envelope.decode(record):
            case batch.TaskChanged() as event:
                self._observe(event)
            case batch.JobPhaseChanged() as event:
                job = self._job(event.job, event.uid)
                if not event.before and job.submitted_at is None:
                    job.submitted_at = event.at
                if accounting.is_begin(event.after, event.retry_count) and job.begun_at is None:
                    job.begun_at = event.at
            case batch.JobDeleted() as event:
                self._delete(event)
            case _:
                pass

    def of(self, job: str, uid: str = "") -> TaskHistory | None:
        """The history of the job with this uid, or of the last job of this name.

        O(attempts of the job).
        """
        known = self._uids.get(job, {})
        if not known or (uid and uid not in known):
            return None
        uids = list(known)
        job_history = self._find(uid or uids[-1])
        ordered = sorted(
            _with_submissions(job_history),
            key=lambda it: (it.task, it.index, it.retry_count, it.attempt, _start_time(it)),
        )
        return TaskHistory(
            job=job,
            uid=job_history.uid,
            deleted_at=job_history.deleted_at,
            complete=self.is_complete,
            tasks=tuple(ordered),
            earlier=tuple(reversed(uids[: uids.index(job_history.uid)])),
        )

    def _find(self, uid: str) -> _JobHistory:
        return self._alive[uid] if uid in self._alive else self._gone[uid]

    def _job(self, key: str, uid: str) -> _JobHistory:
        """The job, created for its first event. A new job ends its predecessor."""
        if uid in self._gone:
            return self._gone[uid]
        if uid not in self._alive:
            uids = self._uids.setdefault(key, {})
            predecessor = next(reversed(uids), "")
            if predecessor in self._alive:
                self._gone[predecessor] = self._alive.pop(predecessor)
            uids[uid] = None
            self._alive[uid] = _JobHistory(key, uid)
            self._without_attempts[uid] = None
            if len(self._without_attempts) > self._most:
                self._forget(next(iter(self._without_attempts)))
        self._alive.move_to_end(uid)
        return self._alive[uid]

    def _observe(self, event: batch.TaskChanged) -> None:
        job = self._job(event.job, event.uid)
        before = job.attempts.get(event.pod_uid)
        if before is None:
            self._count += 1
            self._without_attempts.pop(job.uid, None)
        job.attempts[event.pod_uid] = _next_attempt(before, event)
        while self._count > self._most and len(self) > 1:
            jobs = itertools.chain(self._gone, self._alive)
            self._forget(next(uid for uid in jobs if uid != job.uid))

    def _delete(self, event: batch.JobDeleted) -> None:
        """Move the job to the deleted ones and close its open attempts.

        The end of a pod may be published later, or never if the pod was deleted with its job.
        """
        if event.uid not in self._alive and event.uid not in self._gone:
            return
        job = self._find(event.uid)
        if self._alive.pop(event.uid, None) is not None:
            self._gone[event.uid] = job
        if job.deleted_at is not None:
            return
        job.deleted_at = event.at
        for pod_uid, attempt in job.attempts.items():
            if not attempt.is_over:
                reason = attempt.reason or JOB_DELETED
                state = accounting.attempt_state("Gone", reason)
                job.attempts[pod_uid] = msgspec.structs.replace(
                    attempt, state=state, reason=reason, ended_at=event.at
                )

    def _forget(self, uid: str) -> None:
        job = self._find(uid)
        self._alive.pop(uid, None)
        self._gone.pop(uid, None)
        self._without_attempts.pop(uid, None)
        self._count -= len(job.attempts)
        del self._uids[job.key][uid]
        if not self._uids[job.key]:
            del self._uids[job.key]


def _next_attempt(before: TaskAttempt | None, event: batch.TaskChanged) -> TaskAttempt:
    attempt = before or TaskAttempt(
        task=event.task,
        index=event.index,
        attempt=event.attempt,
        pod=event.pod,
        pod_uid=event.pod_uid,
        state=event.after,
        retry_count=event.retry_count,
        created_at=None if event.after == "Pending" else event.created_at,
    )
    rank = ORDER.get(event.after, END)
    field = _TIMES.get(event.after, "ended_at" if rank == END else "")
    if field and getattr(attempt, field) is None:
        attempt = msgspec.structs.replace(attempt, **{field: event.at})
    if rank < ORDER.get(attempt.state, END):
        return attempt
    reason = event.reason or attempt.reason
    return msgspec.structs.replace(
        attempt,
        state=accounting.attempt_state(event.after, reason),
        node=event.node or attempt.node,
        devices=event.devices or attempt.devices,
        reason=reason,
        detail=event.detail or attempt.detail,
        exit_code=attempt.exit_code if event.exit_code is None else event.exit_code,
    )


def _with_submissions(job: _JobHistory) -> Iterator[TaskAttempt]:
    for it in job.attempts.values():
        if it.created_at is not None:
            waits = (it.created_at, it.retry_count, job.submitted_at, job.begun_at)
            it = msgspec.structs.replace(it, submitted_at=accounting.submission(*waits))
        yield it


def _start_time(attempt: TaskAttempt) -> float:
    times = (attempt.created_at, attempt.bound_at, attempt.running_at, attempt.ended_at)
    return min((at.timestamp() for at in times if at is not None), default=0.0)
