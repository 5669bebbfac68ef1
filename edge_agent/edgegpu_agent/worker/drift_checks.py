"""What a look at settled items needs of the worker."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgegpu_agent.actions.action import SettlerNotes
from edgegpu_sync.messages.spec import Asked, TryKey
from edgegpu_sync.messages.uplink import Condition
from edgegpu_sync.rules.settle import Settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledItem:
    """An item that was settled, how, and where what is kept of looking at it lies."""

    asked: Asked
    settlement: Settlement
    notes: SettlerNotes


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftBoard:
    """What the looks need of the worker; any thread may call them."""

    settled: Callable[[], Sequence[SettledItem]]
    landed: Callable[[str, TryKey, Settlement], None]
    noticed: Callable[[str, tuple[Condition, ...]], None]
    again: Callable[[str], None]
    on_change: Callable[[Callable[[], None]], None] = lambda _told: None
    """Has somebody told, on the worker's thread, whenever `settled` may be another one."""
