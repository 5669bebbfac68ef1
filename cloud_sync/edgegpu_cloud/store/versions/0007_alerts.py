"""Revision 0007: alerts, and the messages about them that wait for a webhook."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "alerts",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("open_key", sa.String(400)),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("about", sa.String(253), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("since_s", sa.Float(53), nullable=False),
        sa.Column("firing_at_s", sa.Float(53)),
        sa.Column("clear_since_s", sa.Float(53)),
        sa.Column("resolved_at_s", sa.Float(53)),
        sa.Column("silenced_until_s", sa.Float(53), nullable=False),
        sa.Column("silenced_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_alerts"),
        sa.UniqueConstraint("open_key", name="uq_alerts_open_key"),
    )
    op.create_index("ix_alerts_device", "alerts", ["device"])
    op.create_index("ix_alerts_resolved_at_s", "alerts", ["resolved_at_s"])
    op.create_table(
        "alert_deliveries",
        sa.Column("number", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("url", sa.String(1_000), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("next_at_s", sa.Float(53), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_alert_deliveries"),
    )
    op.create_index("ix_alert_deliveries_next_at_s", "alert_deliveries", ["next_at_s"])
