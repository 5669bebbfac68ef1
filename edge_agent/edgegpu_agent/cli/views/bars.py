"""Cards as bars of units: which pod holds which piece of which card, and how many characters each piece gets."""

import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from edgegpu_agent.cli.clients.document import CardRow, PodRow
from edgegpu_core.model import CORE_PER_CARD

LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
MANY = "#"
"""The letter of all pods after the 62nd."""
UNKNOWN = "?"
FREE = "."
BROKEN = "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLetter:
    """A pod and its letter; `number` (from 0) chooses the colour."""

    uid: str
    letter: str
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class BarPiece:
    """What a pod holds of one card, in units and hundredths; without a holder the pod is not known."""

    holder: PodLetter | None
    units: int
    core: int
    containers: tuple[str, ...]
    state: str


def holding(pods: Sequence[PodRow]) -> list[str]:
    """Return the uids of the pods that have a card, each once, in the order of the document."""
    return list(dict.fromkeys(row.uid for row in pods if row.cards))


def holders(pods: Sequence[PodRow], letters: Mapping[str, str]) -> dict[str, PodLetter]:
    """Return the pods that have a card with their letters; the keys are uids, as in `letters`."""
    found: dict[str, PodLetter] = {}
    for row in pods:
        if row.cards and row.uid not in found:
            letter = letters.get(row.uid, MANY)
            found[row.uid] = PodLetter(uid=row.uid, letter=letter, number=LETTERS.find(letter), name=row.full_name)
    return found


def pieces(card: CardRow, pods: Sequence[PodRow], known: dict[str, PodLetter]) -> tuple[BarPiece, ...]:
    """Return what each pod holds of a card; the units add up to those that are not free.

    Containers of one pod can share devices (kubelet reuses an init container's), and a refused pod's records are not
    booked everywhere. So where the rows add up to more than is held, the pieces of such pods are cut.
    """
    held = max(0, card.units - card.units_free) if card.healthy else card.units
    by_pod: dict[str, list[PodRow]] = {}
    for row in pods:
        if any(ref.uuid == card.uuid for ref in row.cards):
            by_pod.setdefault(row.uid, []).append(row)
    found = [_piece(card, rows, known[uid]) for uid, rows in by_pod.items()]
    smallest = [max(_units(card, row) for row in rows) if len(rows) > 1 else None for rows in by_pod.values()]
    excess = sum(piece.units for piece in found) - held
    for position, least in enumerate(smallest):
        if least is not None and excess > 0:
            cut = min(excess, found[position].units - least)
            found[position], excess = replace(found[position], units=found[position].units - cut), excess - cut
    for position in sorted(range(len(found)), key=lambda p: found[p].state != "refused"):
        if excess > 0:
            cut = min(excess, found[position].units)
            found[position], excess = replace(found[position], units=found[position].units - cut), excess - cut
    if excess < 0 and card.healthy:
        found.append(BarPiece(None, -excess, 0, (), ""))
    return tuple(found)


def widths(units: Iterable[int], total: int, width: int) -> tuple[int, ...]:
    """Return how many of at most `width` characters each piece gets: one per unit if there is room.

    Else the lengths are in proportion, but a piece that holds something does not vanish while another can spare a
    character, and the free part keeps one.
    """
    amounts = list(units)
    amounts.append(max(0, total - sum(amounts)))
    if total <= width:
        return tuple(amounts[:-1])
    edges = [0]
    for amount in amounts:
        edges.append(edges[-1] + amount)
    lengths = [round(right * width / total) - round(left * width / total) for left, right in pairwise(edges)]
    for position, amount in enumerate(amounts):
        largest = max(range(len(lengths)), key=lambda p: lengths[p])
        if amount and not lengths[position] and lengths[largest] > 1:
            lengths[position], lengths[largest] = 1, lengths[largest] - 1
    return tuple(lengths[:-1])


def _piece(card: CardRow, rows: list[PodRow], holder: PodLetter) -> BarPiece:
    state = next((row.state for row in rows if row.state != "allocated"), "allocated")
    units = min(card.units, sum(_units(card, row) for row in rows))
    core = min(CORE_PER_CARD, sum(min(CORE_PER_CARD, row.core) for row in rows))
    return BarPiece(holder, units, core, tuple(row.container for row in rows), state)


def _units(card: CardRow, row: PodRow) -> int:
    """Return the units that a container holds of one card: all of a whole card, else as reported, or divided evenly."""
    told = next(ref.units for ref in row.cards if ref.uuid == card.uuid)
    if told is not None and row.core < CORE_PER_CARD:
        return told
    if row.core >= CORE_PER_CARD:
        return card.units
    base, rest = divmod(row.units, len(row.cards))
    place = next(i for i, ref in enumerate(row.cards) if ref.uuid == card.uuid)
    return base + (1 if place < rest else 0)
