"""Changes of nodes, queues, priority classes and the configuration."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "cluster_objects",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("uid", sa.Text, nullable=False, server_default=""),
        sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("is_deleted", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("facts", sa.Text, nullable=False, server_default="{}"),
    )
    op.create_table(
        "cluster_changes",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("uid", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("action", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("fields", sa.Text, nullable=False, server_default="[]"),
    )
    op.create_index("cluster_changes_by_time", "cluster_changes", ["at"])
    op.create_index("cluster_changes_by_object", "cluster_changes", ["kind", "name", "at"])


def downgrade() -> None:
    """Drop both tables."""
    op.drop_table("cluster_changes")
    op.drop_table("cluster_objects")
