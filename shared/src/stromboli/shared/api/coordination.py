"""coordination.k8s.io/v1 Lease."""

from stromboli.shared.api.meta import Int32, Object, Part


class LeaseSpec(Part, frozen=True, kw_only=True):
    """The holder of the lease and its times. ``renew_time`` is text: clocks differ between hosts,
    so only a change of the value is meaningful, not the value itself.
    """

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: Int32 | None = None


class Lease(Object, frozen=True, kw_only=True):
    """A lease that one replica holds at a time."""

    spec: LeaseSpec = LeaseSpec()
