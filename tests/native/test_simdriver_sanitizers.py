"""The simulated driver built with sanitizers: the bindings' scenarios, and threads that do everything at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from native.simkit import DRIVER_FILE

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

pytestmark = pytest.mark.sanitizer

SOURCES = Path(__file__).resolve().parents[2] / "simulation/simdriver"
STRESS = Path(__file__).with_name("stress.c")
SCENARIOS = Path(__file__).with_name("bindingschild.py")
ROUNDS, THREADS = 10, 6
FLAGS = "-O1 -g -Wall -Wextra -Werror -std=gnu11 -fPIC -fvisibility=hidden"


def _sanitized(box: SimDriver, out: Path, sanitizers: str) -> None:
    """Put a libcuda with sanitizers into the box in the place of the usual one."""
    library = out / DRIVER_FILE
    made = [f"OUT={out}", f"CFLAGS={FLAGS} -fsanitize={sanitizers} -fno-sanitize-recover=all"]
    subprocess.run(["make", "-s", "-C", SOURCES, *made, library], check=True, env=_without_make())
    installed = box.libraries / DRIVER_FILE
    installed.unlink()
    installed.write_bytes(library.read_bytes())


def _without_make() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}


def _stress(box: SimDriver, folder: Path, sanitizers: str) -> tuple[int, int]:
    """Return how many host functions ran, and the bytes that were left at the end."""
    program = folder / "stress"
    link = [f"-L{box.libraries}", "-l:libcuda.so.1", "-lpthread"]
    subprocess.run(["cc", "-g", "-O1", f"-fsanitize={sanitizers}", "-o", program, STRESS, *link], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(box.libraries)}
    done = subprocess.run(
        [program, str(ROUNDS)], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    calls, left = done.stdout.split()
    return int(calls), int(left)


@pytest.mark.parametrize("sanitizers", ["thread", "address,undefined"])
def test_threads_leave_nothing_and_race_for_nothing(box: SimDriver, tmp_path: Path, sanitizers: str) -> None:
    _sanitized(box, tmp_path / "build", sanitizers)
    assert _stress(box, tmp_path, sanitizers) == (ROUNDS * THREADS, 0)


def test_the_scenarios_touch_only_their_own_memory(
    box: SimDriver, two_cards: list[SimCard], simdriver_build: Path, tmp_path: Path
) -> None:
    SimDriver.create(box.root, two_cards, build=simdriver_build, versions=SimVersions(cuda="13.5"))
    _sanitized(box, tmp_path / "build", "address,undefined")
    runtime = [
        subprocess.run(["cc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(box.libraries),
        "LD_PRELOAD": ":".join(runtime),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
    }
    scenarios = ["pools", "virtual_memory", "arrays", "graphs", "captures", "waits", "contexts", "green_contexts"]
    for scenario in scenarios:
        done = subprocess.run(
            [sys.executable, SCENARIOS, scenario],
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert (scenario, done.returncode, done.stderr) == (scenario, 0, "")
