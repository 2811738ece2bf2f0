"""Settings of leases (``STROM_LEASE_...``), nested in a service's settings as ``lease``."""

import msgspec

from stromboli.shared.leader_election import lease_rules


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of leader election: one replica of a service acts, the others are standbys."""

    enabled: bool = True
    """Whether the process takes a lease before it acts. If off, it acts immediately: only for a
    service with a single replica that is stopped before the next one starts."""
    identity: str = ""
    """Name of this replica in the lease. It must be unique, such as the pod's name. A process that
    restarts under the same identity continues without waiting for the lease to expire. Empty: the
    host's name and a random suffix."""
    namespace: str = ""
    """Namespace of the Leases of monitor and controller. Empty: the pod's namespace, else
    ``default``.
    """
    name: str = "stromboli"
    """Prefix of the leases' names: ``<name>-<cluster name>-<service>``."""
    duration_s: int = 15
    """Seconds until a lease that is not renewed expires: a standby takes over this long after its
    holder failed. Whole seconds, as in Kubernetes."""
    renew_deadline_s: float = 10.0
    """Seconds for which the holder acts after its last renewal. Less than the duration, to allow
    for clocks that differ in speed by half and for a request in flight."""
    retry_period_s: float = 2.0
    """Seconds between two renewals, or between two checks of a standby: one small request each."""

    @property
    def terms(self) -> lease_rules.LeaseTiming:
        """The durations of the lease. Raises ValueError if they are not in descending order."""
        return lease_rules.LeaseTiming(
            duration_s=self.duration_s,
            renew_deadline_s=self.renew_deadline_s,
            retry_period_s=self.retry_period_s,
        )
