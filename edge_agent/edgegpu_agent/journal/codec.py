"""The journal's JSON form of the protocol's values, written and read."""

import json
from dataclasses import asdict
from typing import Any

from edgegpu_agent.journal.contents import LastContact
from edgegpu_sync.ids import command_id, op_name
from edgegpu_sync.keys import KeyRing
from edgegpu_sync.messages.spec import (
    AnyItem,
    AppLimits,
    AskedItem,
    Exclusions,
    Isolation,
    PolicyItem,
    Sharing,
    TryKey,
    UnitSize,
)
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.uplink import Condition, ItemState, Numbers
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.replay_guard import ReplayGuard
from edgegpu_sync.rules.settle import ItemTry, Settlement
from edgegpu_sync.states import CommandState

_ITEMS: dict[str, type[AnyItem]] = {
    one.__name__: one for one in (Sharing, Isolation, PolicyItem, Exclusions, UnitSize, AppLimits)
}


def dumps(value: object) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


def guard_text(guard: ReplayGuard) -> str:
    """Return the replay guard as JSON, its bitmap as hexadecimal digits."""
    return dumps(asdict(guard) | {"seen": f"{guard.seen:x}"})


def guard_of(text: str) -> ReplayGuard:
    """Return the replay guard from its JSON."""
    value = json.loads(text)
    return ReplayGuard(**value | {"seen": int(value["seen"], 16), "epoch": Epoch(**value["epoch"])})


def ring_text(ring: KeyRing) -> str:
    """Return the controllers' keys as JSON."""
    return dumps(asdict(ring))


def ring_of(text: str) -> KeyRing:
    """Return the controllers' keys from their JSON."""
    value = json.loads(text)
    return KeyRing(**value | {"keys": tuple((kid, public) for kid, public in value["keys"])})


def record_text(record: CommandRecord) -> str:
    """Return a command as JSON without its id and its arguments, which have their own columns."""
    value = asdict(record)
    del value["id"], value["args"]
    return dumps(value)


def record_of(id_: str, text: str, args: str) -> CommandRecord:
    """Return a command from its columns."""
    value = json.loads(text)
    value |= {"state": CommandState(value["state"]), "op": op_name(value["op"])}
    return CommandRecord(id=command_id(id_), args=json.loads(args), **value)


def try_text(one: ItemTry) -> str:
    """Return the last try of an item as JSON."""
    settlement = one.settlement
    return dumps(
        {
            "key": asdict(one.key),
            "tries": one.tries,
            "state": settlement.state,
            "code": settlement.code,
            "text": settlement.text,
            "numbers": settlement.numbers and settlement.numbers.model_dump(mode="json"),
            "restored": settlement.restored,
            "conditions": [condition.model_dump(mode="json") for condition in one.conditions],
        }
    )


def try_of(text: str) -> ItemTry:
    """Return the last try of an item from its JSON."""
    value = json.loads(text)
    numbers = value["numbers"]
    settlement = Settlement(
        state=ItemState(value["state"]),
        code=value["code"],
        text=value["text"],
        numbers=None if numbers is None else Numbers.model_validate_json(json.dumps(numbers)),
        restored=value["restored"],
    )
    conditions = tuple(Condition.model_validate_json(json.dumps(one)) for one in value["conditions"])
    return ItemTry(key=TryKey(**value["key"]), settlement=settlement, tries=value["tries"], conditions=conditions)


def asked_text(one: AskedItem | None) -> str:
    """Return the item that was begun as JSON; null for none."""
    if one is None or one.item is None:
        return "null"
    item = one.item.model_dump(mode="json", exclude_defaults=True)
    return dumps({"name": one.name, "key": asdict(one.key), "type": type(one.item).__name__, "item": item})


def asked_of(text: str) -> AskedItem | None:
    """Return the item that was begun from its JSON; None for none, and for one that only another version knows."""
    value = json.loads(text)
    if value is None or value["type"] not in _ITEMS:
        return None
    item = _ITEMS[value["type"]].model_validate_json(json.dumps(value["item"]))
    return AskedItem(name=value["name"], key=TryKey(**value["key"]), item=item)


def stamp_text(stamp: Stamp) -> str:
    """Return a stamp as text, for a key of the outbox."""
    return f"{stamp.enrolment}/{stamp.epoch.count}/{stamp.epoch.nonce}/{stamp.n}"


def stamp_of(text: str) -> Stamp:
    """Return a stamp from its text."""
    enrolment, count, nonce, n = text.split("/")
    return Stamp(enrolment=int(enrolment), epoch=Epoch(int(count), nonce), n=int(n))


def heard_text(heard: LastContact) -> str:
    """Return the time of the last contact as JSON."""
    return dumps([heard.boot, heard.at_s])


def heard_of(text: str) -> LastContact:
    """Return the time of the last contact from its JSON."""
    boot, at_s = json.loads(text)
    return LastContact(boot, at_s)


def counts_of(text: str) -> dict[str, int]:
    """Return counters by name from their JSON."""
    value: dict[str, Any] = json.loads(text)
    return {name: int(count) for name, count in value.items()}
