"""All settings of the monitor."""

import msgspec

from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster.kubernetes import KubernetesSettings


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the monitor itself needs, embedded or not."""

    instance: str = "monitor"
    """Names this process in its epoch record: the pod's name."""
    beat_s: float = 3.0
    """Seconds between two signs of life of a kind in ``cluster.sync``. Readers call a sync old
    after many of these, so that one lost beat does not stop them."""


class Settings(MonitorSettings, frozen=True, kw_only=True):
    """The service as a process of its own."""

    kafka: KafkaSettings = KafkaSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    health_host: str = "0.0.0.0"
    """Probes come from the node, so not from loopback."""
    health_port: int = 8482
