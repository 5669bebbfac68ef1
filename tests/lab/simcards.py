"""Simulated cards in a booted box: the simulation is pushed beside edgegpu, whose own packages it uses."""

from collections.abc import Mapping
from pathlib import Path

from lab.booted import BootedMachine

ROOT = Path(__file__).resolve().parents[2]
_PLACE = "/srv/simulation"


def push_simulation(box: BootedMachine) -> None:
    """Copy the simulation and its driver into a box, as they lie in the checkout."""
    box.push(ROOT / "simulation", to=_PLACE)
    box.push(ROOT / "build/simdriver", to=f"{_PLACE}/build")


def insert_cards(box: BootedMachine, root: str, cards: Mapping[str, int], *, packages: str, python: str) -> None:
    """Put simulated cards, name to MiB, below a root of a box; in the place of those that are there.

    Args:
        box: with the simulation on it.
        root: below which the driver lies.
        cards: from names to MiB.
        packages: the folder of edgegpu's packages in the box.
        python: the box's own.
    """
    wanted = [word for name, mib in cards.items() for word in ("--card", f"{name}:{mib}")]
    path = f"PYTHONPATH={_PLACE}/simulation:{packages}"
    box.exec("env", path, python, "-m", "edgegpu_sim.driver", "create", root, *wanted)
