"""The tables. ``core.rows`` explains the columns; a migration is needed for every change here."""

import sqlalchemy as sa

METADATA = sa.MetaData()
NUMBER = sa.BigInteger


def _text(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=False, server_default="")


def _json(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.Text, nullable=False, server_default="{}")


def _number(name: str) -> "sa.Column[int]":
    return sa.Column(name, NUMBER, nullable=False, server_default="0")


def _time(name: str) -> "sa.Column[int]":
    return sa.Column(name, NUMBER, nullable=True)


def _amount(name: str) -> "sa.Column[int]":
    """A measured amount; NULL: not measured."""
    return sa.Column(name, NUMBER, nullable=True)


def _sum(name: str) -> "sa.Column[float]":
    return sa.Column(name, sa.Double, nullable=False, server_default="0")


READ_UP_TO = sa.Table(
    "read_up_to",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    _number("revision"),
    _json("position"),
)
"""One row: the position in the log up to which the other tables are complete. ``revision`` grows
with each transaction, so that of two writers with the same revision one fails."""

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("uid", sa.Text, primary_key=True),
    _text("namespace"),
    _text("name"),
    _text("queue"),
    _text("user_name"),
    _json("labels"),
    _text("spec"),
    _text("phase"),
    _number("retry_count"),
    _text("reason"),
    _time("submitted_at"),
    _time("begun_at"),
    _time("finished_at"),
    _time("deleted_at"),
    _number("phase_version"),
    _number("queue_version"),
    _number("spec_version"),
    sa.Index("jobs_by_name", "namespace", "name"),
    sa.Index("jobs_by_queue", "queue"),
    sa.Index("jobs_by_user", "user_name"),
    sa.Index("jobs_by_deletion", "deleted_at"),
)
ATTEMPTS = sa.Table(
    "attempts",
    METADATA,
    sa.Column("pod_uid", sa.Text, primary_key=True),
    _text("job_uid"),
    _text("namespace"),
    _text("job"),
    _text("task"),
    _number("task_index"),
    _number("attempt"),
    _number("retry_count"),
    _text("pod"),
    _text("state"),
    _text("node"),
    _text("reason"),
    _text("detail"),
    sa.Column("exit_code", NUMBER, nullable=True),
    _json("requests"),
    _json("devices"),
    _number("cpu"),
    _number("memory"),
    _number("gpu"),
    _time("submitted_at"),
    _time("bound_at"),
    _time("started_at"),
    _time("terminating_at"),
    _time("ended_at"),
    _time("allocated_at"),
    _number("is_summed"),
    _number("association"),
    _number("span"),
    _text("gpu_type"),
    _text("placement"),
    _amount("used_cpu"),
    _amount("max_memory"),
    _amount("used_gpu"),
    _amount("max_gpu_memory"),
    sa.Index("attempts_by_submission", "submitted_at", "pod_uid"),
    sa.Index("attempts_by_job", "job_uid", "submitted_at"),
    sa.Index("attempts_by_name", "namespace", "job", "submitted_at"),
    sa.Index("attempts_by_node", "node", "submitted_at"),
    sa.Index("attempts_by_association", "association", "state", "submitted_at"),
    sa.Index("attempts_by_state", "state", "submitted_at"),
    sa.Index("attempts_by_span", "span", "submitted_at"),
    sa.Index("attempts_by_end", "ended_at"),
    sa.Index(
        "attempts_open_by_node",
        "node",
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    ),
    sa.Index(
        "attempts_not_summed",
        "ended_at",
        sqlite_where=sa.text("is_summed = 0"),
        postgresql_where=sa.text("is_summed = 0"),
    ),
)
"""Lists walk its indexes in the order of ``submitted_at``, see ``store.attempt_walks``."""

