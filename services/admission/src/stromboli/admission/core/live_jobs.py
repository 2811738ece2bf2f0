"""Limits of live jobs per submitter and per queue, counted from ``cluster.jobs``.

A job is live until its phase is final. A job that was admitted and is not in the cache yet is
*reserved*, so that a burst of submissions cannot pass the limit; a reservation ends when the cache
has the job, when writing it failed, or once the cache is complete up to ``RESERVED_S`` after the
reservation: a job that is absent by then was never written. While the monitor is unavailable no
reservation ends by time, so the limit holds.

Replicas of admission do not see each other's reservations. Until ``cluster.jobs`` has a job (about
a second), another replica does not count it: if ``n`` more jobs are allowed, ``r`` replicas may
admit up to ``r * n`` jobs in a burst, and then none until the count is below the limit. A limit
that holds across replicas at any moment would cost a round trip through the log for each job, and
no job could be admitted without the log.

A job that cannot be decoded counts with its last known state, and not at all if it is new: an
unknown job must not block the work of others.
"""

import collections
import math
from collections.abc import Collection

import msgspec

from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import batch
from stromboli.shared.jobspec.validation.queueing import permissions
from stromboli.shared.messages.admission import Violation

FINAL_PHASES = ("Completed", "Failed", "Terminated")
RESERVED_S = 60.0
"""Seconds after which the reservation of an absent job ends: longer than the time from the review
of a request to the API server's write."""


class Owner(msgspec.Struct, frozen=True):
    """The submitter (empty if unknown) and queue that a job counts for."""

    user: str
    queue: str


class LiveJobs:
    """Counts live jobs and reserved ones. A limit of 0 means no limit."""

    def __init__(self, max_per_user: int = 0, max_per_queue: int = 0) -> None:
        self.complete_until_s = -math.inf
        """Time before which all changes of jobs have been applied, in seconds of the clock of
        ``reserve``."""
        self._max_per_user = max_per_user
        self._max_per_queue = max_per_queue
        self._live: dict[str, Owner] = {}
        self._reserved: dict[str, tuple[Owner, float]] = {}
        """Key -> owner and time, ordered by time."""
        self._per_user: collections.Counter[str] = collections.Counter()
        self._per_queue: collections.Counter[str] = collections.Counter()

    @property
    def is_enabled(self) -> bool:
        """Whether there is a limit, so that jobs have to be counted."""
        return self._max_per_user > 0 or self._max_per_queue > 0

    def fold(self, record: envelope.Record) -> None:
        """Apply a record of ``cluster.jobs``; one that cannot be decoded changes nothing."""
        try:
            job = envelope.decode(record)
        except errors.UndecodableError:
            return
        if isinstance(job, batch.Job):
            self.release(record.key)
            self._remove(record.key)
            if job.status.state.phase not in FINAL_PHASES:
                submitter = permissions.recorded(job.metadata)
                self._add(record.key, Owner(submitter.name, job.spec.queue))
        elif job is None:
            self._remove(record.key)

    def forget(self, recreated: Collection[str]) -> None:
        """Drop the jobs of a topic that was deleted and created again."""
        if topics.JOBS.name in recreated:
            for key in list(self._live):
                self._remove(key)

    def reserve(self, key: str, owner: Owner, now: float) -> tuple[Violation, ...]:
        """Count a new job as live, or return the exceeded limit. A job that is already counted
        passes; if its queue changes, the limit of the new queue applies. ``now``: seconds of a
        monotonic clock. Amortised O(1).
        """
        self._expire()
        if not self.is_enabled or key in self._reserved:
            return ()
        if (live := self._live.get(key)) is not None:
            exceeded = self._exceeded(owner) if live.queue != owner.queue else ()
            return tuple(it for it in exceeded if it.path == "spec.queue")
        violations = tuple(self._exceeded(owner))
        if not violations:
            self._reserved[key] = (owner, now)
            self._count(owner, 1)
        return violations

    def release(self, key: str) -> None:
        """End a reservation: the job was not written, or the cache has it."""
        if (reserved := self._reserved.pop(key, None)) is not None:
            self._count(reserved[0], -1)

    def _exceeded(self, owner: Owner) -> list[Violation]:
        violations = []
        limit, count = self._max_per_user, self._per_user[owner.user]
        if owner.user and 0 < limit <= count:
            reason = f"user {owner.user!r} has {count} live jobs, the limit is {limit}"
            violations.append(Violation(path="metadata", reason=reason, expected=_NEXT_STEP))
        limit, count = self._max_per_queue, self._per_queue[owner.queue]
        if 0 < limit <= count:
            reason = f"queue {owner.queue!r} has {count} live jobs, the limit is {limit}"
            violations.append(Violation(path="spec.queue", reason=reason, expected=_NEXT_STEP))
        return violations

    def _expire(self) -> None:
        while self._reserved:
            key, (_, since) = next(iter(self._reserved.items()))
            if self.complete_until_s - since < RESERVED_S:
                return
            self.release(key)

    def _add(self, key: str, owner: Owner) -> None:
        self._live[key] = owner
        self._count(owner, 1)

    def _remove(self, key: str) -> None:
        if (owner := self._live.pop(key, None)) is not None:
            self._count(owner, -1)

    def _count(self, owner: Owner, change: int) -> None:
        for counter, name in ((self._per_user, owner.user), (self._per_queue, owner.queue)):
            counter[name] += change
            if not counter[name]:
                del counter[name]


_NEXT_STEP = "submit it again when jobs have ended, or ask the operator for a higher limit"
