"""All settings of leases; nested in a service's settings as ``lease``: ``STROM_LEASE_...``."""

import msgspec

from stromboli.shared.leader_election import lease_rules


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a service acts; the others stand by."""

    enabled: bool = True
    """Off: this process acts immediately. Only for a service with a single replica that is stopped
    before the next one starts."""
    identity: str = ""
    """Names this replica in the lease and must be unique, such as the pod's name. A process that
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
    """Seconds for which the holder acts after its last renewal. Less than the duration, so that
    clocks which differ in speed by half and a request in flight do no harm."""
    retry_period_s: float = 2.0
    """Seconds between two renewals, or between two checks of a standby: one small request each."""

    @property
    def terms(self) -> lease_rules.LeaseTiming:
        """The durations. Raises ValueError if they are not in descending order."""
        return lease_rules.LeaseTiming(
            duration_s=self.duration_s,
            renew_deadline_s=self.renew_deadline_s,
            retry_period_s=self.retry_period_s,
        )
