"""Revision 0002: summaries of boxes, their labels and their apps, by which boxes are listed; filled for all boxes.

What is computed here is what the program computes at this version: it stays as it is when the program changes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_AT_ONCE = 500
_WHOLE_CARD = 100
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_APP = re.compile(rf"(.+?)-(({_RANDOM}{{1,10}}-)?{_RANDOM}{{5}}|[0-9]+)")

_BOXES = sa.table("boxes", *map(sa.column, ("device", "rev", "spec_rev", "observed_rev")), sa.column("labels", sa.JSON))
_LATEST = sa.table("latest", sa.column("device"), sa.column("kind"), sa.column("body", sa.JSON))
_SPECS = sa.table("specs", sa.column("device"), sa.column("rev"), sa.column("spec", sa.JSON))
_COMMANDS = sa.table("commands", sa.column("device"), sa.column("ended", sa.Boolean))


def upgrade() -> None:
    """Create the tables and fill them."""
    big, text = sa.BigInteger(), sa.Text()
    numbers = ("shared_cards", "units", "free_units", "open_items", "open_commands", "waiting", "problems")
    summaries = op.create_table(
        "box_summaries",
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("changed", big, nullable=False),
        sa.Column("health", sa.String(8), nullable=False),
        *(sa.Column(name, text, nullable=False) for name in ("agent", "plugin", "k3s", "driver")),
        sa.Column("cards", big, nullable=True),
        *(sa.Column(name, big, nullable=False) for name in numbers[:3]),
        sa.Column("sharing", sa.Boolean(), nullable=False),
        *(sa.Column(name, big, nullable=False) for name in numbers[3:]),
        sa.Column("cluster", text, nullable=False),
        sa.Column("holder", sa.Boolean(), nullable=False),
        sa.Column("left", sa.String(16), nullable=False),
        sa.PrimaryKeyConstraint("device", name="pk_box_summaries"),
    )
    op.create_index("ix_box_summaries_changed", "box_summaries", ["changed"])
    op.create_index("ix_box_summaries_cluster", "box_summaries", ["cluster"])
    labels = op.create_table(
        "box_labels",
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("key", sa.String(63), nullable=False),
        sa.Column("value", sa.String(63), nullable=False),
        sa.PrimaryKeyConstraint("device", "key", name="pk_box_labels"),
        sa.ForeignKeyConstraint(["device"], ["boxes.device"], name="fk_box_labels_device_boxes"),
    )
    op.create_index("box_labels_by_value", "box_labels", ["key", "value"])
    apps = op.create_table(
        "box_apps",
        sa.Column("device", sa.String(16), nullable=False),
        sa.Column("requested", sa.Boolean(), nullable=False),
        sa.Column("app", text, nullable=False),
        sa.PrimaryKeyConstraint("device", "requested", "app", name="pk_box_apps"),
        sa.ForeignKeyConstraint(["device"], ["boxes.device"], name="fk_box_apps_device_boxes"),
    )
    op.create_index("ix_box_apps_app", "box_apps", ["app"])
    _fill(summaries, labels, apps)


def _fill(summaries: sa.Table, labels: sa.Table, apps: sa.Table) -> None:
    connection = op.get_bind()
    open_ = _open_commands(connection)
    for boxes in _parts(connection):
        devices = [box["device"] for box in boxes]
        latest: dict[str, dict[str, Any]] = {device: {} for device in devices}
        query = sa.select(_LATEST).where(_LATEST.c.device.in_(devices))
        for row in connection.execute(query).mappings():
            latest[row["device"]][row["kind"]] = row["body"]
        rows: dict[str, list[dict[str, Any]]] = {"summaries": [], "labels": [], "apps": []}
        for box in boxes:
            device, said = box["device"], latest[box["device"]]
            rows["summaries"].append(_summary(box, said, open_.get(device, 0)))
            pairs = (box["labels"] or {}).items()
            rows["labels"] += [{"device": device, "key": key[:63], "value": str(value)[:63]} for key, value in pairs]
            rows["apps"] += [{"device": device, "requested": False, "app": app} for app in _held(said)]
        rows["apps"] += _requested(connection, devices)
        for table, of in ((summaries, rows["summaries"]), (labels, rows["labels"]), (apps, rows["apps"])):
            if of:
                connection.execute(table.insert(), of)
    connection.execute(sa.text("INSERT INTO meta (key, value) VALUES ('summaries', 1)"))


def _parts(connection: sa.Connection) -> Iterator[list[sa.RowMapping]]:
    after = ""
    while True:
        query = sa.select(_BOXES).where(_BOXES.c.device > after).order_by(_BOXES.c.device).limit(_AT_ONCE)
        found = list(connection.execute(query).mappings())
        if not found:
            return
        yield found
        after = found[-1]["device"]


def _open_commands(connection: sa.Connection) -> dict[str, int]:
    query = sa.select(_COMMANDS.c.device, sa.func.count()).where(~_COMMANDS.c.ended).group_by(_COMMANDS.c.device)
    return {device: number for device, number in connection.execute(query)}  # noqa: C416  (rows are no pairs)


def _summary(box: sa.RowMapping, said: Mapping[str, Any], open_commands: int) -> dict[str, Any]:
    status, reported, health = (said.get(f"up/{kind}", {}) for kind in ("status", "reported", "health"))
    items = [one for one in reported.get("items", {}).values() if isinstance(one, dict)]
    open_items = sum(one.get("state") in {"Open", "Pending"} for one in items)
    failed = [one for one in items if one.get("state") in {"Rejected", "Failed", "Unsupported"}]
    dormant = [one for one in failed if (one.get("state"), one.get("code")) == ("Rejected", "NOT_INSTALLED")]
    versions = status.get("versions", {})
    left = {"bye": str(status.get("why", "")), "will": "lost"}.get(str(status.get("state", "")), "")
    waiting = max(open_items, int(box["observed_rev"] < box["rev"])) + open_commands
    return {
        "device": box["device"],
        "changed": 1,
        "health": str(health.get("state", ""))[:8],
        **{name: str(versions.get(name, "")) for name in ("agent", "plugin", "k3s", "driver")},
        **_capacity(said),
        "open_items": open_items,
        "open_commands": open_commands,
        "waiting": waiting,
        "problems": len(failed) - len(dormant),
        "cluster": str(reported.get("cluster", "")),
        "holder": bool(reported.get("holder", False)),
        "left": left[:16],
    }


def _capacity(said: Mapping[str, Any]) -> dict[str, Any]:
    inventory = said.get("up/inventory", {})
    cards = inventory.get("cards")
    sharing = bool(inventory.get("sharing", False))
    offered = [one for one in cards or [] if one["healthy"] and not one.get("excluded", False)] if sharing else []
    units = {one["uuid"]: one["units"] for one in offered}
    held = dict.fromkeys(units, 0)
    for piece in (piece for pod in _pods(said) for piece in pod.get("pieces", ())):
        if (card := piece["card"]) in units:
            held[card] += units[card] if piece["core"] >= _WHOLE_CARD else piece["memory_units"]
    return {
        "cards": None if cards is None else len(cards),
        "shared_cards": len(offered),
        "units": sum(units.values()),
        "free_units": sum(max(0, number - held[card]) for card, number in units.items()),
        "sharing": sharing,
    }


def _pods(said: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(said.get("up/alloc", {}).get("pods", {}).values())


def _held(said: Mapping[str, Any]) -> list[str]:
    found = ((pod["namespace"], _APP.fullmatch(pod["name"]), pod["name"]) for pod in _pods(said))
    return sorted({f"{namespace}/{match[1] if match else name}" for namespace, match, name in found})


def _requested(connection: sa.Connection, devices: list[str]) -> list[dict[str, Any]]:
    same = (_SPECS.c.device == _BOXES.c.device) & (_SPECS.c.rev == _BOXES.c.spec_rev)
    query = sa.select(_SPECS.c.device, _SPECS.c.spec).select_from(_SPECS.join(_BOXES, same))
    found = {
        (device, f"{item['namespace']}/{item['app']}")
        for device, spec in connection.execute(query.where(_SPECS.c.device.in_(devices)))
        for item in spec.get("app_limits", ())
    }
    return [{"device": device, "requested": True, "app": app} for device, app in sorted(found)]
