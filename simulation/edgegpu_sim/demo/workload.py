"""The load of a demo's box: a process that uses the simulated cards as the pods there would, more and less by turns."""

import argparse
import ctypes
import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgegpu_agent.cli.clients.document import StatusDocument
from edgegpu_agent.cli.clients.plugin import fetch_status
from edgegpu_agent.cli.common import CliError
from edgegpu_sim.driver import SimDriver

STEP_S = 5.0
"""Seconds between two changes of the load; the demo's agents measure every ten."""

_IDLE_C, _BUSY_C = 38, 40
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLoad:
    """The load of one card."""

    percent: int
    celsius: int
    memory_mib: int


def card_load(units: int, of_units: int, *, unit_mib: int, at_s: float, card: int) -> CardLoad:
    """Return the load that pods with so many units make at a time; none without pods.

    Args:
        units: what pods hold of the card.
        of_units: what the card has.
        unit_mib: the size of a unit.
        at_s: seconds since any beginning.
        card: the card's place on its box: cards move one after the other.
    """
    if not units or not of_units:
        return CardLoad(percent=0, celsius=_IDLE_C, memory_mib=0)
    share = units / of_units
    slow, quick = math.sin(at_s / 45 + card), math.sin(at_s / 11 + 2 * card)
    percent = round(min(98.0, max(2.0, 100 * share * (0.62 + 0.24 * slow + 0.09 * quick))))
    memory_mib = int(units * unit_mib * (0.72 + 0.16 * math.sin(at_s / 70 + card)))
    return CardLoad(percent=percent, celsius=_IDLE_C + round(_BUSY_C * percent / 100), memory_mib=memory_mib)


class CardMemory:
    """Memory that this process holds on the cards of a simulated driver, by its CUDA."""

    def __init__(self, driver: SimDriver) -> None:
        self._cuda = ctypes.CDLL(str(driver.libraries / "libcuda.so.1"))
        self._held: dict[int, ctypes.c_uint64] = {}
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._call("cuInit", 0)

    def hold(self, card: int, mib: int) -> None:
        """Hold so much of a card, and no more what was held there before."""
        if card not in self._contexts:
            self._contexts[card] = context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), card)
        self._call("cuCtxSetCurrent", self._contexts[card])
        if (held := self._held.pop(card, None)) is not None:
            self._call("cuMemFree_v2", held)
        if mib:
            place = ctypes.c_uint64()
            self._call("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(mib * _MIB))
            self._held[card] = place

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._cuda, name)(*arguments):
            raise OSError(status, f"{name} answers {status}")


def units_by_card(status: StatusDocument) -> Mapping[str, int]:
    """Return the units that running pods hold of each card, by UUID."""
    held = Counter[str]()
    for pod in status.pods:
        for card in pod.cards:
            held[card.uuid] += card.units or 0 if pod.phase == "Running" else 0
    return held


class BoxLoad:
    """The load of the cards of one box."""

    def __init__(self, driver: SimDriver, socket: Path) -> None:
        self._driver, self._socket = driver, socket
        self._memory = CardMemory(driver)

    def step(self, at_s: float) -> None:
        """Set the load of each card to that of a time; nothing while the plugin does not answer."""
        try:
            status = fetch_status(self._socket)
        except CliError:
            return
        held = units_by_card(status)
        for place, card in enumerate(status.cards):
            load = card_load(held.get(card.uuid, 0), card.units, unit_mib=status.unit_mib, at_s=at_s, card=place)
            self._driver.utilisation(card.uuid, load.percent)
            self._driver.temperature(card.uuid, load.celsius)
            self._memory.hold(int(card.index.partition(":")[0]), load.memory_mib)


def main() -> None:
    """Read the command line, and load the cards until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--step", type=float, default=STEP_S, help="seconds between two changes")
    parser.add_argument("--hurry", type=float, default=1.0, help="so much faster than the clock")
    chosen = parser.parse_args()
    load = BoxLoad(SimDriver(chosen.driver), chosen.socket)
    while True:
        load.step(time.monotonic() * chosen.hurry)
        time.sleep(chosen.step)


if __name__ == "__main__":
    main()
