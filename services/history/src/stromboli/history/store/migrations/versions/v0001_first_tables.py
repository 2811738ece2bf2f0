"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables, and the position at the start of the log."""
    op.create_table(
        "read_up_to",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("position", sa.Text, nullable=False, server_default="{}"),
    )
    op.create_table(
        "jobs",
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("namespace", sa.Text, nullable=False, server_default=""),
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("queue", sa.Text, nullable=False, server_default=""),
        sa.Column("user_name", sa.Text, nullable=False, server_default=""),
        sa.Column("labels", sa.Text, nullable=False, server_default="{}"),
        sa.Column("spec", sa.Text, nullable=False, server_default=""),
        sa.Column("phase", sa.Text, nullable=False, server_default=""),
        sa.Column("retry_count", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("submitted_at", sa.BigInteger, nullable=True),
        sa.Column("finished_at", sa.BigInteger, nullable=True),
        sa.Column("deleted_at", sa.BigInteger, nullable=True),
        sa.Column("phase_version", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("queue_version", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("spec_version", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("jobs_by_deletion", "jobs", ["deleted_at"])
    op.create_index("jobs_by_name", "jobs", ["namespace", "name"])
    op.create_index("jobs_by_queue", "jobs", ["queue"])
    op.create_index("jobs_by_user", "jobs", ["user_name"])
    op.create_table(
        "attempts",
        sa.Column("pod_uid", sa.Text, primary_key=True),
        sa.Column("job_uid", sa.Text, nullable=False, server_default=""),
        sa.Column("namespace", sa.Text, nullable=False, server_default=""),
        sa.Column("job", sa.Text, nullable=False, server_default=""),
        sa.Column("task", sa.Text, nullable=False, server_default=""),
        sa.Column("task_index", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("attempt", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("retry_count", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("pod", sa.Text, nullable=False, server_default=""),
        sa.Column("state", sa.Text, nullable=False, server_default=""),
        sa.Column("node", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("detail", sa.Text, nullable=False, server_default=""),
        sa.Column("exit_code", sa.BigInteger, nullable=True),
        sa.Column("requests", sa.Text, nullable=False, server_default="{}"),
        sa.Column("devices", sa.Text, nullable=False, server_default="{}"),
        sa.Column("cpu", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("memory", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("gpu", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("submitted_at", sa.BigInteger, nullable=True),
        sa.Column("bound_at", sa.BigInteger, nullable=True),
        sa.Column("started_at", sa.BigInteger, nullable=True),
        sa.Column("terminating_at", sa.BigInteger, nullable=True),
        sa.Column("ended_at", sa.BigInteger, nullable=True),
        sa.Column("allocated_at", sa.BigInteger, nullable=True),
    )
    op.create_index("attempts_by_end", "attempts", ["ended_at"])
    op.create_index("attempts_by_job", "attempts", ["job_uid"])
    op.create_index("attempts_by_name", "attempts", ["namespace", "job"])
    op.create_index("attempts_by_node", "attempts", ["node", "submitted_at"])
    op.create_index("attempts_by_submission", "attempts", ["submitted_at", "pod_uid"])
    op.create_table(
        "phases",
        sa.Column("job_uid", sa.Text, primary_key=True),
        sa.Column("retry_count", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("phase", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("event_id", sa.Text, nullable=False, server_default=""),
        sa.Column("before", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("message", sa.Text, nullable=False, server_default=""),
    )
    op.create_index("phases_by_time", "phases", ["at"])
    op.create_table(
        "evictions",
        sa.Column("decision", sa.Text, primary_key=True),
        sa.Column("pod_uid", sa.Text, primary_key=True),
        sa.Column("namespace", sa.Text, nullable=False, server_default=""),
        sa.Column("pod", sa.Text, nullable=False, server_default=""),
        sa.Column("by_pod_group", sa.Text, nullable=False, server_default=""),
        sa.Column("by_job_uid", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("at", sa.BigInteger, nullable=True),
        sa.Column("refused", sa.Text, nullable=False, server_default=""),
    )
    op.create_index("evictions_by_pod", "evictions", ["pod_uid"])
    op.create_index("evictions_by_time", "evictions", ["at"])
    op.create_table(
        "unreadable",
        sa.Column("topic", sa.Text, primary_key=True),
        sa.Column("topic_id", sa.Text, primary_key=True),
        sa.Column("log_offset", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.Text, nullable=False, server_default=""),
        sa.Column("event_id", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("at", sa.BigInteger, nullable=True),
    )
    op.execute("INSERT INTO read_up_to (id, revision, position) VALUES (1, 0, '{}')")


def downgrade() -> None:
    """Drop all tables."""
    for table in (
        "unreadable",
        "evictions",
        "phases",
        "attempts",
        "jobs",
        "read_up_to",
    ):
        op.drop_table(table)
