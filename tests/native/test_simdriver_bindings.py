"""NVIDIA's own Python bindings on the simulated driver."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

PROGRAM = Path(__file__).with_name("bindingschild.py")


@pytest.mark.parametrize("version", ["12.6", "13.5"])
def test_the_bindings_allocate(box: SimDriver, two_cards: list[SimCard], simdriver_build: Path, version: str) -> None:
    driver = SimDriver.create(box.root, two_cards, build=simdriver_build, versions=SimVersions(cuda=version))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver.libraries)}
    done = subprocess.run([sys.executable, PROGRAM], env=environment, check=True, capture_output=True, timeout=60)
    major, minor = version.split(".")
    assert json.loads(done.stdout) == {
        "version": int(major) * 1000 + int(minor) * 10,
        "held": 1 << 20,
        "too_much": "CUDA_ERROR_OUT_OF_MEMORY",
    }
