"""The plugin ``sla``: jobs do not wait longer than they may (spec/plugins 11).

A job past its waiting time passes its queue's door and keeps what it was promised, whatever
plugins of later tiers say.
"""

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import deadlines


class Plugin:
    """Job order by the time at which a job's patience ends, and permits once it has."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._text = self._arguments.text(deadlines.WAITING_TIME, "")

    def open(self, ssn: session.Session) -> None:
        """Register; each job's limit is read when it is asked for."""
        ssn.complaints.extend(self._arguments.complaints)
        self._deadlines = deadlines.Deadlines(ssn, self._text)
        ssn.add_job_order(self._deadlines.compare)
        ssn.add_job_enqueueable(self._vote)
        ssn.add_job_pipelined(self._vote)

    def close(self, ssn: session.Session) -> None:
        """Nothing stays."""

    def _vote(self, job: entities.Job) -> int:
        return extension_points.PERMIT if self._deadlines.is_over(job) else extension_points.ABSTAIN
