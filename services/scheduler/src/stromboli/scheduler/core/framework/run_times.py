"""Estimated run times of tasks, and when running ones will end.

A task runs as long as its job estimates (``spec.runningEstimate``, which the controller writes to
the PodGroup), limited by its own ``activeDeadlineSeconds``. Without either it may run indefinitely.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.model import entities
from stromboli.shared import keys

if TYPE_CHECKING:
    from stromboli.scheduler.core.framework import session


MAX_RUN_TIME_S = 36500 * 24 * 3600
NO_END = timedelta(seconds=MAX_RUN_TIME_S)
"""A hundred years or more count as no estimate, so that sums of times stay within the calendar."""


class RunTimes:
    """Estimates for one session; an invalid one is reported once and ignored."""

    def __init__(self, ssn: "session.Session") -> None:
        self._session = ssn
        self._estimates: dict[str, timedelta | None] = {}

    def of(self, task: entities.Task) -> timedelta | None:
        """The maximum run time of the task; None if unknown."""
        job = self._session.job_of(task)
        limit = task.pod.spec.active_deadline_seconds
        limits = (
            self._estimate(job) if job is not None else None,
            None if limit is None else timedelta(seconds=max(0, min(limit, MAX_RUN_TIME_S))),
        )
        return min((each for each in limits if each is not None), default=None)

    def of_job(self, job: entities.Job) -> timedelta | None:
        """The longest run time of its tasks; None if unknown. A job without pods has its own
        estimate.
        """
        if not job.tasks:
            return self._estimate(job)
        longest = timedelta()
        for task in job.tasks.values():
            duration = self.of(task)
            if duration is None:
                return None
            longest = max(longest, duration)
        return longest

    def is_known(self, job: entities.Job) -> bool:
        """Whether any of its tasks has an estimate. O(1) for jobs with an estimate."""
        return self._estimate(job) is not None or any(
            task.pod.spec.active_deadline_seconds is not None for task in job.tasks.values()
        )

    def end(self, task: entities.Task) -> datetime | None:
        """When a placed task will end; None if unknown.

        A task that is not reported as running starts now. A task that exceeds its estimate by t is
        expected to run for another t, so that the expected end does not move in every session.
        """
        run_time = self.of(task)
        return None if run_time is None else self._end(task, run_time)

    def remaining(self, task: entities.Task, default: timedelta) -> timedelta:
        """How long the task still runs, by ``end``. ``default``: the run time of a task without an
        estimate."""
        run_time = self.of(task)
        end = self._end(task, default if run_time is None else run_time)
        return end - self._session.now

    def _end(self, task: entities.Task, run_time: timedelta) -> datetime:
        now = self._session.now
        end = durations.after(task.pod.status.start_time or now, run_time)
        return end if end >= now else now + (now - end)

    def _estimate(self, job: entities.Job) -> timedelta | None:
        if job.key not in self._estimates:
            self._estimates[job.key] = self._read(job)
        return self._estimates[job.key]

    def _read(self, job: entities.Job) -> timedelta | None:
        text = job.pod_group.metadata.annotation(keys.RUNNING_ESTIMATE)
        if not text:
            return None
        try:
            duration = durations.duration(text)
        except ValueError as error:
            self._session.complaints.append(
                f"PodGroup {job.key}: {keys.RUNNING_ESTIMATE}: {error}; the estimate is ignored"
            )
            return None
        return duration if timedelta(0) < duration < NO_END else None
