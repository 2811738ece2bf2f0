"""What the owners inside a queue hold and have held: the books of fair share by job, namespace
or user.

An owner's level is what it holds now plus the average of what it held, each as a dominant share
of the cluster (the largest part of any resource), divided by its weight. The average decays: what
was held one half-life ago counts half. So who used much lets others go first for a while, and who
was away too long is owed nothing for it.

The average is folded from session to session: between two sessions an owner is taken to have held
the less of what it held at both. While anybody waits every change brings a session, so that is
exact; what ended while nobody waited kept nobody out. All is a function of the sessions' times and
objects alone.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.queue_quota import shares
from stromboli.shared import keys

JOB, NAMESPACE, USER = "job", "namespace", "user"
OWNERS = (JOB, NAMESPACE, USER)
NEGLIGIBLE_USAGE = 1e-6
"""An average below a millionth of the cluster is forgotten."""
DIGITS = 9
"""Levels are rounded, so that equal ones are equal however they were summed up."""


class FairShareSettings(msgspec.Struct, frozen=True):
    """Among whom a queue is shared, with which weights (1 if absent), and what the past counts."""

    by: str = JOB
    weights: Mapping[str, float] = {}
    half_life: timedelta = timedelta(days=1)

    def owner(self, job: entities.Job) -> str:
        """Whose job it is; empty for one that nobody put his name to."""
        if self.by == NAMESPACE:
            return job.namespace
        if self.by == USER:
            return job.pod_group.metadata.annotation(keys.USER) or ""
        return job.key

    @property
    def uses_history(self) -> bool:
        """The past counts; a job's own past would only count against it."""
        return self.by != JOB and self.half_life > timedelta(0)


class OwnerUsage(msgspec.Struct, array_like=True):
    """An owner's average, and the share it held when the session closed."""

    average: float = 0.0
    held: float = 0.0


class QueueHistory(msgspec.Struct, rename="camel"):
    """What is remembered of a queue. Other owners than ``by`` says are not comparable."""

    by: str
    owners: dict[str, OwnerUsage]


class UsageHistory(msgspec.Struct):
    """What one session tells the next, as JSON."""

    at: datetime
    queues: dict[str, QueueHistory] = {}


def decode_history(text: str) -> UsageHistory | None:
    """What an earlier session remembered; None for nothing, or nothing readable."""
    try:
        return msgspec.json.decode(text, type=UsageHistory) if text else None
    except msgspec.DecodeError:
        return None


class OwnerShares:
    """The owners of one queue. O(the queue's jobs) to open, O(resources) a question."""

    def __init__(
        self,
        ssn: session.Session,
        fair_share: FairShareSettings,
        page: QueueHistory | None,
        passed: timedelta,
    ) -> None:
        self.fair_share = fair_share
        self._total: shares.Row = ssn.total.tolist()
        self._held: dict[str, shares.Row] = {}
        self._page = page if page is not None and page.by == fair_share.by else None
        self._passed = passed
        self._averages: dict[str, float] = {}

    def enter(self, job: entities.Job) -> None:
        """Count what the job holds as the session opens."""
        row = self._held.setdefault(self.fair_share.owner(job), [0] * len(self._total))
        for column, amount in enumerate(job.allocated.tolist()):
            row[column] += amount

    def opened(self) -> "OwnerShares":
        """Bring the averages up to now, once all jobs are entered."""
        if not self.fair_share.uses_history or self._page is None:
            return self
        kept = 0.5 ** (self._passed / self.fair_share.half_life)
        for owner in sorted(self._page.owners.keys() | self._held.keys()):
            before = self._page.owners.get(owner, OwnerUsage())
            held = min(before.held, self._share(owner))
            self._averages[owner] = before.average * kept + held * (1 - kept)
        return self

    def level(self, job: entities.Job) -> float:
        """What the job's owner has and had, by weight: the lowest goes first."""
        owner = self.fair_share.owner(job)
        weight = self.fair_share.weights.get(owner, 1.0)
        return round((self._share(owner) + self._averages.get(owner, 0.0)) / weight, DIGITS)

    def charge(self, job: entities.Job, demand: shares.Demand, times: int) -> None:
        """The job got this much, or lost it with negative ``times``."""
        row = self._held.setdefault(self.fair_share.owner(job), [0] * len(self._total))
        shares.add(row, demand, times)

    def closed(self) -> QueueHistory | None:
        """What the next session is to know; None if nothing."""
        if not self.fair_share.uses_history:
            return None
        owners = {
            owner: OwnerUsage(round(average, 12), round(self._share(owner), 12))
            for owner in sorted(self._averages.keys() | self._held.keys())
            if (average := self._averages.get(owner, 0.0)) > NEGLIGIBLE_USAGE or self._share(owner)
        }
        return QueueHistory(self.fair_share.by, owners)

    def _share(self, owner: str) -> float:
        row = self._held.get(owner)
        return shares.dominant_share(row, self._total) if row is not None else 0.0
