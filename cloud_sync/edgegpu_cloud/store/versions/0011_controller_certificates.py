"""Revision 0011: the certificates of controllers, and their requests for new ones."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table: each controller writes its row at its next start."""
    op.create_table(
        "controller_certificates",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("ends_at_s", sa.Float(53), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_controller_certificates"),
    )
