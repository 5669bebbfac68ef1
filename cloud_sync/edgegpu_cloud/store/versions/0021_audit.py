"""Revision 0021: the audit is found by day, and by the change of many boxes that an entry is a part of."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, fill it from what each entry says, and index it and the time."""
    op.add_column("audit", sa.Column("part_of", sa.String(64), nullable=True))
    audit = sa.table("audit", sa.column("detail", sa.JSON()), sa.column("part_of", sa.String()))
    part = audit.c.detail["part_of"].as_string()
    op.execute(audit.update().where(part.is_not(None)).values(part_of=part))
    op.create_index("audit_by_part", "audit", ["part_of", "number"])
    op.create_index("audit_by_time", "audit", ["at_s", "part_of", "number"])
