"""Revision 0009: when and how boxes have settled what was requested of them."""

import time

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, and note from when on it is written: what was settled before has no row."""
    op.create_table(
        "settlements",
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("item", sa.String(400), nullable=False),
        sa.Column("rev", sa.BigInteger(), nullable=False),
        sa.Column("retry", sa.BigInteger(), nullable=False),
        sa.Column("enrolment", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("code", sa.String(40), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("device", "item", "rev", "retry", name="pk_settlements"),
        sa.ForeignKeyConstraint(["device"], ["boxes.device"], name="fk_settlements_device_boxes"),
    )
    meta = sa.table("meta", sa.column("key", sa.String()), sa.column("value", sa.BigInteger()))
    op.bulk_insert(meta, [{"key": "settlements_since", "value": int(time.time())}])
