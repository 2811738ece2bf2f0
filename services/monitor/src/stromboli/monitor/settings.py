"""All settings of the monitor."""

import msgspec

from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster.kubernetes import KubernetesSettings
from stromboli.shared.leader_election import LeaseSettings


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the monitor, in embedded mode or as a process."""

    instance: str = "monitor"
    """Identifies this process in its epoch record: the pod's name."""
    agents_account: str = "stromboli/stromboli-agent"
    """The service account of node agents, as namespace/name: no other account may report."""
    agents_audience: str = "stromboli-monitor"
    """The audience of agents' tokens; other services do not accept tokens for it."""
    agents_silence_s: float = 90.0
    """Seconds without a heartbeat after which an agent's report is stale: four heartbeats."""
    competitor_leases: tuple[str, ...] = (
        "volcano-system/volcano=volcano",
        "volcano-system/vc-scheduler=volcano",
        "volcano-system/vc-controller-manager=volcano",
    )
    """Leases by which other systems act for a scheduler name, each as ``namespace/name=scheduler
    name``. While one is held and renewed, Stromboli does not act for that name. The default is
    Volcano as its chart installs it."""
    heartbeat_s: float = 3.0
    """Seconds between two sync records of a kind in ``cluster.sync``. Readers treat a kind as stale
    after several of these periods, so that one lost record does not stop them."""


class Settings(MonitorSettings, frozen=True, kw_only=True):
    """Settings of the monitor as a process."""

    kafka: KafkaSettings = KafkaSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    lease: LeaseSettings = LeaseSettings()
    health_host: str = "0.0.0.0"
    """Address of the health endpoint: probes come from the node, not from loopback."""
    health_port: int = 8482
    agents_host: str = "0.0.0.0"
    """Address of the agents' endpoint: agents connect from all nodes."""
    agents_port: int = 8484
    agents_certificate_file: str = ""
    """Certificate for agents' connections; without one, tokens are sent unencrypted. A token only
    permits reports about one node."""
    agents_key_file: str = ""
