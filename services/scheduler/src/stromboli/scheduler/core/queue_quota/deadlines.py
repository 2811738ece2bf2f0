"""When jobs' patience ends: creation plus ``sla-waiting-time`` (spec/plugins 11).

The creation time is the API server's, and so is a session's time (see ``cluster_clock``).
"""

from datetime import datetime, timedelta

from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities

WAITING_TIME = "sla-waiting-time"


class Deadlines:
    """Each job's deadline, read once and when it is asked for; what cannot be read is said."""

    def __init__(self, ssn: session.Session, default: str = "") -> None:
        self._session = ssn
        self._default = self._waiting_time("plugin sla", default)
        self._known: dict[str, datetime | None] = {}

    @classmethod
    def configured(cls, ssn: session.Session) -> "Deadlines":
        """With the default that the plugin ``sla`` is configured with, if it is."""
        tiers = ssn.configuration.tiers
        found = [plugin for tier in tiers for plugin in tier if plugin.name == "sla"]
        return cls(ssn, found[0].typed().text(WAITING_TIME, "") if found else "")

    def of(self, job: entities.Job) -> datetime | None:
        """When the job should have started; None if nothing says."""
        if job.key not in self._known:
            own = self._waiting_time(f"PodGroup {job.key}", job.waiting_time) or self._default
            try:
                self._known[job.key] = None if own is None else durations.after(job.created, own)
            except OverflowError:
                self._known[job.key] = None
        return self._known[job.key]

    def is_over(self, job: entities.Job) -> bool:
        """It has passed; if it has not, a session starts when it does."""
        deadline = self.of(job)
        return deadline is not None and self._session.reached(deadline)

    def compare(self, left: entities.Job, right: entities.Job) -> int:
        """The earlier deadline first, jobs without one last."""
        first, second = self.of(left), self.of(right)
        if first is None or second is None:
            return (first is None) - (second is None)
        return (first > second) - (first < second)

    def _waiting_time(self, where: str, text: str) -> timedelta | None:
        """What the text says; None, and a complaint, if it is no duration above zero."""
        if not text:
            return None
        try:
            found = durations.duration(text)
        except ValueError as error:
            self._session.complaints.append(f"{where}: {WAITING_TIME}: {error}")
            return None
        return found if found > timedelta(0) else None
