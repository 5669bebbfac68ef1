"""Revision 0012: when a command was sent first."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of commands that are there it is not known."""
    with op.batch_alter_table("commands") as commands:
        commands.add_column(sa.Column("sent_at_s", sa.Float(53), nullable=True))
