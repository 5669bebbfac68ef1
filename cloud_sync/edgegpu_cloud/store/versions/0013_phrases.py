"""Revision 0013: the templates and fields of sentences of ours, beside their English text."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_COLUMNS = (
    ("alarms", "phrase"),
    ("alerts", "phrase"),
    ("rollouts", "reason_phrase"),
    ("rollout_boxes", "message_phrase"),
)


def upgrade() -> None:
    """Add the columns; of texts that are there the parts are not known: pages show them in English."""
    for name, column in _COLUMNS:
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column(column, sa.JSON(), nullable=True))
