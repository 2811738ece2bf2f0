"""All settings of a node's data cache: ``STROM_DATA_CACHE_...``."""

import msgspec

from stromboli.shared.jobspec import data_sets


class CacheSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a cache, in the embedded system or as a process."""

    root: str = data_sets.DEFAULT_ROOT
    """The folder of the copies, from which pods mount them; equal to the controller's setting."""
    capacity_bytes: int = 100 * 2**30
    """Maximum size of all copies, with partial ones. A disk with less room lowers it."""
    disk_reserve_bytes: int = 2**30
    """Bytes of the disk that are left free for others: a full disk makes kubelets evict pods."""
    allowed_origins: tuple[str, ...] = ()
    """Origins that jobs may name, such as ``https://``, ``s3://bucket/prefix`` or
    ``file:///shared``: all others are refused. None by default, because a URI is read with the
    rights of the cache."""
    parallel: int = 4
    """Maximum concurrent fetches: more of them share the bandwidth, and all end later."""
    verify_every_s: float = 86_400.0
    """Seconds between two verifications of the digest of a copy: each reads the whole copy."""
    check_every_s: float = 60.0
    """Seconds between two checks of names, sizes and times of the files of a copy."""
    report_every_s: float = 5.0
    """Seconds between two reports without a change: eighteen fit into the monitor's timeout."""


class Settings(CacheSettings, frozen=True, kw_only=True):
    """Settings of the cache as a process on a node."""

    node: str = ""
    """The name of this node: from the pod's ``spec.nodeName``."""
    monitor: str = "http://stromboli-monitor-agent:8484"
    """URL of the monitor's endpoint for node agents."""
    token_file: str = "/var/run/secrets/stromboli/token"
    """File of the service account token with the monitor's audience; empty for none."""
    ca_file: str = ""
    """CA file for the monitor's https certificate; empty: the system's CAs."""
    health_host: str = "0.0.0.0"
    """Address of the health endpoint: probes come from the node, not from loopback."""
    health_port: int = 8488
    """Port of health and metrics."""
