"""Sums of usage by day. Existing attempts are added by the service in the background."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

SUMS = (
    "attempts",
    "begun",
    "cpu",
    "memory",
    "gpu",
    "evicted_cpu",
    "evicted_gpu",
    "idle_cpu",
    "idle_gpu",
)


def upgrade() -> None:
    """Create the table, and the column that marks the attempts in it."""
    op.add_column(
        "attempts", sa.Column("is_summed", sa.BigInteger, nullable=False, server_default="0")
    )
    op.create_index(
        "attempts_not_summed",
        "attempts",
        ["ended_at"],
        sqlite_where=sa.text("is_summed = 0"),
        postgresql_where=sa.text("is_summed = 0"),
    )
    op.create_table(
        "daily_usage",
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("namespace", sa.Text, primary_key=True),
        sa.Column("queue", sa.Text, primary_key=True),
        sa.Column("user_name", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Double, nullable=False, server_default="0") for name in SUMS),
    )


def downgrade() -> None:
    """Drop the table and the column."""
    op.drop_table("daily_usage")
    op.drop_index("attempts_not_summed", "attempts")
    op.drop_column("attempts", "is_summed")
