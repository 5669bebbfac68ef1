"""Revision 0004: what containers saw of their cards, and the use of cards by quarters of an hour."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "evidence",
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("uid", sa.String(64), nullable=False),
        sa.Column("container", sa.String(253), nullable=False),
        sa.Column("namespace", sa.String(253), nullable=False),
        sa.Column("pod", sa.String(253), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("held", sa.JSON(), nullable=False),
        sa.Column("seen", sa.JSON(), nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("device", "uid", "container", name="pk_evidence"),
        sa.ForeignKeyConstraint(["device"], ["boxes.device"], name="fk_evidence_device_boxes"),
    )
    op.create_index("ix_evidence_at_s", "evidence", ["at_s"])
    op.create_table(
        "card_use",
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("quarter_s", sa.BigInteger(), nullable=False),
        sa.Column("card", sa.String(64), nullable=False),
        sa.Column("samples", sa.BigInteger(), nullable=False),
        sa.Column("core_sum", sa.Float(53), nullable=False),
        sa.Column("core_max", sa.Float(53), nullable=False),
        sa.Column("memory_sum_mib", sa.Float(53), nullable=False),
        sa.Column("memory_max_mib", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("device", "quarter_s", "card", name="pk_card_use"),
        sa.ForeignKeyConstraint(["device"], ["boxes.device"], name="fk_card_use_device_boxes"),
    )
    op.create_index("ix_card_use_quarter_s", "card_use", ["quarter_s"])
