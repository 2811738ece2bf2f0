"""All settings of the scheduler: ``STROM_SCHEDULER_...``."""

from typing import Literal

import msgspec

from stromboli.scheduler.core import configuration as policies
from stromboli.shared.bus.kafka import KafkaSettings


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler itself needs, embedded or not."""

    scheduler_names: tuple[str, ...] = ("volcano", "stromboli")
    """We act only on pods whose schedulerName is one of these."""
    gang: bool = True
    """Off, every pod is bound by itself: the baseline that gangs are compared with."""
    job_order: Literal["priority", "shuffle"] = "priority"
    """``shuffle`` orders by the seed: for the baseline."""
    seed: int = 0
    """What shuffling depends on, and nothing else."""
    instance: str = "scheduler"
    """Names this process in its epoch record."""
    max_unanswered_binds: int = 2000
    """Binds decided and not yet carried out, beyond which nothing is placed: two seconds of what
    an API server takes."""
    sync_max_age_s: float = 60.0
    """How old the monitor's newest sign of life may be before nothing is decided any more."""
    min_session_interval_s: float = 0.005
    """Least time between the starts of two sessions. The first change after a pause is answered at
    once; a burst is answered in a few sessions instead of one for each record."""

    configuration: str = ""
    """File with actions and tiers in Volcano's format; none: its built-in default."""
    configuration_check_s: float = 2.0
    """How often that file is looked at again. A mounted ConfigMap takes a minute to change."""

    @property
    def policy(self) -> policies.Configuration:
        """What of it decides, and stands by its digest in every session's record."""
        return policies.Configuration(
            scheduler_names=self.scheduler_names,
            gang=self.gang,
            job_order=self.job_order,
            max_unanswered_binds=self.max_unanswered_binds,
        )


class Settings(SchedulerSettings, frozen=True, kw_only=True):
    """The service as a process of its own."""

    kafka: KafkaSettings = KafkaSettings()
    health_host: str = "0.0.0.0"
    health_port: int = 8082
    """Port of ``/livez``, ``/readyz`` and ``/metrics``; 0 takes a free one."""
