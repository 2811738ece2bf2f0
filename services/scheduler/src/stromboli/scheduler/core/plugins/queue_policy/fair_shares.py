"""Usage by the owners of a queue's jobs: fair share by job, namespace or user.

An owner's level is its current usage plus the average of its past usage, each as a dominant share
of the cluster (the largest fraction of any resource), divided by its weight. The average decays
exponentially: usage one half-life ago counts half. So heavy users let others go first for a while,
and unused shares do not accumulate.

The average is updated from session to session: between two sessions an owner counts with the
smaller of its usages at both. While any job waits, every change starts a session, so the average is
exact; usage that ended while no job waited delayed no job. The result depends on session times and
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
"""An average below a millionth of the cluster is dropped."""
DIGITS = 9
"""Levels are rounded, so that equal ones compare equal regardless of the order of summation."""


class FairShareSettings(msgspec.Struct, frozen=True):
    """The kind of owner, the weights (default 1) and the half-life of past usage."""

    by: str = JOB
    weights: Mapping[str, float] = {}
    half_life: timedelta = timedelta(days=1)

    def owner(self, job: entities.Job) -> str:
        """Return the job's owner; empty for a job without a submitter."""
        if self.by == NAMESPACE:
            return job.namespace
        if self.by == USER:
            return job.pod_group.metadata.annotation(keys.USER) or ""
        return job.key

    @property
    def uses_history(self) -> bool:
        """Return whether past usage counts. It does not with ``share-by: job``, because the history
        of a job would only count against that job."""
        return self.by != JOB and self.half_life > timedelta(0)


class OwnerUsage(msgspec.Struct, array_like=True):
    """An owner's average past usage, and its share at the end of the session."""

    average: float = 0.0
    held: float = 0.0


class QueueHistory(msgspec.Struct, rename="camel"):
    """The stored usage of a queue. It is valid only for the same kind of owner (``by``)."""

    by: str
    owners: dict[str, OwnerUsage]


class UsageHistory(msgspec.Struct):
    """The state that one session stores for the next one, as JSON."""

    at: datetime
    queues: dict[str, QueueHistory] = {}


class OwnerShares:
    """The usage of each owner of jobs in one queue. O(jobs of the queue) to open, O(resources) per
    call."""

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
        """Count the job's usage at the start of the session."""
        row = self._held.setdefault(self.fair_share.owner(job), [0] * len(self._total))
        for column, amount in enumerate(job.allocated.tolist()):
            row[column] += amount

    def opened(self) -> "OwnerShares":
        """Update the averages to the session's time, after all jobs are counted."""
        if not self.fair_share.uses_history or self._page is None:
            return self
        kept = 0.5 ** (self._passed / self.fair_share.half_life)
        for owner in sorted(self._page.owners.keys() | self._held.keys()):
            before = self._page.owners.get(owner, OwnerUsage())
            usage = min(before.held, self._share(owner))
            self._averages[owner] = before.average * kept + usage * (1 - kept)
        return self

    def level(self, job: entities.Job) -> float:
        """Return the weighted usage, current and past, of the job's owner; the lowest is served
        first."""
        owner = self.fair_share.owner(job)
        weight = self.fair_share.weights.get(owner, 1.0)
        return round((self._share(owner) + self._averages.get(owner, 0.0)) / weight, DIGITS)

    def charge(self, job: entities.Job, demand: shares.Demand, times: int) -> None:
        """Charge the demand to the job's owner; negative ``times`` gives it back."""
        row = self._held.setdefault(self.fair_share.owner(job), [0] * len(self._total))
        shares.add(row, demand, times)

    def closed(self) -> QueueHistory | None:
        """Return the state for the next session; None if there is none."""
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
