"""Revision 0006: the tables of rollouts."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "rollouts",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(1024), nullable=False),
        sa.Column("change", sa.JSON(), nullable=False),
        sa.Column("strategy", sa.JSON(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("waves", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("wave", sa.BigInteger(), nullable=False),
        sa.Column("waived", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("returns", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ended_at_s", sa.Float(53)),
        sa.PrimaryKeyConstraint("number", name="pk_rollouts"),
    )
    op.create_index("ix_rollouts_state", "rollouts", ["state"])
    op.create_index("ix_rollouts_ended_at_s", "rollouts", ["ended_at_s"])
    op.create_table(
        "rollout_boxes",
        sa.Column("rollout", _NUMBER, nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("wave", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("next_try_at_s", sa.Float(53)),
        sa.Column("since_s", sa.Float(53), nullable=False),
        sa.Column("changed", sa.Boolean(), nullable=False),
        sa.Column("rev", sa.BigInteger(), nullable=False),
        sa.Column("command", sa.String(40)),
        sa.Column("before", sa.JSON()),
        sa.Column("wrote", sa.JSON()),
        sa.Column("others", sa.JSON(), nullable=False),
        sa.Column("checked_s", sa.Float(53), nullable=False),
        sa.ForeignKeyConstraint(["rollout"], ["rollouts.number"], name="fk_rollout_boxes_rollout_rollouts"),
        sa.PrimaryKeyConstraint("rollout", "device", name="pk_rollout_boxes"),
    )
    op.create_index("rollout_boxes_of_state", "rollout_boxes", ["rollout", "state", "wave", "position"])
    op.create_index("rollout_boxes_of_device", "rollout_boxes", ["device"])
