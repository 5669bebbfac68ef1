"""Revision 0018: documents have the number of their change, and changes of many boxes the last one that was seen."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_COLUMNS = {"specs": "changed", "operations": "seen_change", "rollouts": "seen_change"}


def upgrade() -> None:
    """Add the columns; documents without a number are older than whatever is seen from now on."""
    for name, column in _COLUMNS.items():
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column(column, sa.BigInteger(), nullable=True))
