"""Reading of the plugin's status document, of which nothing is certain. Pure."""

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

Document = Mapping[str, Any]


def rows_of(document: Document, key: str) -> list[Document]:
    """Return the objects of a list; none where there is no list."""
    rows = document.get(key)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list | tuple) else []


def part_of(document: Document, key: str) -> Document:
    """Return an object; an empty one where there is none."""
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def count_of(value: object) -> int:
    """Return a count; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def seconds_of(text: object) -> int | None:
    """Return a time of the API in seconds since 1970; None where it is none, as in the document of an older plugin."""
    try:
        return max(0, int(datetime.fromisoformat(str(text)).timestamp())) if text else None
    except (ValueError, OverflowError):
        return None


def silence_words(silence: Document) -> str:
    """Return why a source is silent and since when, as the plugin's status has it; empty where it is not."""
    if not silence:
        return ""
    heard_at, why = silence.get("heard_at"), str(silence.get("why") or "no reason given")
    if not isinstance(heard_at, int) or heard_at <= 0:
        return f"{why}; not heard since the plugin's start"
    return f"{why}; heard last at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(heard_at))} UTC"
