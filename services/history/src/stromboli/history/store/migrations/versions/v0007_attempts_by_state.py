"""An index of attempts by state: rare states are found without reading all attempts."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the index."""
    op.create_index("attempts_by_state", "attempts", ["state", "submitted_at"])


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("attempts_by_state", "attempts")
