"""All settings of the history."""

import msgspec

from stromboli.shared.bus.kafka import KafkaSettings


class HistorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the history, in embedded mode or as a process."""

    instance: str = "history"
    """Identifies this process in PostgreSQL (``application_name``): the pod's name."""
    database: str = "sqlite:///history.db"
    """The store: ``sqlite:///FILE`` for one replica, ``postgresql://USER@HOST/DATABASE`` for
    production."""
    database_password: str = ""
    """The password of that user, apart from the URL, which is logged."""
    attempts_days: float = 365.0
    """Days that attempts are kept after their end; 0 keeps them indefinitely."""
    jobs_days: float = 365.0
    """Days that jobs are kept after their deletion, at least as long as their attempts; 0 keeps
    them indefinitely."""
    phases_days: float = 365.0
    """Days that phases of jobs are kept; 0 keeps them indefinitely."""
    evictions_days: float = 365.0
    """Days that evictions are kept; 0 keeps them indefinitely."""
    changes_days: float = 365.0
    """Days that changes of nodes, queues, priority classes and the configuration are kept; 0 keeps
    them indefinitely."""
    explanations_days: float = 90.0
    """Days that explanations of pending jobs and their positions in queues are kept; 0 keeps them
    indefinitely. A job that waits with changing reasons has about a kilobyte per hour."""
    usage_days: float = 1825.0
    """Days that the sums of usage by day are kept; 0 keeps them indefinitely. They remain when
    their attempts are deleted."""
    notices_days: float = 30.0
    """Days that sent and failed notifications are kept; 0 keeps them indefinitely."""
    notifications_file: str = ""
    """TOML file with the targets of notifications about jobs; without one, none are sent. It is
    read once at the start."""
    batch_pause_s: float = 0.25
    """Seconds between two transactions while the history keeps up, so that one commit contains all
    records that arrived meanwhile. A query ends the pause."""

    @property
    def jobs_kept_days(self) -> float:
        """``jobs_days``, or ``attempts_days`` if that is longer: attempts are found and reported by
        the labels of their jobs."""
        if not self.jobs_days or not self.attempts_days:
            return 0.0
        return max(self.jobs_days, self.attempts_days)


class Settings(HistorySettings, frozen=True, kw_only=True):
    """Settings of the history as a process."""

    kafka: KafkaSettings = KafkaSettings()
    health_host: str = "0.0.0.0"
    """Address of the health endpoint: probes come from the node, not from loopback."""
    health_port: int = 8486
    queries_host: str = "127.0.0.1"
    """Address for the queries of admission. Outside loopback they require a token."""
    queries_port: int = 8485
    queries_token_file: str = ""
    """File with a secret of admission and the history: queries without it are refused. It is read
    once at the start."""
    queries_certificate_file: str = ""
    """Certificate of the queries; without one, token and answers are sent unencrypted."""
    queries_key_file: str = ""
