"""The plugin ``priority``: jobs and tasks of higher priority are served first and may preempt those
of lower priority."""

from collections.abc import Sequence

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points


class Plugin:
    """Has no arguments."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._jobs: dict[str, entities.Job] = {}

    def open(self, ssn: session.Session) -> None:
        """Order jobs, subgroups and tasks, and choose victims of lower priority."""
        self._jobs = ssn.jobs
        ssn.add_task_order(key=lambda task: -task.priority)
        ssn.add_job_order(key=lambda job: -job.priority)
        ssn.add_subjob_order(lambda left, right: right.priority - left.priority)
        ssn.add_preemptable(
            self._preemptable, may_have=lambda evictor, other: other.priority < evictor.priority
        )
        ssn.add_unified_evictable(_evictable(ssn))
        ssn.add_job_starving(lambda job: job.ready + job.waiting < len(job.tasks))

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _preemptable(
        self, preemptor: entities.Task, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        """Return tasks of jobs of lower priority, and lower-priority tasks of the job itself."""
        job = self._jobs.get(preemptor.job)
        if job is None:
            return extension_points.Victims([])
        return extension_points.Victims(
            [task for task in candidates if self._is_lower(task, preemptor, job)]
        )

    def _is_lower(self, task: entities.Task, preemptor: entities.Task, job: entities.Job) -> bool:
        if task.job == preemptor.job:
            return task.priority < preemptor.priority
        other = self._jobs.get(task.job)
        return other is not None and other.priority < job.priority


def _evictable(ssn: session.Session) -> extension_points.UnifiedChoice:
    def choose(
        action: str, job: entities.Job, candidates: Sequence[entities.Task]
    ) -> extension_points.Victims:
        if action == "gangreclaim":
            return extension_points.Victims(candidates)
        lower = [
            task
            for task in candidates
            if task.job in ssn.jobs and ssn.jobs[task.job].priority < job.priority
        ]
        return extension_points.Victims(lower)

    return choose
