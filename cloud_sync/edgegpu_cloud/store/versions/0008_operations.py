"""Revision 0008: operations, the changes of many boxes, and what came of each on every box."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    text = sa.Text()
    op.create_table(
        "operations",
        sa.Column("id", sa.String(26), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("by", text, nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("selector", text, nullable=False),
        sa.Column("key", sa.String(64), nullable=True),
        sa.Column("boxes", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("ended_at_s", sa.Float(53), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_operations"),
    )
    op.create_index("operations_by_key", "operations", ["by", "key"], unique=True)
    op.create_index("ix_operations_state", "operations", ["state"])
    op.create_table(
        "operation_boxes",
        sa.Column("operation", sa.String(26), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("text", text, nullable=False),
        sa.Column("remedy", text, nullable=False),
        sa.Column("rev", sa.BigInteger(), nullable=True),
        sa.Column("command", sa.String(40), nullable=True),
        sa.Column("items", sa.JSON(), nullable=False),
        sa.Column("force", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("operation", "device", name="pk_operation_boxes"),
        sa.ForeignKeyConstraint(["operation"], ["operations.id"], name="fk_operation_boxes_operation_operations"),
    )
    op.create_index("ix_operation_boxes_command", "operation_boxes", ["command"])
    op.create_index("operation_boxes_by_outcome", "operation_boxes", ["operation", "outcome", "device"])
    op.create_index("operation_boxes_of_box", "operation_boxes", ["device", "outcome"])
