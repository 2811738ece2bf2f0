"""Learns run times from ``batch.events``.

The tasks of a job that end by themselves give one run time: the mean time from Running to the end.
It is added when no task of the job runs any more, so a gang of a thousand tasks counts as much as a
single task. A task that is stopped (evicted, restarted, deleted) would have run longer and is left
out. Each event may come twice. Memory: O(jobs that are not deleted, and their running tasks).
"""

from datetime import datetime

import msgspec

from stromboli.scheduler.core.forecast import run_times
from stromboli.shared.messages import batch

_BY_ITSELF = ("Succeeded", "Failed")


class _Job:
    """The known facts about a job: its traits, and its running tasks."""

    __slots__ = ("ended", "queue", "size", "started", "total_s", "user")

    def __init__(self) -> None:
        self.user = ""
        self.queue = ""
        self.size = 1
        self.started: dict[str, datetime] = {}
        self.ended = 0
        self.total_s = 0.0


class RunTimeEvents:
    """Adds run times to an estimator, from events that are applied in order."""

    def __init__(self, learned: run_times.RunTimeEstimator) -> None:
        self._learned = learned
        self._jobs: dict[str, _Job] = {}

    def apply(self, message: msgspec.Struct) -> None:
        """Apply a message of the topic; other types of messages change nothing."""
        match message:
            case batch.JobPhaseChanged():
                self._note_traits(message)
            case batch.TaskChanged():
                self._note_task(message)
            case batch.JobDeleted():
                self._jobs.pop(message.uid, None)

    def _note_traits(self, message: batch.JobPhaseChanged) -> None:
        job = self._jobs.setdefault(message.uid, _Job())
        job.user = message.user or job.user
        job.queue = message.queue
        counts = message.counts
        size = sum(getattr(counts, name) for name in counts.__struct_fields__)
        job.size = max(job.size, size)

    def _note_task(self, message: batch.TaskChanged) -> None:
        if message.after == "Running":
            running = self._jobs.setdefault(message.uid, _Job())
            running.started.setdefault(message.pod_uid, message.at)
            return
        job = self._jobs.get(message.uid)
        if job is None or message.after not in (*_BY_ITSELF, "Terminating", "Gone"):
            return
        began = job.started.pop(message.pod_uid, None)
        if began is not None and message.after in _BY_ITSELF:
            job.ended += 1
            job.total_s += max(0.0, (message.at - began).total_seconds())
        if not job.started and job.ended:
            name = message.job.partition("/")[2]
            traits = run_times.JobTraits(job.user, name, job.queue, job.size)
            self._learned.add(traits, job.total_s / job.ended)
            job.ended, job.total_s = 0, 0.0
