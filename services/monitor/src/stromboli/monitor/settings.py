"""All settings of the monitor."""

import msgspec

from stromboli.shared.bus.kafka import KafkaSettings
from stromboli.shared.cluster.kubernetes import KubernetesSettings
from stromboli.shared.leader_election import LeaseSettings


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the monitor itself needs, embedded or not."""

    instance: str = "monitor"
    """Names this process in its epoch record: the pod's name."""
    agents_account: str = "stromboli/stromboli-agent"
    """The service account of nodes' agents, as namespace/name: nobody else may report."""
    agents_audience: str = "stromboli-monitor"
    """Whom agents' tokens are made for, so that they are of no use elsewhere."""
    agents_silence_s: float = 90.0
    """How long an agent may be silent before its report counts as stale: four signs of life."""
    competitor_leases: tuple[str, ...] = (
        "volcano-system/volcano=volcano",
        "volcano-system/vc-scheduler=volcano",
        "volcano-system/vc-controller-manager=volcano",
    )
    """Leases by which other systems act on the objects of a scheduler's name, each as
    ``namespace/name=scheduler name``. While one is held and renewed, nothing of ours acts under
    that name. The default is Volcano as its chart installs it."""
    heartbeat_s: float = 3.0
    """Seconds between two signs of life of a kind in ``cluster.sync``. Readers call a sync old
    after many of these, so that one lost beat does not stop them."""


class Settings(MonitorSettings, frozen=True, kw_only=True):
    """The service as a process of its own."""

    kafka: KafkaSettings = KafkaSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    lease: LeaseSettings = LeaseSettings()
    health_host: str = "0.0.0.0"
    """Probes come from the node, so not from loopback."""
    health_port: int = 8482
    agents_host: str = "0.0.0.0"
    """Agents come from all nodes."""
    agents_port: int = 8484
    agents_certificate_file: str = ""
    """Agents are served with this certificate; without one tokens travel in the clear, which are
    good for reports about one node and nothing else."""
    agents_key_file: str = ""
