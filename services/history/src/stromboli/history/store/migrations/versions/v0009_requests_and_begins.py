"""Who deleted, changed or commanded a job, and when a job began."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the table and the column; a job began with its first phase after Pending."""
    op.create_table(
        "job_requests",
        sa.Column("job_uid", sa.Text, primary_key=True),
        sa.Column("action", sa.Text, primary_key=True),
        sa.Column("subject", sa.Text, primary_key=True),
        sa.Column("user_name", sa.Text, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("entry_point", sa.Text, nullable=False, server_default=""),
        sa.Column("detail", sa.Text, nullable=False, server_default=""),
    )
    op.create_index("job_requests_by_time", "job_requests", ["at"])
    op.add_column("jobs", sa.Column("begun_at", sa.BigInteger, nullable=True))
    phases = sa.table("phases", *map(sa.column, ("job_uid", "retry_count", "phase", "at")))
    jobs = sa.table("jobs", *map(sa.column, ("uid", "begun_at")))
    first = (
        sa.select(sa.func.min(phases.c.at))
        .where(
            phases.c.job_uid == jobs.c.uid, phases.c.retry_count == 0, phases.c.phase != "Pending"
        )
        .scalar_subquery()
    )
    op.execute(sa.update(jobs).values(begun_at=first))


def downgrade() -> None:
    """Drop the table and the column."""
    op.drop_column("jobs", "begun_at")
    op.drop_table("job_requests")
