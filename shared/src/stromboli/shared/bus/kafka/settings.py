"""All settings of the Kafka adapter; nested in a service's settings as ``kafka``."""

from typing import Literal

import msgspec


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the broker, and how long to wait for it."""

    bootstrap: tuple[str, ...] = ("127.0.0.1:9092",)
    """``host:port`` of brokers to ask first; the default is a broker on this machine."""
    cluster_name: str = "default"
    """Name of this Kubernetes cluster in the log: the prefix of its topics and groups, and in the
    ``ce_source`` and ``ce_cluster`` of each record. Clusters that share a broker need different
    names; a record of another cluster on one of our topics is rejected."""
    replication_factor: int = 1
    """Copies of each topic that is created: 1 fits one broker; production wants 3, and
    ``min.insync.replicas`` 2 on the brokers."""

    security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Kafka's ``security.protocol``; the default fits loopback only."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """Used with SASL_*: the default never sends the password itself."""
    sasl_username: str = ""
    sasl_password: str = ""
    tls_ca_file: str = ""
    """PEM file of the authority that signed the brokers' certificates; empty: the system's."""
    tls_certificate_file: str = ""
    """PEM file of our certificate, where brokers ask for one; needs ``tls_key_file``."""
    tls_key_file: str = ""

    request_timeout_s: float = 5.0
    """Until a request to a broker counts as lost: a healthy one answers within milliseconds, and
    half of the time a process has to stop."""
    append_timeout_s: float = 10.0
    """Until ``append`` raises UnavailableError: a broker's restart takes about this long, so most
    of them go unnoticed."""
    fetch_wait_ms: int = 250
    """How long a broker holds a fetch that finds nothing. A record that comes ends the wait at
    once; only for a reader that was slow to take the records before can it be seen late, by up
    to this much. Shorter costs CPU on an idle system."""
    commit_every_s: float = 0.2
    """Least time between two commits of a group: what a crash repeats, against requests."""
    commit_again_s: float = 60.0
    """After this long a group commits the same offset again. Kafka forgets offsets that were not
    committed for ``offsets.retention.minutes`` (7 days unless the brokers say otherwise), and a
    group without an offset begins with the oldest record."""
    close_timeout_s: float = 2.0
    """How long a last commit and each client's goodbye may take: four in a row, one after the
    other, end well within the 10 s a process has to stop."""
