"""All settings of the agent: ``STROM_AGENT_...``."""

import msgspec


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent needs to know."""

    node: str = ""
    """The name of this node: from the pod's ``spec.nodeName``."""
    monitor: str = "http://stromboli-monitor:8484"
    """Where the monitor takes reports."""
    token_file: str = "/var/run/secrets/stromboli/token"
    """The service account's token, made for the monitor alone; empty for none."""
    ca_file: str = ""
    """Whom an https monitor's certificate must be signed by; empty for whom the machine trusts."""
    sysfs: str = "/sys"
    """Where the machine shows itself."""
    kubelet: str = "/var/lib/kubelet"
    """The kubelet's folder."""
    read_every_s: float = 10.0
    """Seconds between two looks at cards' health and at the kubelet, when nothing else calls for
    one: a look costs a few milliseconds."""
    retry_period_s: float = 1.0
    """Seconds between two looks at whether the kubelet has given something out: microseconds."""
    alive_every_s: float = 20.0
    """Seconds between two signs of life: four fit into the monitor's patience."""
