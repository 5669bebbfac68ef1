"""What goes over MQTT: each kind of message once, with every field, as the bytes under their topic; words, topics."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from golden import doors
from golden.shapes import written

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN = Path(__file__).parent / "given"
ROOT, NEXT_ROOT, CONTROLLER, NEXT_CONTROLLER, BOX = (
    Ed25519PrivateKey.from_private_bytes(letter * 32) for letter in (b"r", b"s", b"c", b"d", b"b")
)
DEVICE = "k3f9x2m7q1w8e5r4"


def given() -> list[dict[str, Any]]:
    """Return the examples as a person has written them."""
    found: list[dict[str, Any]] = json.loads((GIVEN / "messages.json").read_text())
    for one in found:
        if one["name"] == "keys":
            one["body"] = {"v": 1, "chain": [link.model_dump(mode="json") for link in chain()]}
    return found


def chain() -> list[Any]:
    public = doors.public_text
    first = doors.next_link(ROOT, keys=[public(CONTROLLER)], next_root=public(NEXT_ROOT))
    return [first, doors.next_link(NEXT_ROOT, keys=[public(CONTROLLER), public(NEXT_CONTROLLER)], before=first)]


def ring() -> Any:  # noqa: ANN401  (the door's)
    return doors.KeyRing.pinned(doors.public_text(ROOT)).follow(chain())


def messages() -> Iterator[tuple[str, str, bytes]]:
    """Yield name, topic and payload of each example, written by the models and signed."""
    for one in given():
        topic = doors.parse(one["topic"])
        body = doors.encode(doors.read(topic.kind, json.dumps(one["body"]).encode()))
        if one["name"] == "keys":
            payload = doors.bare(body)
        else:
            payload = doors.Signer.of(CONTROLLER if topic.kind.down else BOX).seal(topic, body)
        yield one["name"], str(topic), payload


def opened(topic_text: str, payload: bytes) -> bytes:
    """Return the body again as the other side writes it, its signature verified, read by its model."""
    topic = doors.parse(topic_text)
    if topic.kind.down:
        body = doors.open_down(topic, payload, me=doors.device_id(DEVICE), ring=ring())
    else:
        body = doors.open_up(topic, payload, public=doors.public_text(BOX))
    return doors.encode(doors.read(topic.kind, body))


def files(_: Path) -> dict[str, str]:
    made = {f"{name}.message": f"{topic}\n{payload.decode()}\n" for name, topic, payload in messages()}
    made["keys.json"] = written(
        {
            "public keys": {
                name: doors.public_text(key)
                for name, key in (("root", ROOT), ("next root", NEXT_ROOT), ("controller", CONTROLLER), ("box", BOX))
            },
            "key ids": [doors.key_id(doors.public_text(key)) for key in (CONTROLLER, BOX)],
            "ring after both": {"version": ring().version, "digest": ring().digest, "keys": ring().keys},
        }
    )
    made["topics.json"] = written(topics())
    made["desired.json"] = written(desired())
    made["ops.json"] = written(ops())
    made["words.json"] = written({name: words(kind) for name, kind in doors.WORDS.items()})
    made["followers.json"] = written({one.value: sorted(doors.FOLLOWERS[one]) for one in doors.CommandState})
    return made


def topics() -> dict[str, Any]:
    device = doors.device_id(DEVICE)
    return {
        "kinds": {kind.value: {"down": kind.down, "retained": kind.retained} for kind in doors.TopicKind},
        "a box subscribes": doors.box_filter(device),
        "a controller subscribes": doors.CONTROLLER_FILTER,
        "a beat": doors.heartbeat_topic(device),
    }


def desired() -> dict[str, Any]:
    """Return how a box reads the example's items, and how a controller writes them again."""
    body = next(one["body"] for one in given() if one["name"] == "desired")
    items = doors.asked(body["spec"], body["rev"])
    return {
        "digest": doors.digest(body["spec"]),
        "items": [
            {
                "name": one.name,
                "rev": one.key.rev,
                "digest": one.key.digest,
                "retry": one.key.retry,
                "read": bool(one.item),
            }
            for one in items
        ],
        "written": doors.Spec.model_validate_json(json.dumps(body["spec"])).to_json(),
    }


def ops() -> dict[str, Any]:
    """Return each op with its arguments as they are read."""
    args = json.loads((GIVEN / "args.json").read_text())
    return {
        str(name): {
            "settling": op.settling.value,
            "lasts_s": op.lasts_s,
            "alone": op.alone,
            "args": doors.read_args(op, args[name]).model_dump(mode="json"),
        }
        for name, op in doors.OPS.items()
    }


def words(kind: type[Enum]) -> list[str]:
    return sorted(str(one.value) for one in kind)


def unshown() -> list[str]:
    """Return the fields of messages that no example has."""
    found = []
    for kind, reader in doors.READERS.items():
        if kind is doors.TopicKind.RESULT_BY_ID:  # the bodies of `RESULT`
            continue
        bodies = [one["body"] for one in given() if doors.parse(one["topic"]).kind is kind]
        schema = reader.json_schema()
        found += [f"{kind.value}: {place}" for place in sorted(_unshown(schema, schema, bodies, ""))]
    return found


def _unshown(schema: dict[str, Any], whole: dict[str, Any], values: list[Any], place: str) -> set[str]:
    if "$ref" in schema:
        return _unshown(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole, values, place)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        own = [_only(branch, whole, values) for branch in branches]
        pairs = zip(branches, own, strict=True)
        return {one for branch, some in pairs for one in _unshown(branch, whole, some, place)}
    found: set[str] = set()
    for name, part in schema.get("properties", {}).items():
        inner = [value[name] for value in values if isinstance(value, dict) and name in value]
        found |= _unshown(part, whole, inner, f"{place}.{name}") if inner else {f"{place}.{name}"}
    if isinstance(more := schema.get("additionalProperties"), dict):
        found |= _unshown(more, whole, [one for value in values for one in value.values()], f"{place}.*")
    if isinstance(items := schema.get("items"), dict):
        found |= _unshown(items, whole, [one for value in values for one in value], f"{place}[]")
    return found


def _only(branch: dict[str, Any], whole: dict[str, Any], values: list[Any]) -> list[Any]:
    """Return the values that are of a branch: told by the constants in it, and by what they are."""
    if branch.get("type") == "null":
        return [value for value in values if value is None]
    if "$ref" in branch:
        branch = whole["$defs"][branch["$ref"].rpartition("/")[2]]
    consts = {name: part["const"] for name, part in branch.get("properties", {}).items() if "const" in part}
    return (
        [
            value
            for value in values
            if value is not None
            and all(value.get(name, const) == const for name, const in consts.items() if name != "v")
        ]
        if consts
        else [value for value in values if not isinstance(value, dict) or value.get("state") != "NOT_TAKEN"]
    )
