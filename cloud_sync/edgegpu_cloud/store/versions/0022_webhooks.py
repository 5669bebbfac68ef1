"""Revision 0022: webhooks that people make in the console or by the API."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; the receivers of controller.yaml stay there."""
    op.create_table(
        "webhooks",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("url", sa.String(1_000), nullable=False),
        sa.Column("secret", sa.String(200), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        sa.UniqueConstraint("url", name="uq_webhooks_url"),
    )
