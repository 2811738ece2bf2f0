"""All settings of the agent: ``STROM_AGENT_...``."""

import msgspec


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the node agent."""

    node: str = ""
    """The name of this node: from the pod's ``spec.nodeName``."""
    monitor: str = "http://stromboli-monitor:8484"
    """URL of the monitor's endpoint for reports."""
    token_file: str = "/var/run/secrets/stromboli/token"
    """File of the service account token with the monitor's audience; empty for none."""
    ca_file: str = ""
    """CA file for the monitor's https certificate; empty: the system's CAs."""
    sysfs: str = "/sys"
    """Mount point of sysfs."""
    kubelet: str = "/var/lib/kubelet"
    """The kubelet's directory."""
    read_every_s: float = 10.0
    """Seconds between two reads of GPU health and the kubelet without a known change: a read costs
    a few milliseconds.
    """
    retry_period_s: float = 1.0
    """Seconds between two checks whether the kubelet has allocated something; a check takes
    microseconds."""
    usage_every_s: float = 40.0
    """Seconds between two reports of unchanged loads of disks and network: two fit into the
    monitor's timeout. Changes are reported within 10 s."""
    alive_every_s: float = 20.0
    """Seconds between two heartbeats: four fit into the monitor's timeout."""
