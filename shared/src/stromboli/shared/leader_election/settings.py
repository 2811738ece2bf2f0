"""All settings of leases; nested in a service's settings as ``lease``: ``STROM_LEASE_...``."""

import msgspec

from stromboli.shared.leader_election import lease_rules


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of a service acts, the others stand by."""

    enabled: bool = True
    """Off: this process acts at once, as is right for a service that has one replica for ever and
    is stopped before another begins."""
    identity: str = ""
    """Names this replica in the lease, and must be its own alone: a pod's name. A process that
    begins anew under it goes on at once instead of waiting for the lease to end. Empty: the host's
    name with some chance."""
    namespace: str = ""
    """Where the Leases of monitor and controller are. Empty: where the pod is, else ``default``."""
    name: str = "stromboli"
    """What they are called: ``<name>-<cluster name>-<service>``."""
    duration_s: int = 15
    """How long a lease lasts that nobody renews: a standby takes over in so many seconds after its
    holder has died. In whole seconds, as Kubernetes has it."""
    renew_deadline_s: float = 10.0
    """How long its holder acts after its last renewal: less, so that clocks which run apart by half
    and a request under way do no harm."""
    retry_period_s: float = 2.0
    """How often it is renewed, or looked at by a standby: one small request."""

    @property
    def terms(self) -> lease_rules.LeaseTiming:
        """Raises ValueError for lengths that promise nothing."""
        return lease_rules.LeaseTiming(
            duration_s=self.duration_s,
            renew_deadline_s=self.renew_deadline_s,
            retry_period_s=self.retry_period_s,
        )