ASSOCIATIONS = sa.Table(
    "associations",
    METADATA,
    sa.Column("id", NUMBER, primary_key=True, autoincrement=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("user_name", sa.Text, nullable=False),
    sa.Index("associations_by_name", "namespace", "queue", "user_name", unique=True),
)
"""The namespaces, queues and users that occur together, as in Slurm's accounting. An attempt keeps
its association when its job is deleted; associations are never deleted."""
ATTEMPT_DEVICES = sa.Table(
    "attempt_devices",
    METADATA,
    sa.Column("pod_uid", sa.Text, primary_key=True),
    sa.Column("device", sa.Text, primary_key=True),
    sa.Column("submitted_at", NUMBER, nullable=True),
    sa.Index("attempt_devices_by_device", "device", "submitted_at"),
)
"""The devices of ``ATTEMPTS.devices``, without the size of a slice."""
JOB_LABELS = sa.Table(
    "job_labels",
    METADATA,
    sa.Column("job_uid", sa.Text, primary_key=True),
    sa.Column("label", sa.Text, primary_key=True),
    sa.Index("job_labels_by_label", "label", "job_uid"),
)
"""The labels of ``JOBS.labels`` as ``KEY=VALUE``."""
DAILY_USAGE = sa.Table(
    "daily_usage",
    METADATA,
    sa.Column("day", NUMBER, primary_key=True, autoincrement=False),
    sa.Column("namespace", sa.Text, primary_key=True),
    sa.Column("queue", sa.Text, primary_key=True),
    sa.Column("user_name", sa.Text, primary_key=True),
    sa.Column("gpu_type", sa.Text, primary_key=True),
    *(_sum(name) for name in ("attempts", "begun", "cpu", "memory", "gpu")),
    *(_sum(name) for name in ("evicted_cpu", "evicted_gpu", "idle_cpu", "idle_gpu")),
    *(_sum(name) for name in ("used_cpu", "used_memory", "used_gpu")),
    *(_sum(name) for name in ("measured_cpu", "measured_memory", "measured_gpu")),
)
"""The usage of attempts with ``is_summed`` by day (its midnight, UTC). ``attempts``: how many held
resources on that day; ``begun``: how many of these were allocated on that day. The other sums are
amounts in the units of ``ATTEMPTS`` times seconds. ``used_...``: what was measured, memory as the
maximum of an attempt times its seconds; ``measured_...``: the part of ``cpu``, ``memory`` and
``gpu`` of the attempts that were measured."""
POD_USAGE = sa.Table(
    "pod_usage",
    METADATA,
    sa.Column("pod_uid", sa.Text, primary_key=True),
    sa.Column("node", sa.Text, primary_key=True),
    _json("counters"),
    _number("max_memory"),
    _amount("max_gpu_memory"),
    _number("at"),
    sa.Index("pod_usage_by_time", "at"),
)
"""Measurements of pods, with which later ones are combined; attempts have their results."""
PHASES = sa.Table(
    "phases",
    METADATA,
    sa.Column("job_uid", sa.Text, primary_key=True),
    sa.Column("retry_count", NUMBER, primary_key=True, autoincrement=False),
    sa.Column("phase", sa.Text, primary_key=True),
    sa.Column("at", NUMBER, primary_key=True, autoincrement=False),
    _text("event_id"),
    _text("before"),
    _text("reason"),
    _text("message"),
    sa.Index("phases_by_time", "at"),
)
JOB_REQUESTS = sa.Table(
    "job_requests",
    METADATA,
    sa.Column("job_uid", sa.Text, primary_key=True),
    sa.Column("action", sa.Text, primary_key=True),
    sa.Column("subject", sa.Text, primary_key=True),
    sa.Column("user_name", sa.Text, primary_key=True),
    _number("at"),
    _text("entry_point"),
    _text("detail"),
    sa.Index("job_requests_by_time", "at"),
)
"""Who deleted, changed or commanded a job, as admission recorded it."""
EVICTIONS = sa.Table(
    "evictions",
    METADATA,
    sa.Column("decision", sa.Text, primary_key=True),
    sa.Column("pod_uid", sa.Text, primary_key=True),
    _text("namespace"),
    _text("pod"),
    _text("by_pod_group"),
    _text("by_job_uid"),
    _text("reason"),
    _time("at"),
    _text("refused"),
    sa.Index("evictions_by_pod", "pod_uid"),
    sa.Index("evictions_by_job", "by_job_uid"),
    sa.Index("evictions_by_time", "at"),
)
CLUSTER_OBJECTS = sa.Table(
    "cluster_objects",
    METADATA,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    _text("uid"),
    _number("version"),
    _number("created_at"),
    _number("is_deleted"),
    _json("facts"),
)
"""The last known facts of each object, with which a later record is compared."""
CLUSTER_CHANGES = sa.Table(
    "cluster_changes",
    METADATA,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("uid", sa.Text, primary_key=True),
    sa.Column("version", NUMBER, primary_key=True, autoincrement=False),
    sa.Column("action", sa.Text, primary_key=True),
    _number("at"),
    sa.Column("fields", sa.Text, nullable=False, server_default="[]"),
    sa.Index("cluster_changes_by_time", "at"),
    sa.Index("cluster_changes_by_object", "kind", "name", "at"),
)
"""Changes of nodes, queues, priority classes and the scheduler's configuration."""
EXPLANATIONS = sa.Table(
    "explanations",
    METADATA,
    sa.Column("pod_group", sa.Text, primary_key=True),
    sa.Column("at", NUMBER, primary_key=True, autoincrement=False),
    _text("queue"),
    _text("tier"),
    _text("explained"),
    sa.Index("explanations_by_time", "at"),
)
QUEUE_POSITIONS = sa.Table(
    "queue_positions",
    METADATA,
    sa.Column("pod_group", sa.Text, primary_key=True),
    sa.Column("at", NUMBER, primary_key=True, autoincrement=False),
    _text("queue"),
    _number("in_front"),
    sa.Index("queue_positions_by_time", "at"),
)
LAST_EXPLANATIONS = sa.Table(
    "last_explanations",
    METADATA,
    sa.Column("pod_group", sa.Text, primary_key=True),
    _text("tier"),
    _number("at"),
    _number("in_front"),
    _time("position_at"),
    sa.Index("last_explanations_by_time", "at"),
)
"""The last kept values of each PodGroup, which decide whether its next record is kept."""
QUEUE_CHUNKS = sa.Table(
    "queue_chunks",
    METADATA,
    sa.Column("queue", sa.Text, primary_key=True),
    sa.Column("chunk", NUMBER, primary_key=True, autoincrement=False),
    _number("pod_groups"),
)
"""The number of PodGroups in each chunk of the order of a queue."""
NOTICES = sa.Table(
    "notices",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    _text("target"),
    _text("event"),
    _text("job"),
    _text("job_uid"),
    _number("retry_count"),
    _text("queue"),
    _text("detail"),
    _number("at"),
    _number("due_at"),
    _number("tries"),
    _time("sent_at"),
    _text("failure"),
    sa.Column("is_open", NUMBER, nullable=False, server_default="1"),
    sa.Index("notices_by_due", "is_open", "due_at"),
    sa.Index("notices_by_time", "at"),
)
"""The outbox of notifications; ``is_open``: neither sent nor failed."""
UNREADABLE = sa.Table(
    "unreadable",
    METADATA,
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("topic_id", sa.Text, primary_key=True),
    sa.Column("log_offset", NUMBER, primary_key=True, autoincrement=False),
    _text("key"),
    _text("event_id"),
    _text("reason"),
    _time("at"),
)
"""Records that could not be decoded or stored; isolated, so that later records are applied."""
