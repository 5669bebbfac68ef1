"""Boxes at which the controller's work fails: each is passed over for a while, so that it blocks no other."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from edgegpu_sync.ids import DeviceId

WAIT_S, WAIT_MOST_S = 60.0, 3_600.0
"""How long a box is passed over, and at most; doubled each time that it fails again soon."""


@dataclass(slots=True)
class _Held:
    wait_s: float
    until_s: float
    waits: bool = True


@dataclass(slots=True)
class FailureTable:
    """The boxes that are passed over, and until when, by a clock that nobody sets. A restart forgets them."""

    _held: dict[DeviceId, _Held] = field(default_factory=dict)

    def failed(self, device: DeviceId, now_s: float) -> float:
        """Pass a box over from now on; return for how many seconds."""
        before = self._held.get(device)
        again = before is not None and now_s < before.until_s + WAIT_MOST_S
        wait_s = min(WAIT_MOST_S, before.wait_s * 2) if before is not None and again else WAIT_S
        self._held[device] = _Held(wait_s, now_s + wait_s)
        return wait_s

    def free(self, devices: Iterable[DeviceId], now_s: float) -> list[DeviceId]:
        """Return those of these boxes that are not passed over."""
        return [one for one in devices if (held := self._held.get(one)) is None or held.until_s <= now_s]

    def again(self, devices: Iterable[DeviceId]) -> None:
        """Return these boxes from `over` once more."""
        for device in devices:
            if (held := self._held.get(device)) is not None:
                held.waits = True

    def over(self, now_s: float) -> list[DeviceId]:
        """Return the boxes whose time of being passed over has ended, each once."""
        found = [device for device, held in self._held.items() if held.waits and held.until_s <= now_s]
        for device in found:
            self._held[device].waits = False
        return found
