"""The saved inventory: which cards this node had, so that their devices are offered before NVML answers."""

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed
from edgegpu_core.inventory import Card
from edgegpu_plugin.errors import PluginError

_log = logging.getLogger(__name__)

_VERSION = 1
_CARDS = TypeAdapter(tuple[Card, ...])
_MOST_UNIT_MIB = 1 << 20
_MOST_MIB, _MOST_NUMBER = 1 << 24, 1 << 20
"""More than any card has of memory, and than the kernel has minor numbers: JSON's numbers have no bounds."""


@dataclass(frozen=True, slots=True)
class SavedInventory:
    """What the file holds; health is not saved, since NVML shows it anew."""

    cards: tuple[Card, ...] = ()
    gone: tuple[Card, ...] = ()
    """The cards that this machine had before, as they were last seen."""
    unit_mib: int | None = None
    """The unit in which pods' devices were last counted; None when it is not saved."""


class InventoryStore:
    """The file `inventory.json` in the state folder."""

    def __init__(self, state: Path) -> None:
        self._path = state / "inventory.json"

    def load(self) -> SavedInventory:
        """Return what was saved; nothing when the file is missing, and what can be read of it (the log says why)."""
        found = SavedInventory()
        try:
            value = json.loads(self._path.read_bytes())
            unit = value.get("unit_mib") if isinstance(value, dict) else None
            found = SavedInventory(unit_mib=unit if type(unit) is int and 0 < unit <= _MOST_UNIT_MIB else None)
            found = replace(found, cards=_cards(value, "cards"))
            return replace(found, gone=_cards(value, "gone"))
        except FileNotFoundError:
            return found
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            _log.warning(
                "cannot read the saved inventory %s: %s: %s; the cards are offered when NVML has told them",
                self._path,
                type(error).__name__,
                error,
            )
            return found

    def save(self, inventory: SavedInventory) -> bool:
        """Save the inventory, and return whether it differs from the saved one.

        Raises:
            PluginError: the file cannot be written.
        """
        value = {
            "version": _VERSION,
            "unit_mib": inventory.unit_mib,
            "cards": [_entry(card) for card in inventory.cards],
            "gone": [_entry(card) for card in inventory.gone],
        }
        try:
            return write_if_changed(self._path, json.dumps(value, indent=1) + "\n")
        except EdgegpuError as error:
            raise PluginError(f"cannot save the inventory: {error}") from error


def _entry(card: Card) -> dict[str, Any]:
    return {key: part for key, part in asdict(card).items() if key not in {"healthy", "answers", "problem", "watched"}}


def _cards(value: dict[str, Any], key: str) -> tuple[Card, ...]:
    if value["version"] != _VERSION:
        raise ValueError(f"it has version {value['version']}, not {_VERSION}")
    cards = _CARDS.validate_python(value["cards"] if key == "cards" else value.get(key, ()))
    for card in cards:
        numbers = (card.index, card.minor, card.mig or 0, card.kept_mib or 0, *card.caps, *(card.capability or ()))
        if not 0 <= card.memory_mib <= _MOST_MIB or not all(0 <= number <= _MOST_NUMBER for number in numbers):
            raise ValueError(f"card {card.uuid}: a number that no card has")
    return cards
