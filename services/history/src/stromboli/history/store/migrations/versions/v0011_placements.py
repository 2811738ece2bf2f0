"""What kubelets confirmed of attempts, and an index of the attempts that are open on a node."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the column and the index; earlier attempts have no placement."""
    op.add_column("attempts", sa.Column("placement", sa.Text, nullable=False, server_default=""))
    is_open = sa.text("ended_at IS NULL")
    op.create_index(
        "attempts_open_by_node",
        "attempts",
        ["node"],
        sqlite_where=is_open,
        postgresql_where=is_open,
    )


def downgrade() -> None:
    """Drop the index and the column, and the last reports, which earlier versions do not know."""
    op.drop_index("attempts_open_by_node", "attempts")
    op.drop_column("attempts", "placement")
    op.execute("DELETE FROM cluster_objects WHERE kind = 'Placements'")
