"""The arguments of commands and changes in the audit: without secrets, and no larger than the audit has room for; pure.

A box may offer ops of its own, whose arguments a program chooses: up to 64 KiB for each of thousands of boxes.
"""

import json
from urllib.parse import urlsplit

from edgegpu_cloud.store.records import Json

MOST_BYTES = 2_000
"""Of the arguments of one entry, as JSON."""

LEFT_OUT = "left_out_bytes"
"""The name under which arguments that were cut say how much is gone."""

_LEAST_BYTES = 16


def audited_args(args: Json) -> Json:
    """Return arguments as the audit keeps them; where they were cut, `LEFT_OUT` has the bytes that are gone."""
    plain = without_secrets(args)
    whole = _size(plain)
    if whole <= MOST_BYTES:
        return plain
    kept = _fitting({name: value for name, value in plain.items() if name != LEFT_OUT}, MOST_BYTES)
    return {**kept, LEFT_OUT: whole - _size(kept)}


def without_secrets(args: Json) -> Json:
    """Return the arguments of a command without what opens something: user and query of an address."""
    return {name: _shown(value) for name, value in args.items()}


def _shown(value: object) -> object:
    match value:
        case dict():
            return without_secrets(value)
        case list():
            return [_shown(one) for one in value]
        case str() if "://" in value:
            return _address(value)
        case _:
            return value


def _address(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        return text.partition("://")[0] + "://"
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _size(value: object) -> int:
    return len(json.dumps(value))


def _fitting(values: Json, room: int) -> Json:
    """Return what has room of some values: the small ones whole, of the large ones their beginning."""
    kept: Json = {}
    for name in sorted(values, key=lambda name: _size(values[name])):
        spare = room - _size({name: ""})
        if spare < _LEAST_BYTES:
            continue
        kept[name] = _short(values[name], spare)
        room -= _size({name: kept[name]})
    return {name: kept[name] for name in values if name in kept}


def _short(value: object, room: int) -> object:
    """Return a value, or of one that has no room its beginning."""
    if _size(value) <= room:
        return value
    match value:
        case dict():
            return _fitting(value, room)
        case list():
            return _beginning(value, room)
        case str():
            return _clipped(value, room)
        case _:
            return "…"


def _beginning(values: list[object], room: int) -> list[object]:
    kept: list[object] = []
    for one in values:
        if _size([*kept, one]) > room:
            break
        kept.append(one)
    return kept


def _clipped(text: str, room: int) -> str:
    """Return the beginning of a text: JSON has up to 12 bytes for one of its characters."""
    cut = text[:room]
    while cut and _size(f"{cut}…") > room:
        cut = cut[: len(cut) * room // _size(f"{cut}…")]
    return f"{cut}…"
