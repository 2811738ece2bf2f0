"""Whose leases claim names of schedulers.

A lease counts while its holder renews it, by the time in which we see it change: what clock wrote
into it does not matter. One that was never looked at before counts until it has stood still for as
long as it lasts, unless it says itself that it was left behind long ago, since a system that was
removed leaves its leases. One that could not be read makes everything unknown.
"""

from datetime import datetime, timedelta

import msgspec

from stromboli.shared.api import coordination
from stromboli.shared.leader_election import lease_rules
from stromboli.shared.messages import cluster

LONG_AGO = timedelta(minutes=10)
"""A lease renewed so long ago is left behind: no two clocks of a cluster differ by that."""


class LeaseClaim(msgspec.Struct, frozen=True):
    """A lease whose holder acts on the objects of a scheduler's name."""

    namespace: str
    name: str
    scheduler_name: str

    @property
    def key(self) -> str:
        """As people name it."""
        return f"{self.namespace}/{self.name}"


def parse_claims(written: tuple[str, ...]) -> tuple[LeaseClaim, ...]:
    """From ``namespace/name=scheduler name`` each. Raises ValueError, which says what is wrong."""
    found = []
    for text in written:
        lease, _, scheduler_name = text.partition("=")
        namespace, _, name = lease.partition("/")
        if not (namespace and name and scheduler_name):
            raise ValueError(f"{text!r} is no claim: write namespace/name=scheduler name")
        found.append(LeaseClaim(namespace, name, scheduler_name))
    return tuple(found)


class CompetitorTracker:
    """What was seen of the leases so far. Feed every look at one, then ask."""

    def __init__(self, looked_at: tuple[LeaseClaim, ...]) -> None:
        self._claims = looked_at
        self._observed = {claim: lease_rules.LeaseObservation() for claim in looked_at}
        self._leases: dict[LeaseClaim, coordination.LeaseSpec] = {}
        self._unknown: dict[LeaseClaim, str] = {}

    def see(self, claim: LeaseClaim, spec: coordination.LeaseSpec | None, now_s: float) -> None:
        """This is how a lease stands; None: there is none."""
        self._unknown.pop(claim, None)
        self._leases[claim] = spec or coordination.LeaseSpec()
        self._observed[claim].see(lease_rules.lease_record(self._leases[claim]), now_s)

    def refuse(self, claim: LeaseClaim, reason: str) -> None:
        """The lease may not be looked at."""
        self._unknown[claim] = reason

    def found(self, now_s: float, now: datetime) -> cluster.CompetitorsObserved:
        """Who acts: ``now_s`` is what leases are measured by."""
        return cluster.CompetitorsObserved(
            competitors=tuple(
                cluster.Competitor(
                    lease=claim.key,
                    holder=self._leases[claim].holder_identity or "",
                    since=self._leases[claim].acquire_time or "a time it does not say",
                    scheduler_name=claim.scheduler_name,
                )
                for claim in self._claims
                if claim in self._leases
                and self._observed[claim].is_held(now_s)
                and not _is_abandoned(self._leases[claim], now)
            ),
            unknown="; ".join(dict.fromkeys(self._unknown.values())),
        )


def _is_abandoned(spec: coordination.LeaseSpec, now: datetime) -> bool:
    try:
        renewed = datetime.fromisoformat(spec.renew_time or "")
    except ValueError:
        return False
    return renewed.tzinfo is not None and now - renewed > LONG_AGO
