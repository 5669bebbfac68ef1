"""Revision 0017: changes of boxes are numbered in each partition, so that controllers do not write one row."""

from hashlib import sha256

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_NUMBER = 64


def upgrade() -> None:
    """Give each summary its box's partition, and each partition the number that was one for all.

    So a partition's next number is above those of all its rows, also of rows that other partitions' changes were
    counted before. What pages have kept of the old number is no position any more: they are told that all has changed.
    """
    with op.batch_alter_table("box_summaries") as summaries:
        summaries.add_column(sa.Column("partition", sa.BigInteger(), nullable=True))
    connection = op.get_bind()
    devices = connection.execute(sa.text("SELECT device FROM box_summaries")).scalars().all()
    values = [{"device": one, "number": sha256(one.encode()).digest()[0] % _NUMBER} for one in devices]
    if values:
        connection.execute(sa.text("UPDATE box_summaries SET partition = :number WHERE device = :device"), values)
    op.drop_index("ix_box_summaries_changed", table_name="box_summaries")
    with op.batch_alter_table("box_summaries") as summaries:
        summaries.alter_column("partition", existing_type=sa.BigInteger(), nullable=False)
    op.create_index("box_summaries_by_change", "box_summaries", ["partition", "changed"])

    found = connection.execute(sa.text("SELECT value FROM meta WHERE key = 'summaries'")).scalar_one_or_none()
    meta = sa.table("meta", sa.column("key"), sa.column("value"))
    op.bulk_insert(meta, [{"key": f"summaries/{number}", "value": found or 0} for number in range(_NUMBER)])
    op.execute("DELETE FROM meta WHERE key = 'summaries'")
