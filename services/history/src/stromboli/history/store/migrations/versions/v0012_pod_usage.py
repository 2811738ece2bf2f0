"""What pods have used, as node agents measured it. Earlier attempts are unmeasured, not zero."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

AMOUNTS = ("used_cpu", "max_memory", "used_gpu", "max_gpu_memory")
SUMS = (
    "used_cpu",
    "used_memory",
    "used_gpu",
    "measured_cpu",
    "measured_memory",
    "measured_gpu",
)


def upgrade() -> None:
    """Add the columns, and the table of measurements."""
    for name in AMOUNTS:
        op.add_column("attempts", sa.Column(name, sa.BigInteger, nullable=True))
    for name in SUMS:
        op.add_column("daily_usage", sa.Column(name, sa.Double, nullable=False, server_default="0"))
    op.create_table(
        "pod_usage",
        sa.Column("pod_uid", sa.Text, primary_key=True),
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("counters", sa.Text, nullable=False, server_default="{}"),
        sa.Column("max_memory", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("max_gpu_memory", sa.BigInteger, nullable=True),
        sa.Column("at", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("pod_usage_by_time", "pod_usage", ["at"])


def downgrade() -> None:
    """Drop the table and the columns."""
    op.drop_table("pod_usage")
    for name in reversed(SUMS):
        op.drop_column("daily_usage", name)
    for name in reversed(AMOUNTS):
        op.drop_column("attempts", name)
