"""Settings of the Kafka adapter, nested in a service's settings as ``kafka``."""

from typing import Literal

import msgspec


class KafkaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the connection to Kafka, and timeouts."""

    bootstrap: tuple[str, ...] = ("127.0.0.1:9092",)
    """``host:port`` of the bootstrap brokers; the default is a broker on this machine."""
    cluster_name: str = "default"
    """Name of this Kubernetes cluster in the log: the prefix of its topics and groups, and in the
    ``ce_source`` and ``ce_cluster`` of each record. Clusters that share a broker need different
    names; a record of another cluster on one of our topics is rejected."""
    replication_factor: int = 1
    """Replication factor of topics that are created. 1 fits a single broker; use 3 in production,
    with ``min.insync.replicas`` 2 on the brokers."""

    security: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Kafka's ``security.protocol``; the default is only safe on loopback."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """Kafka's ``sasl.mechanism``, for SASL_*; the default never sends the password itself."""
    sasl_username: str = ""
    sasl_password: str = ""
    tls_ca_file: str = ""
    """PEM file of the authority that signed the brokers' certificates; empty: the system's
    authorities."""
    tls_certificate_file: str = ""
    """PEM file of the client certificate, if brokers require one; needs ``tls_key_file``."""
    tls_key_file: str = ""

    request_timeout_s: float = 5.0
    """Seconds until a request to a broker counts as lost. A healthy broker answers within
    milliseconds; the default is half of the time that a process has to stop."""
    append_timeout_s: float = 10.0
    """Seconds until ``append`` raises UnavailableError. A broker restarts in about this time, so
    most restarts cause no error."""
    fetch_wait_ms: int = 500
    """Milliseconds for which a broker holds a fetch request if there are no records
    (``fetch.max.wait.ms``). A new record ends the wait immediately; only a reader that was slow to
    process the previous records may receive it late, by up to this time. A lower value costs CPU on
    an idle system."""
    commit_every_s: float = 0.2
    """Minimum seconds between two commits of a group. A higher value saves requests; a crash
    repeats the records since the last commit."""
    commit_again_s: float = 60.0
    """Seconds after which a group commits the same offset again. Kafka drops offsets that were not
    committed for ``offsets.retention.minutes`` (7 days unless the brokers are configured
    otherwise), and a group without an offset starts with the oldest record."""
    close_timeout_s: float = 2.0
    """Seconds for the last commit and for closing each client: four in sequence fit in the 10 s in
    which a process has to stop."""
