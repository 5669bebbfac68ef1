"""The program of a simulated container: it holds as much of the cards as its input says, and ends with that."""

import argparse
import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path

_MIB = 1 << 20


class CardMemory:
    """Memory that this process holds on the cards of a simulated driver, by its CUDA."""

    def __init__(self, library: Path) -> None:
        """Load a driver's libcuda.so.1. Raises OSError: it does not answer."""
        self._cuda = ctypes.CDLL(str(library))
        self._held: dict[int, ctypes.c_uint64] = {}
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._call("cuInit", 0)

    def hold(self, card: int, mib: int) -> None:
        """Hold so much of a card, and no more what was held there before. Raises OSError: CUDA refuses it."""
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


def run(lines: Iterable[str], library: Path) -> None:
    """Hold what each line says, `CARD MIB`; the driver is loaded at the first: who runs the program knows it by then.

    Raises:
        OSError: the driver does not answer, or refuses the memory.
    """
    memory: CardMemory | None = None
    for line in lines:
        card, mib = map(int, line.split())
        memory = memory or CardMemory(library)
        memory.hold(card, mib)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=Path, help="the driver's libcuda.so.1")
    run(sys.stdin, parser.parse_args().library)
