"""All settings of the scheduler: ``STROM_SCHEDULER_...``."""

import msgspec

from stromboli.scheduler.core import policy
from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.leader_election import LeaseSettings


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler itself needs, embedded or not."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    """We act only on pods whose schedulerName is one of these."""
    seed: int = 0
    """What chance there is in decisions depends on this and nothing else."""
    instance: str = "scheduler"
    """Names this process in its epoch record."""
    max_in_flight_tasks: int = 2000
    """Binds and evictions decided and not yet carried out, beyond which nothing more is decided:
    two seconds of what an API server takes. More where the controller is measured to be faster."""
    sync_max_age_s: float = 60.0
    """How old the monitor's newest sign of life may be before nothing is decided any more."""
    min_session_interval_s: float = 0.005
    """Least time between the starts of two sessions. The first change after a pause is answered at
    once; a burst is answered in a few sessions instead of one for each record."""

    plugin_deadline_s: float = 5.0
    """After so long a plugin's call that did not return is stopped, and the plugin left out for ten
    minutes. A call takes microseconds; a busy machine is no plugin's fault."""
    configuration: str = ""
    """File with actions and tiers in Volcano's format; none: its built-in default."""
    configuration_check_s: float = 2.0
    """How often that file is looked at again. A mounted ConfigMap takes a minute to change."""

    @property
    def policy(self) -> policy.Policy:
        """What of it decides."""
        return policy.Policy(
            scheduler_names=self.scheduler_names, max_in_flight=self.max_in_flight_tasks
        )


class Settings(SchedulerSettings, frozen=True, kw_only=True):
    """The service as a process of its own."""

    kafka: KafkaSettings = KafkaSettings()
    lease: LeaseSettings = LeaseSettings()
    health_host: str = "0.0.0.0"
    health_port: int = 8082
    """Port of ``/livez``, ``/readyz`` and ``/metrics``; 0 takes a free one."""
