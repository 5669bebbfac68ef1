"""What differs from the boxes that a person has seen, in words that name them."""

from collections.abc import Collection

from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.store import Transaction
from edgegpu_sync.ids import DeviceId

_MOST_TOLD = 5


def difference_words(
    tx: Transaction, seen: BoxSet, now: Collection[DeviceId], known: Collection[DeviceId]
) -> list[str]:
    """Return what has joined and left a set of boxes; empty where it is the same.

    Args:
        tx: reads the names.
        seen: the boxes that a person has seen.
        now: the boxes by now.
        known: boxes that may have been among those that were seen.
    """
    found = seen.difference(now, known)
    words: list[str] = []
    if found.joined:
        words.append(phrase("joined: %(names)s", names=names_of_some(tx, found.joined)))
    if found.left:
        words.append(phrase("left: %(names)s", names=names_of_some(tx, found.left)))
    if found.others:
        words.append(phrase("and others, which cannot be named"))
    return words


def names_of_some(tx: Transaction, devices: Collection[DeviceId]) -> str:
    """Return the names of some boxes, and how many more there are."""
    names = ", ".join(sorted(box.name for box in tx.boxes.get(sorted(devices)[:_MOST_TOLD]).values()))
    more = len(devices) - _MOST_TOLD
    return phrase("%(names)s and %(left)s more", names=names, left=more) if more > 0 else names
