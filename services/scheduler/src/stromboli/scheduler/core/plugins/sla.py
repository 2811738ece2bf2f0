"""The plugin ``sla``: jobs are served in the order in which their ``sla-waiting-time`` ends.

A job past its deadline is enqueued and keeps its nominations, regardless of plugins of later
tiers.
"""

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import deadlines


class Plugin:
    """Orders jobs by deadline, and permits jobs past it."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = options.typed()
        self._text = self._arguments.text(deadlines.WAITING_TIME, "")

    def open(self, ssn: session.Session) -> None:
        """Register. Each job's deadline is read on demand."""
        ssn.complaints.extend(self._arguments.complaints)
        self._deadlines = deadlines.Deadlines(ssn, self._text)
        ssn.add_job_order(self._deadlines.compare)
        ssn.add_job_enqueueable(self._vote)
        ssn.add_job_pipelined(self._vote)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _vote(self, job: entities.Job) -> int:
        return extension_points.PERMIT if self._deadlines.is_over(job) else extension_points.ABSTAIN
