"""NVIDIA's own nvidia-smi in the place of the simulated driver's: containers get it as the driver's own tool."""

import shutil
from pathlib import Path

import pytest
from driver.cache import Unpacked, cached
from driver.pins import read_pins

from edgegpu_sim.driver import SimDriver

LABEL = "real nvidia-smi, simulated cards"
"""What stands wherever its output is shown: the program is NVIDIA's, the cards are not."""


def newest() -> Unpacked | None:
    """Return the newest branch that `make driver` has fetched; None without one. Nothing is fetched."""
    drivers = (cached(branch) for branch in reversed(read_pins().branches))
    return next((driver for driver in drivers if driver is not None and driver.program("nvidia-smi")), None)


def need_newest() -> Unpacked:
    """Return the newest branch that `make driver` has fetched; without one the test is skipped."""
    driver = newest()
    if driver is None:
        pytest.skip("the real nvidia-smi is not at hand: make driver fetches it")
    return driver


def lay(real: Unpacked, driver: SimDriver) -> None:
    """Put the real nvidia-smi into a simulated driver; a process that runs the old one keeps it."""
    program = real.program("nvidia-smi")
    assert program is not None
    new: Path = driver.nvidia_smi.with_suffix(".new")
    shutil.copy(program, new)
    new.replace(driver.nvidia_smi)
