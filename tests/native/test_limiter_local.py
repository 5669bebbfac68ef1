"""Local memory of kernels: what their threads need above the stack counts from the first launch on."""

import subprocess
from pathlib import Path

from native.limiterkit import MIB, compile_program, make_container

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

LIMIT_MIB, CONTEXT_MIB = 1024, 100
LEFT_MIB = LIMIT_MIB - CONTEXT_MIB
STEP_MIB = 5
"""What plugin/limiter/tests/local.c has a kernel's threads need more in one step, all that the card can run at once."""


def test_as_much_as_the_largest_kernel_needs_counts_until_its_context_ends(
    tmp_path: Path, limiter_build: Path, simdriver_build: Path, two_cards: list[SimCard]
) -> None:
    """By CUDA's own free memory, by the limiter's count and by the driver's own figure, which agree."""
    card = two_cards[0]
    versions = SimVersions(cuda="12.6", context_mib=CONTEXT_MIB)
    driver = SimDriver.create(tmp_path / "box", [card], build=simdriver_build, versions=versions)
    container = make_container(tmp_path / "container", limiter_build, driver.libraries)
    container.limit((card, LIMIT_MIB), context_mib=CONTEXT_MIB)
    program = compile_program(tmp_path / "local", limiter_build, ["tests/local.c"], "-pthread")
    free: dict[str, int] = {}
    with subprocess.Popen(
        [program], env=container.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            name, mib = line.split()
            free[name] = int(mib)
            assert container.counted() == driver.used_mib(card.uuid) * MIB == (LIMIT_MIB - free[name]) * MIB
            process.stdin.write("go\n")
            process.stdin.flush()
    assert process.returncode == 0
    assert free == {
        "none": LEFT_MIB,
        "asked": LEFT_MIB,
        "over": 20 * STEP_MIB,
        "at": 0,
        "smaller": 0,
        "kernel": LEFT_MIB - 21 * STEP_MIB,
        "stack": LEFT_MIB - 21 * STEP_MIB,
        "larger": LEFT_MIB - 25 * STEP_MIB,
        "lower": LEFT_MIB - 22 * STEP_MIB,
        "ended": LEFT_MIB,
        "elsewhere": LEFT_MIB - CONTEXT_MIB - 20 * STEP_MIB,
        "nowhere": LEFT_MIB - CONTEXT_MIB - 40 * STEP_MIB,
        "back": LEFT_MIB,
    }
    assert container.refused() == 2
