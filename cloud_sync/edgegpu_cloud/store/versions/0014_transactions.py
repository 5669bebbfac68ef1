"""Revision 0014: the installer's transactions that boxes report, beside the text of their events."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; events that are there report no transaction."""
    with op.batch_alter_table("events") as events:
        events.add_column(sa.Column("transaction", sa.JSON(), nullable=True))
