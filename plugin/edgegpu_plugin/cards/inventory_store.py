"""The saved inventory: which cards this node had, so that their devices are offered before NVML answers."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
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


class InventoryStore:
    """The file `inventory.json` in the state folder."""

    def __init__(self, state: Path) -> None:
        self._path = state / "inventory.json"

    def load(self) -> tuple[Card, ...]:
        """Return the saved cards; none when nothing was saved, or when the file cannot be read (the log says why)."""
        return self._load("cards")

    def load_gone(self) -> tuple[Card, ...]:
        """Return the cards that this machine had before, as they were last seen."""
        return self._load("gone")

    def load_unit(self) -> int | None:
        """Return the unit, in MiB, in which pods' devices were last counted; None when it is not saved."""
        try:
            unit = json.loads(self._path.read_bytes()).get("unit_mib")
        except (OSError, ValueError, AttributeError, RecursionError):  # `load` says what is wrong
            return None
        return unit if isinstance(unit, int) and unit > 0 else None

    def _load(self, key: str) -> tuple[Card, ...]:
        try:
            return _cards(json.loads(self._path.read_bytes()), key)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            _log.warning(
                "cannot read the saved inventory %s: %s: %s; the cards are offered when NVML has told them",
                self._path,
                type(error).__name__,
                error,
            )
            return ()

    def save(self, cards: Sequence[Card], gone: Sequence[Card] = (), *, unit_mib: int | None = None) -> bool:
        """Save the cards, the cards that are gone, and the unit; return whether they differ from the saved ones.

        Health is not saved, since NVML shows it anew.

        Raises:
            PluginError: the file cannot be written.
        """
        value = {
            "version": _VERSION,
            "unit_mib": unit_mib,
            "cards": [_entry(card) for card in cards],
            "gone": [_entry(card) for card in gone],
        }
        text = json.dumps(value, indent=1)
        try:
            return write_if_changed(self._path, text + "\n")
        except EdgegpuError as error:
            raise PluginError(f"cannot save the inventory: {error}") from error


def _entry(card: Card) -> dict[str, Any]:
    return {key: part for key, part in asdict(card).items() if key not in {"healthy", "answers"}}


def _cards(value: dict[str, Any], key: str) -> tuple[Card, ...]:
    if value["version"] != _VERSION:
        raise ValueError(f"it has version {value['version']}, not {_VERSION}")
    return _CARDS.validate_python(value["cards"] if key == "cards" else value.get(key, ()))
