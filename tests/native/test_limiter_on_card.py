"""The program that measures the limiter on a card (tests/gpu/limiter) runs on the simulated driver, and judges."""

import json
import subprocess
import sys
from pathlib import Path

from edgegpu_sim.driver import SimDriver, SimVersions, make_card

RUN = Path(__file__).resolve().parents[1] / "gpu/limiter/run.py"


def _run(tmp_path: Path, build: Path, driver: SimDriver, *words: str) -> tuple[int, str]:
    options: list[str | Path] = [
        "--driver",
        driver.libraries,
        "--smi",
        driver.nvidia_smi,
        "--build",
        build,
        "--out",
        tmp_path / "out.json",
    ]
    done = subprocess.run(
        [sys.executable, RUN, *options, *words], capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def test_it_holds_memory_by_what_the_card_says(tmp_path: Path, limiter_build: Path, simdriver_build: Path) -> None:
    driver = SimDriver.create(
        tmp_path / "box", [make_card(0, "T4", 15360)], build=simdriver_build, versions=SimVersions(context_mib=200)
    )
    status, said = _run(tmp_path, limiter_build, driver, "memory", "--ways", "alloc")
    assert status == 0, said
    figures = json.loads((tmp_path / "out.json").read_text())["figures"]
    *first, by_two = [(row["name"], row["value"], row["within"]) for row in figures]
    assert first == [("a context", 200, True), ("alloc by 1: on the card", 200 + 12 * 64, True)]
    most = 200 + 12 * 64, 2 * 200 + 9 * 64  # one has all before the other comes, or both have a context
    assert by_two in [("alloc by 2: on the card", value, True) for value in most]


def test_without_a_card_it_says_so(tmp_path: Path, limiter_build: Path) -> None:
    nothing = SimDriver(tmp_path / "nothing")
    status, said = _run(tmp_path, limiter_build, nothing)
    assert (status, said) == (77, f"no card here: no libcuda.so.1 in {nothing.libraries}\n")
