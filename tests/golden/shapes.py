"""How a value is written down for a golden file: what differs from run to run is named, what is a document is typed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAMED: tuple[tuple[str, str], ...] = (
    (r"-----BEGIN ([A-Z ]+)-----(?:\\n|\n)[A-Za-z0-9+/=\\n\s]+?-----END \1-----(?:\\n|\n)?", r"<PEM \1>"),
    (r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]+", "<PEM in base64>"),
    (r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uuid>"),
    (r"(?<![\w-])[A-Za-z0-9_-]{86}(?![\w-])", "<86 of base64url>"),
    (r"(?<![\w-])(?=[A-Za-z0-9_-]*[A-Z])(?=[A-Za-z0-9_-]*[a-z])[A-Za-z0-9_-]{43}(?![\w-])", "<43 of base64url>"),
    (r"\b[0-9a-f]{64}\b", "<64 hex>"),
    (r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{32}\b", "<32 hex>"),
    (r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{16}\b", "<16 hex>"),
)


def named(text: str, *more: tuple[str, str]) -> str:
    """Return a text with keys, certificates and ids named by their kind; `more` are words of this run."""
    for word, name in more:
        text = text.replace(word, name)
    for pattern, name in _NAMED:
        text = re.sub(pattern, name, text)
    return text


def written(value: object) -> str:
    """Return a value as JSON that a diff can be read of."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def shape(value: object) -> Any:  # noqa: ANN401  (JSON)
    """Return the keys and types of a JSON value: dicts by key, a list as the one shape of all that is in it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "text"
        case dict():
            return {str(key): shape(one) for key, one in sorted(value.items())}
        case list():
            return [merged(shape(one) for one in value)] if value else []
    raise TypeError(f"no JSON: {value!r}")


def merged(shapes: Iterable[Any]) -> Any:  # noqa: ANN401  (JSON)
    """Return what fits all shapes; a key that one lacks ends with `?`, types that differ stand beside each other."""
    found, *rest = shapes
    for one in rest:
        found = _both(found, one)
    return found


def _both(a: Any, b: Any) -> Any:  # noqa: ANN401  (JSON)
    if a == b:
        return a
    if isinstance(a, dict) and isinstance(b, dict):
        return _keys(a, b)
    if isinstance(a, list) and isinstance(b, list):
        return [merged([*a, *b])]
    words = {word for one in (a, b) for word in (one.split(" or ") if isinstance(one, str) else [])}
    whole = [one for one in (a, b) if not isinstance(one, str)]
    if whole:
        return {"or": [*whole, *sorted(words)]} if words != {"null"} else {"or null": whole[0]}
    return " or ".join(sorted(words))


def _keys(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    plain_a, plain_b = ({key.rstrip("?"): one for key, one in half.items()} for half in (a, b))
    optional = {
        key.rstrip("?") for half in (a, b) for key in half if key.endswith("?")
    } | plain_a.keys() ^ plain_b.keys()
    made = {}
    for key in sorted(plain_a.keys() | plain_b.keys()):
        there = [half[key] for half in (plain_a, plain_b) if key in half]
        made[key + ("?" if key in optional else "")] = merged(there)
    return made
