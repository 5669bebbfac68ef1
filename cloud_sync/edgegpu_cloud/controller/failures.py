"""Boxes at which the controller's work fails: each is passed over for a while, so that it stops nobody else."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from edgegpu_sync.ids import DeviceId

WAIT_S, WAIT_MOST_S = 60.0, 3_600.0
"""How long a box is passed over, doubled each time that it fails again at once."""


@dataclass(slots=True)
class _Held:
    wait_s: float
    until_s: float
    waits: bool = True


@dataclass(slots=True)
class FailureTable:
    """Who is passed over, and until when; times are seconds that nobody sets. A restart forgets it."""

    _held: dict[DeviceId, _Held] = field(default_factory=dict)

    def failed(self, device: DeviceId, now_s: float) -> float:
        """Pass a box over from now on; returns for how long."""
        before = self._held.get(device)
        again = before is not None and now_s < before.until_s + WAIT_MOST_S
        wait_s = min(WAIT_MOST_S, before.wait_s * 2) if before is not None and again else WAIT_S
        self._held[device] = _Held(wait_s, now_s + wait_s)
        return wait_s

    def free(self, devices: Iterable[DeviceId], now_s: float) -> list[DeviceId]:
        """Return those of these boxes that are not passed over."""
        return [one for one in devices if (held := self._held.get(one)) is None or held.until_s <= now_s]

    def over(self, now_s: float) -> list[DeviceId]:
        """Return the boxes that were passed over until now, each once."""
        found = [device for device, held in self._held.items() if held.waits and held.until_s <= now_s]
        for device in found:
            self._held[device].waits = False
        return found
