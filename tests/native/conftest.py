"""Boxes with simulated cards, and processes on them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from native.shareskit import Table
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, make_card

MakeChild = Callable[..., Child]


@pytest.fixture(scope="session")
def shares_table() -> Table:
    """Return the table of what containers got of a card, which this run writes anew."""
    return Table(Path(__file__).resolve().parents[2] / "build/shares.json")


@pytest.fixture
def two_cards() -> list[SimCard]:
    return [make_card(0, "Tesla T4", 8192), make_card(1, "NVIDIA A2", 16384, cc="8.6")]


@pytest.fixture
def box(tmp_path: Path, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    return SimDriver.create(tmp_path / "box", two_cards, build=simdriver_build)


@pytest.fixture
def child(box: SimDriver) -> Iterator[MakeChild]:
    """Makes processes on the box's driver (or another's libraries) and ends them with the test."""
    with ExitStack() as stack:

        def make(
            libraries: Path | None = None, *, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()
        ) -> Child:
            return stack.enter_context(Child(libraries or box.libraries, env=env, prefix=prefix))

        yield make
