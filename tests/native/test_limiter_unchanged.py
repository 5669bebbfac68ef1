"""What passes the limiter as it is: what the driver says of its cards, and what it makes of no arguments."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from limiter_functions import read_table
from native.limiterkit import MIB, SOURCES, Container, make_container

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

PROGRAM = Path(__file__).with_name("unchangedchild.py")
CONTEXT_MIB = 100
ASKED_OF_ALL_CARDS = 300
"""At least so many answers are compared."""
LEAST_FAMILIES = 18
ANSWERED_HERE = {"cuGetErrorName", "cuGetErrorString", "nvmlErrorString"}
"""Hooks that do not ask this driver."""


@pytest.fixture
def driver(tmp_path: Path, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    versions = SimVersions(context_mib=CONTEXT_MIB)
    return SimDriver.create(tmp_path / "box", two_cards, build=simdriver_build, versions=versions)


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path, driver: SimDriver, two_cards: list[SimCard]) -> Container:
    made = make_container(tmp_path / "container", limiter_build, driver.libraries)
    made.limit(*((card, 1024) for card in two_cards), context_mib=CONTEXT_MIB)
    return made


def _told(libraries: Path, *words: str) -> object:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    command = [sys.executable, str(PROGRAM), *words]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=240)
    return json.loads(done.stdout)


def test_what_the_runtime_knows_the_driver_by_passes_unchanged(container: Container, driver: SimDriver) -> None:
    """The driver's version, number of cards, UUIDs, PCI ids, attributes and private tables, by CUDA and by NVML."""
    held, native = _told(container.libraries, "cards"), _told(driver.libraries, "cards")
    assert held == native
    assert json.dumps(native).count("[0, ") > ASKED_OF_ALL_CARDS


@pytest.mark.parametrize(("library", "least"), [("cuda", 60), ("nvml", 4)])
@pytest.mark.parametrize("state", ["new", "opened"])
def test_no_arguments_are_what_the_driver_makes_of_them(
    container: Container, driver: SimDriver, state: str, library: str, least: int
) -> None:
    """Of all functions that the limiter stands in for and this driver has, before it is initialised and after.

    Those of NVML have a card then, and no place for the answer.
    """
    hooked = [one.name for one in read_table(SOURCES / library / "functions.tsv") if one.rule == "hook"]
    names = sorted(set(hooked) - ANSWERED_HERE)
    held, native = _told(container.libraries, state, *names), _told(driver.libraries, state, *names)
    assert isinstance(held, dict)
    assert isinstance(native, dict)
    assert len(native) >= least
    assert {name: held[name] for name in native} == native
    assert container.counted() <= CONTEXT_MIB * MIB


@pytest.mark.parametrize("state", ["new", "opened"])
def test_no_place_for_the_answer_is_what_the_driver_makes_of_it(
    container: Container, driver: SimDriver, state: str
) -> None:
    """Of the families that take memory, each with all else that it needs."""
    held, native = _told(container.libraries, state), _told(driver.libraries, state)
    assert held == native
    assert isinstance(native, dict)
    assert len(native) > LEAST_FAMILIES
    assert container.counted() <= CONTEXT_MIB * MIB
