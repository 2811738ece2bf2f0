"""When a lease may be taken, and until when its holder may act. Pure: time is an argument.

Every replica goes by its own clock and by what it saw change, never by a time that somebody else
wrote: clocks may show what they like, as long as they run about equally fast. With *L* the length
of a lease and *R* < *L* what its holder allows itself:

* A renewal that was sent at *t* lets its holder act until *t* + *R*. That it took effect is known
  later, so the holder is never later than it thinks.
* Others see it at *t* or later, and take the lease when it has stood unchanged for *L* since: not
  before *t* + *L*.

So two act at once only where clocks run apart by more than *L* / *R*. What a replica still does
that was paused between looking at the clock and acting is for the log's epochs to drop, and for
tests in patches.

Source: client-go's leader election, with the holder's deadline counted from the sending.
"""

import math

import msgspec

from stromboli.shared.api import coordination

DEFAULT_DURATION_S = 15.0
"""What client-go's leases last, for one that does not say."""


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: how long a lease lasts, how long its holder acts after a renewal, and between two
    looks at it. Raises ValueError for an order that promises nothing."""

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
    """A lease as it stands. ``mark`` changes with every renewal; without a holder it is free."""

    holder: str = ""
    duration_s: float = 0.0
    mark: str = ""


def lease_record(spec: coordination.LeaseSpec) -> LeaseRecord:
    """A lease of the cluster as candidates look at it."""
    duration_s = float(spec.lease_duration_seconds or DEFAULT_DURATION_S)
    return LeaseRecord(
        spec.holder_identity or "", duration_s, f"{spec.renew_time} {spec.acquire_time}"
    )


class LeaseObservation:
    """How long a lease has stood as it is, by the observer's own clock."""

    def __init__(self) -> None:
        self.seen: LeaseRecord | None = None
        self._since = 0.0

    def see(self, seen: LeaseRecord, now: float) -> None:
        """This is how it stands."""
        if seen != self.seen:
            self.seen, self._since = seen, now

    def is_held(self, now: float) -> bool:
        """Whether its holder may still act for all we know; a lease never looked at is held."""
        if self.seen is None:
            return True
        return bool(self.seen.holder) and now <= self._since + self.seen.duration_s


class Candidate:
    """One replica's part. ``identity`` is its own alone: who begins anew under an identity ends
    whoever had it before."""

    def __init__(self, identity: str, terms: LeaseTiming) -> None:
        self.identity = identity
        self.terms = terms
        self._observed = LeaseObservation()
        self.acts_until = -math.inf
        """By this replica's clock; in the past for one that stands by."""

    @property
    def holder(self) -> str:
        """Who holds the lease as last seen; empty for nobody, or if it was never looked at."""
        return "" if self._observed.seen is None else self._observed.seen.holder

    def see(self, seen: LeaseRecord, now: float) -> None:
        """This is how the lease stands. Whoever else holds it has our place."""
        self._observed.see(seen, now)
        if seen.holder != self.identity:
            self.acts_until = -math.inf

    def may_write(self, now: float) -> bool:
        """Whether to take or renew the lease."""
        return self.holder == self.identity or not self._observed.is_held(now)

    def wrote(self, seen: LeaseRecord, sent_at: float, now: float) -> None:
        """The lease is ours by a write that was sent at ``sent_at``."""
        self._observed.see(seen, now)
        self.acts_until = sent_at + self.terms.renew_deadline_s

    def acts(self, now: float) -> bool:
        """Whether this replica may act."""
        return now < self.acts_until

    def yields(self) -> None:
        """Act no more."""
        self.acts_until = -math.inf
