"""Amounts of card memory as people type and read them: units, MiB, GiB; pure."""

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.phrases import phrase

MOST_UNITS, MOST_CORE = 1_000_000, 6_400
"""The largest amounts that a request can have (`Units` and `Core` in `edgegpu_sync.wire`)."""

_MIB_PER_GIB = 1_024
_NUMBER = re.compile(r"[0-9]{1,9}([.,][0-9]{1,6})?")
_REMEDY = phrase("give a number, as 10 units, 2560 MiB or 2.5 GiB")


class MemoryMeasure(StrEnum):
    """What an amount of memory is counted in."""

    UNITS = "units"
    MIB = "MiB"
    GIB = "GiB"


@dataclass(frozen=True, slots=True)
class MemoryAmount:
    """An amount of memory: whole units of `unit_mib`. `rounded`: it was typed as less, and rounded up to a unit."""

    units: int
    unit_mib: int
    rounded: bool = False

    @property
    def mib(self) -> int:
        """The amount in MiB."""
        return self.units * self.unit_mib


def read_memory(text: str, measure: str, unit_mib: int) -> MemoryAmount:
    """Read an amount as it was typed; a part of a unit counts as a whole one.

    Args:
        text: digits, with a decimal point or comma where it is no number of units.
        measure: one of `MemoryMeasure`.
        unit_mib: the MiB of one unit on the box.

    Raises:
        CloudError: it is no amount, or more than a request can have.
    """
    words = text.strip()
    if not _NUMBER.fullmatch(words):
        raise CloudError(phrase("cannot set the memory to %(text)r: it is no number", text=text), remedy=_REMEDY)
    value = Decimal(words.replace(",", "."))
    try:
        kind = MemoryMeasure(measure)
    except ValueError:
        raise CloudError(
            phrase("cannot set the memory: %(measure)r is no measure", measure=measure), remedy=_REMEDY
        ) from None
    if kind is not MemoryMeasure.UNITS and not unit_mib:
        raise CloudError(
            phrase("cannot set the memory in %(kind)s: the box has not reported its unit", kind=kind),
            remedy=phrase("give units"),
        )
    mib = value * (_MIB_PER_GIB if kind is MemoryMeasure.GIB else 1)
    parts = value if kind is MemoryMeasure.UNITS else mib / unit_mib
    units = int(parts.to_integral_value(rounding="ROUND_CEILING"))
    if kind is MemoryMeasure.UNITS and parts != units:
        raise CloudError(
            phrase("cannot set the memory to %(text)s units: there are whole units only", text=text), remedy=_REMEDY
        )
    if units > MOST_UNITS:
        raise CloudError(
            phrase(
                "cannot set the memory to %(text)s %(kind)s: at most %(most_units)s units",
                text=text,
                kind=kind,
                most_units=MOST_UNITS,
            ),
            remedy=_REMEDY,
        )
    return MemoryAmount(units, unit_mib, rounded=parts != units)


def read_core(text: str) -> int:
    """Read hundredths of a card's compute.

    Raises:
        CloudError: no whole number from 0 to `MOST_CORE`.
    """
    words = text.strip()
    if not is_number(words, digits=len(str(MOST_CORE))) or int(words) > MOST_CORE:
        remedy = phrase(
            "give hundredths of a card: 1 to 100, 200 for two whole cards, at most %(most_core)s", most_core=MOST_CORE
        )
        raise CloudError(
            phrase("cannot set the core to %(text)r: it is no whole number in range", text=text), remedy=remedy
        )
    return int(words)
