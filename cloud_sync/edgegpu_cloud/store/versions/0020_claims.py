"""Revision 0020: a box that reports another cluster than the one it belongs to has a claim."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; boxes stay in the cluster that they have reported last."""
    with op.batch_alter_table("box_summaries") as table:
        table.add_column(sa.Column("claim", sa.Text(), nullable=False, server_default=""))
    with op.batch_alter_table("box_summaries") as table:
        table.alter_column("claim", existing_type=sa.Text(), existing_nullable=False, server_default=None)
