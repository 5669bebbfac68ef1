"""Revision 0016: the filter of operations, what their boxes have of their own, the sentences why one was refused."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_COLUMNS = {
    "operations": (("filter", sa.JSON()), ("per_box", sa.Boolean()), ("request", sa.String(16))),
    "operation_boxes": (
        ("args", sa.JSON()),
        ("seen_rev", sa.BigInteger()),
        ("text_phrase", sa.JSON()),
        ("remedy_phrase", sa.JSON()),
    ),
}


def upgrade() -> None:
    """Add the columns; of operations that are there nothing of it is known."""
    for name, columns in _COLUMNS.items():
        with op.batch_alter_table(name) as table:
            for column, kind in columns:
                table.add_column(sa.Column(column, kind, nullable=True))
