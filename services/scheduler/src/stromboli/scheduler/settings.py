"""The settings of the scheduler: ``STROM_SCHEDULER_...``."""

import msgspec

from stromboli.scheduler.core import policy
from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.leader_election import LeaseSettings


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the scheduler has in embedded mode, too."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    """Only pods whose schedulerName is one of these are scheduled."""
    seed: int = 0
    """Seed of all random choices of sessions."""
    instance: str = "scheduler"
    """Name of this process in the record that opens its epoch."""
    max_in_flight_tasks: int = 2000
    """Limit of binds and evictions that are decided and not executed yet: two seconds of work of an
    API server. The limit is raised if the measured rate of the controller is higher."""
    sync_max_age_s: float = 60.0
    """Age of the monitor's newest sync markers above which no session runs, seconds."""
    min_session_interval_s: float = 0.005
    """Minimum time between the starts of two sessions, seconds. The first change after a pause
    starts a session immediately; a burst of records starts a few sessions instead of one per
    record."""

    plugin_deadline_s: float = 5.0
    """CPU time that one call of a plugin may use, seconds. A call that uses more, or takes twelve
    times as long by the clock, is stopped, and sessions run without the plugin for ten minutes.
    Calls take microseconds."""
    configuration: str = ""
    """File with actions and tiers in Volcano's format; empty: the built-in default."""
    configuration_check_s: float = 2.0
    """Interval at which the file is read again, seconds. A mounted ConfigMap changes within a
    minute."""

    forecast_refresh_s: float = 60.0
    """Interval at which the expected starts of the first 500 pending gangs are computed, seconds;
    for all other gangs every ten minutes. 0 disables forecasts: no forecast process runs."""
    forecast_cpu: float = 0.1
    """Share of a core that forecasts may use. With a smaller share, forecasts are older or have
    fewer draws."""
    forecast_memory_mib: int = 512
    """Memory limit of a forecast process, MiB. A forecast that needs more fails without affecting
    the scheduler."""
    what_if_cpu: float = 0.5
    """Share of a core that answers to what-if questions may use, after a burst of 6 CPU seconds. No
    process runs without questions. 0 disables what-if."""

    @property
    def policy(self) -> policy.Policy:
        """The settings that decisions depend on."""
        return policy.Policy(
            scheduler_names=self.scheduler_names, max_in_flight=self.max_in_flight_tasks
        )


class Settings(SchedulerSettings, frozen=True, kw_only=True):
    """Settings of the scheduler as a process."""

    kafka: KafkaSettings = KafkaSettings()
    lease: LeaseSettings = LeaseSettings()
    health_host: str = "0.0.0.0"
    health_port: int = 8082
    """Port of ``/livez``, ``/readyz`` and ``/metrics``; 0 for any free port."""
