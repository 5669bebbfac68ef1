"""Revision 0005: boxes belong to partitions, which controllers hold by leases; each partition has its server time."""

from hashlib import sha256

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NUMBER = 64


def upgrade() -> None:
    """Give each box its partition, and each partition the server time that was one for all boxes."""
    _create()
    _fill_boxes()
    connection = op.get_bind()
    found = connection.execute(sa.text("SELECT value FROM meta WHERE key = 'server_time'")).scalar_one_or_none()
    partitions = sa.table("partitions", sa.column("number"), sa.column("holder"), sa.column("fence"))
    times = sa.table("server_times", sa.column("partition"), sa.column("at_s"))
    op.bulk_insert(partitions, [{"number": number, "holder": "", "fence": 0} for number in range(_NUMBER)])
    op.bulk_insert(times, [{"partition": number, "at_s": found or 0} for number in range(_NUMBER)])
    op.execute("DELETE FROM meta WHERE key = 'server_time'")


def _create() -> None:
    op.create_table(
        "partitions",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_partitions"),
    )
    op.create_table(
        "server_times",
        sa.Column("partition", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("partition", name="pk_server_times"),
    )
    op.create_table(
        "controllers",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("instance", sa.String(32), nullable=False),
        sa.Column("beat", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.String(64), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("seen_at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_controllers"),
    )


def _fill_boxes() -> None:
    with op.batch_alter_table("boxes") as boxes:
        boxes.add_column(sa.Column("partition", sa.BigInteger(), nullable=True))
    connection = op.get_bind()
    devices = connection.execute(sa.text("SELECT device FROM boxes")).scalars().all()
    values = [{"device": one, "number": sha256(one.encode()).digest()[0] % _NUMBER} for one in devices]
    if values:
        connection.execute(sa.text("UPDATE boxes SET partition = :number WHERE device = :device"), values)
    with op.batch_alter_table("boxes") as boxes:
        boxes.alter_column("partition", existing_type=sa.BigInteger(), nullable=False)
    op.create_index("ix_boxes_partition", "boxes", ["partition"])
