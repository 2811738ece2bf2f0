"""Deadlines of waiting jobs: creation time plus ``sla-waiting-time``.

Both the creation time and the session's time come from the API server's clock (see
``cluster_clock``).
"""

from datetime import datetime, timedelta

from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.shared.jobspec import waiting_time

WAITING_TIME = "sla-waiting-time"


class Deadlines:
    """Reads each job's deadline once, on demand. Reports waiting times that cannot be read."""

    def __init__(self, ssn: session.Session, default: str = "") -> None:
        self._session = ssn
        self._default = self._waiting_time("plugin sla: arguments", default)
        self._known: dict[str, datetime | None] = {}

    @classmethod
    def configured(cls, ssn: session.Session) -> "Deadlines":
        """Return deadlines with the default of the plugin ``sla``, if it is configured."""
        tiers = ssn.configuration.tiers
        plugin_options = [plugin for tier in tiers for plugin in tier if plugin.name == "sla"]
        return cls(ssn, plugin_options[0].typed().text(WAITING_TIME, "") if plugin_options else "")

    def of(self, job: entities.Job) -> datetime | None:
        """Return the deadline of the job; None if it has none."""
        if job.key not in self._known:
            own = self._waiting_time(f"PodGroup {job.key}: annotations", job.waiting_time)
            own = own or self._default
            try:
                self._known[job.key] = None if own is None else durations.after(job.created, own)
            except OverflowError:
                self._known[job.key] = None
        return self._known[job.key]

    def is_over(self, job: entities.Job) -> bool:
        """Return whether the deadline has passed. If not, request a session at the deadline."""
        deadline = self.of(job)
        return deadline is not None and self._session.reached(deadline)

    def compare(self, left: entities.Job, right: entities.Job) -> int:
        """Order jobs by deadline; jobs without one come last."""
        first, second = self.of(left), self.of(right)
        if first is None or second is None:
            return (first is None) - (second is None)
        return (first > second) - (first < second)

    def _waiting_time(self, where: str, text: str) -> timedelta | None:
        """Return the duration; None, with a complaint, if it cannot be used."""
        if not text:
            return None
        try:
            return waiting_time.parse(text)
        except ValueError as error:
            self._session.complaints.append(f"{where}.{WAITING_TIME}: {error}; it is ignored")
            return None
