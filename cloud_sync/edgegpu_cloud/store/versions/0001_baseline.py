"""Revision 0001: the tables of edgegpu 0.1.0, whose own version was 1, and a name for each of their constraints."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import ColumnCollectionConstraint, SchemaItem

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_INDEXES = {
    "boxes": (
        ("ix_boxes_instance", ["instance"]),
        ("ix_boxes_look_at_s", ["look_at_s"]),
        ("ix_boxes_touched", ["touched"]),
    ),
    "commands": (
        ("commands_of_box", ["device", "ended", "number"]),
        ("ix_commands_ended_at_s", ["ended_at_s"]),
        ("ix_commands_next_at_s", ["next_at_s"]),
    ),
    "history": (("ix_history_command", ["command"]),),
    "births": (("ix_births_device", ["device"]),),
    "events": (("ix_events_device", ["device"]),),
    "requests": (("ix_requests_token", ["token"]), ("ix_requests_state", ["state"])),
    "certificates": (
        ("ix_certificates_device", ["device"]),
        ("ix_certificates_csr_sha256", ["csr_sha256"]),
    ),
    "alarms": (("ix_alarms_device", ["device"]),),
    "audit": (("ix_audit_device", ["device"]),),
}


def upgrade() -> None:
    """Create the tables; where edgegpu 0.1.0 has created them, name their constraints."""
    connection = op.get_bind()
    if not sa.inspect(connection).has_table("meta"):
        _create()
    elif connection.dialect.name == "sqlite":
        _rebuild()
    else:
        _rename(connection)


def _create() -> None:
    for name, columns_of in _TABLES.items():
        op.create_table(name, *columns_of())
        for index, columns in _INDEXES.get(name, ()):
            op.create_index(index, name, columns)
    op.execute("INSERT INTO meta (key, value) VALUES ('schema', 1)")


def _rebuild() -> None:
    """Copy each table into one that has names: SQLite cannot name a constraint that is there."""
    metadata = sa.MetaData()
    for name, columns_of in _TABLES.items():
        named = sa.Table(name, metadata, *columns_of())
        for index, columns in _INDEXES.get(name, ()):
            sa.Index(index, *(named.c[column] for column in columns))
        with op.batch_alter_table(name, recreate="always", copy_from=named):
            pass


def _rename(connection: sa.Connection) -> None:
    """Rename the constraints, which the database has named itself; its indexes have their names already."""
    inspector = sa.inspect(connection)
    for name, columns_of in _TABLES.items():
        wanted = sa.Table(name, sa.MetaData(), *columns_of())
        found: dict[tuple[str, ...], str | None] = {(): inspector.get_pk_constraint(name)["name"]}
        found |= {tuple(one["column_names"]): one["name"] for one in inspector.get_unique_constraints(name)}
        found |= {tuple(one["constrained_columns"]): one["name"] for one in inspector.get_foreign_keys(name)}
        for constraint in wanted.constraints:
            if isinstance(constraint, ColumnCollectionConstraint):
                columns = () if isinstance(constraint, sa.PrimaryKeyConstraint) else tuple(constraint.columns.keys())
                op.execute(f'ALTER TABLE {name} RENAME CONSTRAINT "{found[columns]}" TO {constraint.name}')


def _of_box(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["device"], ["boxes.device"], name=f"fk_{table}_device_boxes")


def _meta() -> list[SchemaItem]:
    return [
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    ]


def _boxes() -> list[SchemaItem]:
    return [
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("public", sa.String(43), nullable=False),
        sa.Column("host", sa.String(253), nullable=False),
        sa.Column("added_at_s", sa.Float(53), nullable=False),
        sa.Column("enrolled_at_s", sa.Float(53), nullable=False),
        sa.Column("enrolment", sa.BigInteger(), nullable=False),
        sa.Column("instance", sa.String(64), nullable=False),
        sa.Column("epoch_count", sa.BigInteger()),
        sa.Column("epoch_nonce", sa.String(16)),
        sa.Column("next_seq", sa.BigInteger(), nullable=False),
        sa.Column("rev", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(16), nullable=False),
        sa.Column("restored", sa.Boolean(), nullable=False),
        sa.Column("key_set", sa.BigInteger(), nullable=False),
        sa.Column("online", sa.Boolean(), nullable=False),
        sa.Column("seen_at_s", sa.Float(53), nullable=False),
        sa.Column("spec_rev", sa.BigInteger(), nullable=False),
        sa.Column("told_rev", sa.BigInteger(), nullable=False),
        sa.Column("observed_rev", sa.BigInteger(), nullable=False),
        sa.Column("applied_rev", sa.BigInteger(), nullable=False),
        sa.Column("look_at_s", sa.Float(53)),
        sa.Column("looks", sa.BigInteger(), nullable=False),
        sa.Column("touched", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("device", name="pk_boxes"),
        sa.UniqueConstraint("name", name="uq_boxes_name"),
    ]


def _specs() -> list[SchemaItem]:
    return [
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("rev", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("device", "rev", name="pk_specs"),
        _of_box("specs"),
    ]


def _commands() -> list[SchemaItem]:
    return [
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("op", sa.String(80), nullable=False),
        sa.Column("args", sa.JSON(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("due_at_s", sa.Float(53), nullable=False),
        sa.Column("cancelled", sa.Boolean(), nullable=False),
        sa.Column("seq", sa.BigInteger()),
        sa.Column("state", sa.String(16)),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON()),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("signed_count", sa.BigInteger()),
        sa.Column("signed_nonce", sa.String(16)),
        sa.Column("quiet_since_s", sa.Float(53), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("stamp_enrolment", sa.BigInteger()),
        sa.Column("stamp_count", sa.BigInteger()),
        sa.Column("stamp_nonce", sa.String(16)),
        sa.Column("stamp_n", sa.BigInteger()),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("ended_at_s", sa.Float(53)),
        sa.Column("next_at_s", sa.Float(53)),
        sa.PrimaryKeyConstraint("number", name="pk_commands"),
        sa.UniqueConstraint("id", name="uq_commands_id"),
        _of_box("commands"),
    ]


def _history() -> list[SchemaItem]:
    return [
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("command", sa.String(40), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_history"),
    ]


def _latest() -> list[SchemaItem]:
    return [
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("enrolment", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("nonce", sa.String(16), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("device", "kind", name="pk_latest"),
        _of_box("latest"),
    ]


def _births() -> list[SchemaItem]:
    return [
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("enrolment", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("nonce", sa.String(16), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_births"),
        _of_box("births"),
    ]


def _events() -> list[SchemaItem]:
    return [
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("level", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("box_at", sa.BigInteger(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_events"),
        _of_box("events"),
    ]


def _orphans() -> list[SchemaItem]:
    return [
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("id", sa.String(40), nullable=False),
        sa.Column("op", sa.String(80), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("device", "id", name="pk_orphans"),
        _of_box("orphans"),
    ]


def _key_sets() -> list[SchemaItem]:
    return [
        sa.Column("version", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("sig", sa.String(86), nullable=False),
        sa.PrimaryKeyConstraint("version", name="pk_key_sets"),
    ]


def _tokens() -> list[SchemaItem]:
    return [
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("expires_at_s", sa.Float(53), nullable=False),
        sa.Column("uses", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("approval", sa.Boolean(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_tokens"),
    ]


def _requests() -> list[SchemaItem]:
    return [
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.Column("answer", sa.JSON()),
        sa.Column("device", sa.String(16)),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
    ]


def _certificates() -> list[SchemaItem]:
    return [
        sa.Column("serial", sa.String(48), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("enrolment", sa.BigInteger(), nullable=False),
        sa.Column("csr_sha256", sa.String(64), nullable=False),
        sa.Column("pem", sa.Text(), nullable=False),
        sa.Column("not_before_s", sa.Float(53), nullable=False),
        sa.Column("not_after_s", sa.Float(53), nullable=False),
        sa.Column("revoked_at_s", sa.Float(53)),
        sa.PrimaryKeyConstraint("serial", name="pk_certificates"),
    ]


def _alarms() -> list[SchemaItem]:
    return [
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("seen_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_alarms"),
    ]


def _audit() -> list[SchemaItem]:
    return [
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("at_s", sa.Float(53), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("what", sa.String(64), nullable=False),
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_audit"),
    ]


_TABLES = {
    "meta": _meta,
    "boxes": _boxes,
    "specs": _specs,
    "commands": _commands,
    "history": _history,
    "latest": _latest,
    "births": _births,
    "events": _events,
    "orphans": _orphans,
    "key_sets": _key_sets,
    "tokens": _tokens,
    "requests": _requests,
    "certificates": _certificates,
    "alarms": _alarms,
    "audit": _audit,
}
"""The columns and constraints of each table; one that others refer to comes before them."""
