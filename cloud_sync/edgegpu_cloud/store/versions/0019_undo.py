"""Revision 0019: what boxes had before a change of many boxes, and which change another one takes back."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; of changes that are there nobody knows what boxes had before."""
    with op.batch_alter_table("operations") as table:
        table.add_column(sa.Column("undoes", sa.String(26), nullable=True))
    with op.batch_alter_table("operation_boxes") as table:
        table.add_column(sa.Column("before", sa.JSON(), nullable=True))
