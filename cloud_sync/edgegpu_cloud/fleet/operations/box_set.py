"""The set of boxes that a person saw, as small as a form can carry it, and what differs from it by now; pure."""

import base64
import binascii
import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.phrases import phrase
from edgegpu_sync.ids import DeviceId

_CELLS, _CELL_BYTES, _NUMBER_BYTES = 512, 4, 2
"""2 KiB, however many boxes: the server takes no more than 32 KiB of a form."""

_WHOLE, _SPARSE = ".", ":"
"""The mark behind the number in a text: all cells follow, or each that is filled with its own number before it."""

_SEEN = "@"
"""The mark before the number of the last change that was seen; an earlier version's text has none."""

_DIGITS, _CHANGE_DIGITS = 9, 18
"""Of the number of boxes, and of changes: a text is read before anybody knows who has written it."""

LONGEST_SET = 4_000
"""More characters than any set has as a text."""

MOST_BOXES = 1_000
"""Boxes that one request of the API names."""


@dataclass(frozen=True, slots=True)
class SetDifference:
    """The boxes that have joined a set and those that have left it, as far as they are told apart.

    `others`: there are more of them, several with one cell, or boxes that were forgotten.
    """

    joined: frozenset[DeviceId]
    left: frozenset[DeviceId]
    others: bool


@dataclass(frozen=True, slots=True)
class BoxSet:
    """A set of boxes: their number, and cells of which each is the XOR of the hashes of the boxes that fall into it.

    Two sets are equal where their cells are. A cell that one box has entered or left differs by this box's hash.
    `seen_change`: the number of the last change by a person when they were seen (`NoteTable.changed`); what others
    change after it, the person has not seen. It is no part of the set.
    """

    number: int
    cells: bytes
    seen_change: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, devices: Collection[DeviceId], *, seen_change: int | None = None) -> "BoxSet":
        """Return the set of these boxes, each of them there once."""
        cells = [0] * _CELLS
        for device in devices:
            cell, mark = _place(device)
            cells[cell] ^= mark
        return cls(len(devices), b"".join(mark.to_bytes(_CELL_BYTES, "big") for mark in cells), seen_change)

    @classmethod
    def read(cls, text: str) -> "BoxSet":
        """Read a set as a form carries it.

        Raises:
            CloudError: it is none.
        """
        sparse = _SPARSE in text
        numbers, _, coded = text.partition(_SPARSE if sparse else _WHOLE)
        number, at, change = numbers.partition(_SEEN)
        try:
            found = base64.b64decode(coded, altchars=b"-_", validate=True)
            cells = _spread(found) if sparse else found
        except (ValueError, binascii.Error):
            cells = b""
        known = is_number(number, digits=_DIGITS) and (not at or is_number(change, digits=_CHANGE_DIGITS))
        if not known or len(cells) != _CELLS * _CELL_BYTES:
            raise CloudError(
                phrase("cannot start: the request does not say which boxes were shown"),
                remedy=phrase("look at its boxes again, then decide"),
            )
        return cls(int(number), cells, int(change) if at else None)

    @property
    def text(self) -> str:
        """Return the set as a form or a command line carries it: 8 characters for each of a few boxes."""
        filled = [(cell, self.cells[part]) for cell in range(_CELLS) if any(self.cells[part := _part(cell)])]
        sparse = b"".join(cell.to_bytes(_NUMBER_BYTES, "big") + mark for cell, mark in filled)
        mark, coded = (_SPARSE, sparse) if len(sparse) < len(self.cells) else (_WHOLE, self.cells)
        seen = "" if self.seen_change is None else f"{_SEEN}{self.seen_change}"
        return f"{self.number}{seen}{mark}{base64.urlsafe_b64encode(coded).decode()}"

    @property
    def boxes_alone(self) -> "BoxSet":
        """Return the set without what was seen of its boxes: its text is the same where the boxes are."""
        return replace(self, seen_change=None)

    def difference(self, now: Collection[DeviceId], known: Iterable[DeviceId]) -> SetDifference:
        """Return what differs by now.

        Args:
            now: the boxes of the set as it is.
            known: boxes that may have been in it.
        """
        changed = dict(self._changed(BoxSet.of(now)))
        here = frozenset(now)
        joined = frozenset(device for device in here if _is_in(device, changed))
        left = frozenset(device for device in known if device not in here and _is_in(device, changed))
        explained = {_place(device)[0] for device in joined | left}
        return SetDifference(joined, left, others=bool(changed.keys() - explained))

    def _changed(self, now: "BoxSet") -> Iterator[tuple[int, int]]:
        """Return the cells that differ, each with what it differs by."""
        for cell in range(_CELLS):
            part = _part(cell)
            by = int.from_bytes(self.cells[part], "big") ^ int.from_bytes(now.cells[part], "big")
            if by:
                yield cell, by


def _part(cell: int) -> slice:
    return slice(cell * _CELL_BYTES, (cell + 1) * _CELL_BYTES)


def _spread(sparse: bytes) -> bytes:
    """Return all cells, of which those that are filled are given, in order; nothing where they are not so."""
    step = _NUMBER_BYTES + _CELL_BYTES
    rows = [sparse[at : at + step] for at in range(0, len(sparse), step)]
    numbers = [int.from_bytes(row[:_NUMBER_BYTES], "big") for row in rows]
    if len(sparse) % step or numbers != sorted(set(numbers)) or (numbers and numbers[-1] >= _CELLS):
        return b""
    found = bytearray(_CELLS * _CELL_BYTES)
    for number, row in zip(numbers, rows, strict=True):
        found[_part(number)] = row[_NUMBER_BYTES:]
    return bytes(found)


def _is_in(device: DeviceId, changed: dict[int, int]) -> bool:
    cell, mark = _place(device)
    return changed.get(cell) == mark


def _place(device: DeviceId) -> tuple[int, int]:
    """Return the cell of a box, and its mark there."""
    found = hashlib.sha256(device.encode()).digest()
    return int.from_bytes(found[:2], "big") % _CELLS, int.from_bytes(found[2 : 2 + _CELL_BYTES], "big")
