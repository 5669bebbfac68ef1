"""Revision 0010: idempotency keys, by which a client sends a request again without doing it twice."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "idempotency_keys",
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("request", sa.String(64), nullable=False),
        sa.Column("claim", sa.String(32), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("by", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_at_s", "idempotency_keys", ["at_s"])
