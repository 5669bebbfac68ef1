"""What simulated boxes are: their cards, their apps, how they are; by the number of a box."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

UNIT_MIB = 256


@dataclass(frozen=True, slots=True)
class SimApp:
    """An app of a box: its memory in units, its core, the place of its card. Each has one pod with one container."""

    name: str
    units: int
    core: int
    card: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What one box is."""

    name: str
    card_name: str
    cards: int
    units: int
    apps: Sequence[SimApp]
    labels: Mapping[str, str]
    namespace: str = "default"
    trouble: str = ""
    """What is wrong with the box; empty: nothing."""
    measures: bool = False
    """Whether it sends measurements."""
    leaves: bool = False
    """Whether it goes offline once it has said what it has."""


_ZONES = 50


def equal_box(number: int) -> Profile:
    """Return a box of many that are equal: what a measurement is made with."""
    return Profile(
        name=f"box-{number:05d}",
        card_name="NVIDIA T4",
        cards=2,
        units=64,
        apps=[SimApp(f"app-{at}", 4 + at, 10, at % 2) for at in range(6)],
        labels={"zone": f"z{number % _ZONES}", "tier": "edge" if number % 3 else "core"},
    )


def shop_floor_box(number: int) -> Profile:
    """Return a box of a fleet as people have it: three kinds of machines on four sites; some differ, some are ill."""
    site, line = ("hall", "press", "dock", "yard")[number % 4], 1 + number // 4 % 12
    odd, ill = number % 29 == 0, number % 47 == 0
    counter = SimApp("counter", 2 if odd else 4, 1, 0)
    kinds = (
        ("NVIDIA TITAN RTX", 1, 94, [SimApp("detector", 50, 40, 0), SimApp("tracker", 12, 10, 0), counter]),
        ("NVIDIA Tesla P4", 2, 29, [SimApp("detector", 20, 30, 1), SimApp("tracker", 12, 10, 0), counter]),
        ("NVIDIA GeForce GTX 1650", 2, 16, [SimApp("tracker", 12 - 4 * odd, 10, 1), counter]),
    )
    card_name, cards, units, apps = kinds[number % 3]
    return Profile(
        name=f"{site}-line{line:02d}-{number:03d}",
        card_name=card_name,
        cards=cards,
        units=units,
        apps=apps,
        labels={"site": site, "line": str(line)},
        namespace="baetyl-edge",
        trouble="XID 79: the card has fallen off the bus" if ill else "",
        measures=True,
        leaves=number % 59 == 0,
    )


PROFILES: Mapping[str, Callable[[int], Profile]] = {"equal": equal_box, "shop-floor": shop_floor_box}
"""The profiles by name."""
