"""Determines which leases claim scheduler names.

A lease is active while its holder renews it, measured by the observer's clock between changes;
times written into it are not used. On first observation a lease counts as active until it has not
changed for its duration, unless its own renew time is very old, because a removed system leaves its
leases behind. If a lease cannot be read, the whole result is unknown.
"""

from datetime import datetime, timedelta

import msgspec

from stromboli.shared.api import coordination
from stromboli.shared.leader_election import lease_rules
from stromboli.shared.messages import cluster

LONG_AGO = timedelta(minutes=10)
"""A lease renewed this long ago is abandoned: no two clocks of a cluster differ by that much."""


class LeaseClaim(msgspec.Struct, frozen=True):
    """A lease whose holder acts for a scheduler name."""

    namespace: str
    name: str
    scheduler_name: str

    @property
    def key(self) -> str:
        """The lease as ``namespace/name``, by which users know it."""
        return f"{self.namespace}/{self.name}"


def parse_claims(written: tuple[str, ...]) -> tuple[LeaseClaim, ...]:
    """Parse entries ``namespace/name=scheduler name``. Raises ValueError for an invalid entry."""
    lease_claims = []
    for text in written:
        lease, _, scheduler_name = text.partition("=")
        namespace, _, name = lease.partition("/")
        if not (namespace and name and scheduler_name):
            raise ValueError(f"{text!r} is invalid: write namespace/name=scheduler name")
        lease_claims.append(LeaseClaim(namespace, name, scheduler_name))
    return tuple(lease_claims)


class CompetitorTracker:
    """The observations of the leases. Call ``observe`` for every lease, then ``found``."""

    def __init__(self, looked_at: tuple[LeaseClaim, ...]) -> None:
        self._claims = looked_at
        self._observed = {claim: lease_rules.LeaseObservation() for claim in looked_at}
        self._leases: dict[LeaseClaim, coordination.LeaseSpec] = {}
        self._changed: set[LeaseClaim] = set()
        """Leases that have changed since their first observation: they are in use, whatever the
        clocks of their holder and of this process are."""
        self._unknown: dict[LeaseClaim, str] = {}

    def observe(self, claim: LeaseClaim, spec: coordination.LeaseSpec | None, now_s: float) -> None:
        """Observe a lease. ``spec``: None if the lease does not exist."""
        self._unknown.pop(claim, None)
        lease = spec or coordination.LeaseSpec()
        if self._leases.get(claim, lease) != lease:
            self._changed.add(claim)
        self._leases[claim] = lease
        self._observed[claim].observe(lease_rules.lease_record(self._leases[claim]), now_s)

    def record_error(self, claim: LeaseClaim, reason: str) -> None:
        """Record why a lease cannot be read."""
        self._unknown[claim] = reason

    def found(self, now_s: float, now: datetime) -> cluster.CompetitorsObserved:
        """The active systems. ``now_s``: the monotonic clock by which leases are measured."""
        return cluster.CompetitorsObserved(
            competitors=tuple(
                cluster.Competitor(
                    lease=claim.key,
                    holder=self._leases[claim].holder_identity or "",
                    since=self._leases[claim].acquire_time or "an unknown time",
                    scheduler_name=claim.scheduler_name,
                )
                for claim in self._claims
                if claim in self._leases
                and self._observed[claim].is_held(now_s)
                and (claim in self._changed or not _is_abandoned(self._leases[claim], now))
            ),
            unknown="; ".join(dict.fromkeys(self._unknown.values())),
        )


def _is_abandoned(spec: coordination.LeaseSpec, now: datetime) -> bool:
    try:
        renewed = datetime.fromisoformat(spec.renew_time or "")
    except ValueError:
        return False
    return renewed.tzinfo is not None and now - renewed > LONG_AGO
