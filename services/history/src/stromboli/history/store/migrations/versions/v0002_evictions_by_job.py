"""Evictions are found by the job that got the resources."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the index."""
    op.create_index("evictions_by_job", "evictions", ["by_job_uid"])


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("evictions_by_job", "evictions")
