"""Usage by GPU type. Attempts and sums that exist have an unknown type, which is empty.

The type is part of the primary key of the sums, which SQLite cannot alter: the table is written
again under its name. It has a row for each day and each group of users, not for each attempt.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

GROUPS = ("namespace", "queue", "user_name")
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
    """Add the type to attempts, and to the key of the sums."""
    op.add_column("attempts", sa.Column("gpu_type", sa.Text, nullable=False, server_default=""))
    _write_again((*GROUPS, "gpu_type"), "''")


def downgrade() -> None:
    """Drop the type from attempts and sums; sums of the same day and group are added up."""
    _write_again(GROUPS)
    op.drop_column("attempts", "gpu_type")


def _write_again(groups: Sequence[str], *values: str) -> None:
    """Write the sums into a table with another key. ``values``: those of the added columns."""
    # PostgreSQL names the constraint of the key after the table, and keeps the name in a renaming.
    op.create_table(
        "daily_usage_new",
        sa.Column("day", sa.BigInteger, autoincrement=False, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in groups),
        *(sa.Column(name, sa.Double, nullable=False, server_default="0") for name in SUMS),
        sa.PrimaryKeyConstraint("day", *groups, name=f"daily_usage_by_{groups[-1]}"),
    )
    columns = ", ".join(("day", *groups, *SUMS))
    kept = ", ".join(("day", *GROUPS))
    sums = ", ".join(f"SUM({name})" for name in SUMS)
    chosen = ", ".join((kept, *values, sums))
    op.execute(
        f"INSERT INTO daily_usage_new ({columns}) SELECT {chosen} FROM daily_usage GROUP BY {kept}"
    )
    op.drop_table("daily_usage")
    op.rename_table("daily_usage_new", "daily_usage")
