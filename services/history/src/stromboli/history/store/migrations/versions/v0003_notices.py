"""The outbox of notifications."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "notices",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("target", sa.Text, nullable=False, server_default=""),
        sa.Column("event", sa.Text, nullable=False, server_default=""),
        sa.Column("job", sa.Text, nullable=False, server_default=""),
        sa.Column("job_uid", sa.Text, nullable=False, server_default=""),
        sa.Column("retry_count", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("queue", sa.Text, nullable=False, server_default=""),
        sa.Column("detail", sa.Text, nullable=False, server_default=""),
        sa.Column("at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("due_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("tries", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("sent_at", sa.BigInteger, nullable=True),
        sa.Column("failure", sa.Text, nullable=False, server_default=""),
        sa.Column("is_open", sa.BigInteger, nullable=False, server_default="1"),
    )
    op.create_index("notices_by_due", "notices", ["is_open", "due_at"])
    op.create_index("notices_by_time", "notices", ["at"])


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("notices")
