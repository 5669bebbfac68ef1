"""What `nvidia-smi -L` says in a container: the cards in its output, the verdict on them, a result that fits. Pure."""

import json
import re
from collections.abc import Collection, Sequence

from edgegpu_sync.messages.evidence import MOST_CARDS, ContainerEvidence, EvidenceReport, SeenCards
from edgegpu_sync.wire import RESULT_MAX_BYTES, Json, clipped

RESULT_ROOM_BYTES = RESULT_MAX_BYTES - 2_000
"""The part of a result that a report may take; the rest is for its other fields."""

MOST_PODS = 10
"""Pods in one `evidence.check`: with one card each, their reports have room in one result."""

_ROW = re.compile(r"^(?P<indent>\s*)(?:GPU \d+:|MIG ).*\(UUID: (?P<uuid>(?:GPU|MIG)-[a-zA-Z0-9/-]{1,60})\)\s*$")
_LINE_LENGTHS = (1_000, 200, 0)


def printable(text: str) -> str:
    """Return the lines of a text that a container has chosen, without what would steer a terminal or a reader's eye.

    Replaced are control characters, those that turn the direction of writing, and all else that has no shape.
    """
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in text.splitlines())


def one_line(text: str, most: int) -> str:
    """Return a text that somebody else has chosen in one printable line of at most `most` characters."""
    return clipped(printable(" ".join(text.split())), most)


def cards_listed(text: str) -> tuple[str, ...]:
    """Return the UUIDs of the cards in the output of `nvidia-smi -L`, each once, at most `MOST_CARDS`.

    A card in MIG mode is listed above its MIG devices: those count then, and not the card, as in the plugin.
    """
    found: dict[str, None] = {}
    parent = ""
    for row in filter(None, map(_ROW.match, text.splitlines())):
        uuid = row["uuid"]
        if not row["indent"]:
            parent = uuid
        elif uuid.startswith("MIG-"):
            found.pop(parent, None)
        found[uuid] = None
    return tuple(found)[:MOST_CARDS]


def verdict_on(seen: Collection[str], held: Collection[str]) -> SeenCards:
    """Return what a container sees against what it holds; the order of cards does not matter."""
    if not seen:
        return SeenCards.NONE
    if set(seen) == set(held):
        return SeenCards.OWN
    return SeenCards.MORE if set(seen) > set(held) else SeenCards.OTHER


def report_that_fits(found: Sequence[ContainerEvidence]) -> Json:
    """Return the data of a result: lines are cut first, then containers left out from the end, and counted."""
    for length in _LINE_LENGTHS:
        cut = [one.model_copy(update={"lines": clipped(one.lines, length) if length else ""}) for one in found]
        if _size(data := _data(cut, left_out=0)) <= RESULT_ROOM_BYTES:
            return data
    kept = list(cut)
    while kept and _size(data) > RESULT_ROOM_BYTES:
        kept.pop()
        data = _data(kept, left_out=len(found) - len(kept))
    return data


def _data(found: Sequence[ContainerEvidence], *, left_out: int) -> Json:
    report = EvidenceReport(containers=tuple(found), left_out=left_out)
    data: Json = report.model_dump(mode="json", exclude_defaults=True)
    return {"containers": [], **data}


def _size(data: Json) -> int:
    return len(json.dumps(data, ensure_ascii=False).encode())
