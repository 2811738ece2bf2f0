"""coordination.k8s.io/v1 Lease."""

from stromboli.shared.api.meta import Int32, Object, Part


class LeaseSpec(Part, frozen=True, kw_only=True):
    """Who holds it. ``renew_time`` is text here: clocks differ, so nobody may reckon with it; what
    counts is that it changes."""

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: Int32 | None = None


class Lease(Object, frozen=True, kw_only=True):
    """A right that one of several holds for a while."""

    spec: LeaseSpec = LeaseSpec()
