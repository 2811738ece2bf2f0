"""The rules of a lease: when it may be taken, and how long its holder may act. Pure: time is an
argument."""

import math

import msgspec

from stromboli.shared.api import coordination

DEFAULT_DURATION_S = 15.0
"""Duration of a lease that does not specify it, in seconds: client-go's default."""


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds: of the lease, of the holder's right to act after a renewal, and between
    two renewals or checks."""

    duration_s: float
    renew_deadline_s: float
    retry_period_s: float

    def __post_init__(self) -> None:
        if not 0 < self.retry_period_s < self.renew_deadline_s < self.duration_s:
            raise ValueError(
                f"lease duration {self.duration_s} s, renew deadline {self.renew_deadline_s} s, "
                f"retry period {self.retry_period_s} s: they must be in descending order"
            )


class LeaseRecord(msgspec.Struct, frozen=True):
    """A lease as stored. ``mark`` changes with every renewal. A lease without a holder is free."""

    holder: str = ""
    duration_s: float = 0.0
    mark: str = ""


def lease_record(spec: coordination.LeaseSpec) -> LeaseRecord:
    """The record of a Lease object's spec."""
    duration_s = float(spec.lease_duration_seconds or DEFAULT_DURATION_S)
    return LeaseRecord(
        spec.holder_identity or "", duration_s, f"{spec.renew_time} {spec.acquire_time}"
    )


class LeaseObservation:
    """Tracks how long a lease has been unchanged, by the observer's own clock."""

    def __init__(self) -> None:
        self.seen: LeaseRecord | None = None
        self._since = 0.0

    def observe(self, lease: LeaseRecord, now: float) -> None:
        """Note the lease record that was read at ``now``."""
        if lease != self.seen:
            self.seen, self._since = lease, now

    def is_held(self, now: float) -> bool:
        """Whether the holder of the lease may still act. A lease that was never observed counts as
        held."""
        if self.seen is None:
            return True
        return bool(self.seen.holder) and now <= self._since + self.seen.duration_s


class Candidate:
    """One replica's view of a lease. ``identity`` must be unique: a process that restarts under the
    same identity continues the lease of the previous process."""

    def __init__(self, identity: str, terms: LeaseTiming) -> None:
        self.identity = identity
        self.terms = terms
        self._observed = LeaseObservation()
        self.acts_until = -math.inf
        """The time until which this replica may act, by its own clock; in the past for a
        standby."""

    @property
    def holder(self) -> str:
        """The holder as last observed; empty if there is none or the lease was never observed."""
        return "" if self._observed.seen is None else self._observed.seen.holder

    def observe(self, stored_record: LeaseRecord, now: float) -> None:
        """Note the lease record that was read at ``now``. If it has another holder, this replica
        may no longer act."""
        self._observed.observe(stored_record, now)
        if stored_record.holder != self.identity:
            self.acts_until = -math.inf

    def may_write(self, now: float) -> bool:
        """Whether this replica may take or renew the lease now."""
        return self.holder == self.identity or not self._observed.is_held(now)

    def record_renewal(self, lease: LeaseRecord, sent_at: float, now: float) -> None:
        """Note that this replica holds the lease, by a write that was sent at ``sent_at``."""
        self._observed.observe(lease, now)
        self.acts_until = sent_at + self.terms.renew_deadline_s

    def acts(self, now: float) -> bool:
        """Whether this replica may act."""
        return now < self.acts_until

    def step_down(self) -> None:
        """Give up the right to act."""
        self.acts_until = -math.inf
