"""The plugin ``shortest-remaining-service``: jobs with the least remaining service go first.

The remaining service of a job is what its unfinished tasks still need: for each resource the sum of
request x remaining run time, as a fraction of the cluster's amount of it; the largest of these
decides. So a short, wide job does not precede a long, narrow one. On equal
machines and without later arrivals this order has the least mean completion time (Conway, Maxwell
and Miller, Theory of Scheduling, 1967, for equal widths).

Rules:

1. A task's run time is its estimate (see ``run_times``), or ``default-run-time``. A running task
   needs the rest of it; a task that exceeds it by t is expected to need another t.
2. A job that has not started and has existed for ``waits-at-most`` precedes all other jobs, in
   the order of creation. Without this rule a large job would wait as long as smaller ones arrive.
   The order alone keeps no room: a gang that needs several nodes also needs ``reservation``.
3. The plugin decides the order only, and evicts nothing.

Arguments: ``default-run-time`` (24h), ``waits-at-most`` (24h); durations. Cost: O(tasks) for each
job that is compared, 1 to 2 µs each.

Source of the order: Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning,
NSDI 2019.
"""

from datetime import timedelta

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import run_times, session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.queue_quota import shares

DEFAULT = "24h"
_ARGUMENTS = ("default-run-time", "waits-at-most")


class Plugin:
    """Orders jobs by remaining service."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._default, self._limit = map(self._duration, _ARGUMENTS)
        self._demands = shares.Demands()
        self._remaining: dict[str, float] = {}

    def _duration(self, name: str) -> timedelta:
        text = self._arguments.text(name, DEFAULT)
        try:
            duration = durations.duration(text)
        except ValueError:
            duration = timedelta()
        if timedelta() < duration < run_times.NO_END:
            return duration
        wanted = "a duration above 0 such as 30m or 24h"
        return durations.duration(self._arguments.record_invalid(name, text, wanted, DEFAULT))

    def open(self, ssn: session.Session) -> None:
        """Register. The remaining service of a job is computed on demand."""
        ssn.complaints.extend(self._arguments.complaints)
        self._session = ssn
        self._total: shares.Row = ssn.total.tolist()
        self._run_times = run_times.RunTimes(ssn)
        ssn.add_job_order(key=self._key)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _key(self, job: entities.Job) -> tuple[bool, float]:
        if not job.is_ready and self._session.reached(durations.after(job.created, self._limit)):
            return False, job.created.timestamp()
        if job.key not in self._remaining:
            self._remaining[job.key] = self._remaining_service(job)
        return True, self._remaining[job.key]

    def _remaining_service(self, job: entities.Job) -> float:
        """Return the seconds for which the job needs the whole of its dominant resource."""
        needed = [0] * len(self._total)
        equal: dict[object, list[entities.Task]] = {}
        for status in job.by_status.keys() - entities.COMPLETED:
            for task in job.by_status[status].values():
                pod = task.pod
                kind = task.task_class, pod.spec.active_deadline_seconds, pod.status.start_time
                equal.setdefault(kind, []).append(task)
        for tasks in equal.values():
            left = _seconds(self._run_times.remaining(tasks[0], self._default))
            shares.add(needed, self._demands.of(tasks[0]), left * len(tasks))
        if not job.tasks and job.min_request is not None:
            run_time = self._run_times.of_job(job)
            seconds = _seconds(self._default if run_time is None else run_time)
            shares.add(needed, shares.pairs(job.min_request.tolist()), seconds)
        return shares.dominant_share(needed, self._total)


def _seconds(span: timedelta) -> int:
    """Return whole seconds, at least one: integers have the same sum in every order."""
    return max(1, round(span.total_seconds()))
