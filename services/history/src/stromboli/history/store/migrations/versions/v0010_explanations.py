"""Explanations of pending PodGroups and their positions in queues over time."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "explanations",
        sa.Column("pod_group", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("queue", sa.Text, nullable=False, server_default=""),
        sa.Column("tier", sa.Text, nullable=False, server_default=""),
        sa.Column("explained", sa.Text, nullable=False, server_default=""),
    )
    op.create_index("explanations_by_time", "explanations", ["at"])
    op.create_table(
        "queue_positions",
        sa.Column("pod_group", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("queue", sa.Text, nullable=False, server_default=""),
        sa.Column("in_front", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("queue_positions_by_time", "queue_positions", ["at"])
    op.create_table(
        "last_explanations",
        sa.Column("pod_group", sa.Text, primary_key=True),
        sa.Column("tier", sa.Text, nullable=False, server_default=""),
        sa.Column("at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("in_front", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("position_at", sa.BigInteger, nullable=True),
    )
    op.create_index("last_explanations_by_time", "last_explanations", ["at"])
    op.create_table(
        "queue_chunks",
        sa.Column("queue", sa.Text, primary_key=True),
        sa.Column("chunk", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("pod_groups", sa.BigInteger, nullable=False, server_default="0"),
    )


def downgrade() -> None:
    """Drop the tables."""
    for name in ("queue_chunks", "last_explanations", "queue_positions", "explanations"):
        op.drop_table(name)
