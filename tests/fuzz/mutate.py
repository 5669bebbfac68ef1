"""Changes a JSON body as a whole: fields lost, doubled, swapped, with values that a reader trips over. Pure."""

from __future__ import annotations

import json
import random
from typing import Any

_ODD: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 2**31, 2**53 - 1, 2**53, 2**63, 2**64, 10**400, 0.5, 1e308, -0.0),
    *("", "x", "\x00", "\x7f", "\u2028", "é" * 300, "a" * 70_000, "../..", "+", "#", "NaN", "2026-01-01", "https://x"),
    *([], {}, [[]], {"": {}}, ["critical"], {"v": 2}, list(range(300)), [0] * 3_000, {str(n): n for n in range(300)}),
)
_DEEP = 300


def mutated(data: bytes, seed: int) -> bytes | None:
    """Return the body with one to three changes; None where it is no JSON object or list."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict | list):
        return None
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 3)):
        _change(value, rng)
    try:
        return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None


def _change(value: Any, rng: random.Random) -> None:  # noqa: ANN401
    """Change something somewhere in it."""
    while True:
        places: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places:
            return
        place = rng.choice(places)
        inner = value[place]
        if not (isinstance(inner, dict | list) and inner and rng.random() < 0.7):
            break
        value = inner
    match rng.randrange(5):
        case 0:
            del value[place]
        case 1:
            value[place] = value[rng.choice(places)]
        case 2 if isinstance(value, dict):
            value[str(rng.choice(_ODD))[:80]] = inner
        case 3:
            value[place] = _deep(rng)
        case _:
            value[place] = rng.choice(_ODD)


def _deep(rng: random.Random) -> Any:  # noqa: ANN401
    value: Any = 0
    for _ in range(rng.randrange(_DEEP)):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value
