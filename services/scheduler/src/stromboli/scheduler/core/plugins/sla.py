"""The plugin ``sla``: jobs do not wait longer than they may (spec/plugins 11).

A job past its waiting time passes its queue's door and keeps what it was promised, whatever
plugins of later tiers say.
"""

from datetime import datetime, timedelta

from stromboli.scheduler.core.framework import configuration, durations, model, points, session

WAITING_TIME = "sla-waiting-time"


class Plugin:
    """Job order by the time at which a job's patience ends, and permits once it has."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._text = self._arguments.text(WAITING_TIME, "")

    def open(self, within: session.Session) -> None:
        """Find each job's limit and register."""
        self._now = within.now
        within.complaints.extend(self._arguments.complaints)
        default = self._waiting_time(within, "plugin sla", self._text)
        self._limits: dict[str, datetime] = {}
        for key, job in within.jobs.items():
            own = self._waiting_time(within, f"PodGroup {key}", job.waiting_time)
            waiting_time = own or default
            if waiting_time is not None:
                self._limits[key] = job.created + waiting_time
        within.add_job_order(self._compare_jobs)
        within.add_job_enqueueable(self._vote)
        within.add_job_pipelined(self._vote)

    def close(self, within: session.Session) -> None:
        """Nothing stays."""

    def _compare_jobs(self, left: model.Job, right: model.Job) -> int:
        first, second = self._limits.get(left.key), self._limits.get(right.key)
        if first is None or second is None:
            return (first is None) - (second is None)
        return (first > second) - (first < second)

    def _vote(self, job: model.Job) -> int:
        limit = self._limits.get(job.key)
        return points.PERMIT if limit is not None and limit <= self._now else points.ABSTAIN

    @staticmethod
    def _waiting_time(within: session.Session, where: str, text: str) -> timedelta | None:
        """What the text says; None, and a complaint, if it is no duration above zero."""
        if not text:
            return None
        try:
            found = durations.duration(text)
        except ValueError as error:
            within.complaints.append(f"{where}: {WAITING_TIME}: {error}")
            return None
        return found if found > timedelta(0) else None
