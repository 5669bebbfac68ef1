"""The real nvidia-smi on simulated cards: behind the limiter it shows one card, its UUID, and the limit as its size."""

import re
from pathlib import Path

import pytest
from driver.cache import Unpacked
from driver.report import Figures
from native.limiterkit import Container, make_container
from native.simkit import Child

from edgegpu_sim.driver import SimDriver, SimVersions, make_card

pytestmark = pytest.mark.driver

CARDS = tuple(make_card(index, "NVIDIA Tesla P4", 7611) for index in range(2))
LIMIT_MIB, TAKEN_MIB = 1024, 100
WHOLE_SCREEN = 418
"""The first branch whose screens end well: 390 ends its own with status 255 at the processes, below the cards."""
PRIVATE_LIST = 525
"""The first branch that lists processes by a table of functions that the simulated driver refuses."""


@pytest.fixture
def container(driver: Unpacked, simdriver_build: Path, limiter_build: Path, tmp_path: Path) -> Container:
    """A container with a quarter of one card, on a machine with two; the driver has the branch's version."""
    root = tmp_path / "box"
    made = SimDriver.create(root, CARDS, build=simdriver_build, versions=SimVersions(driver=driver.branch.version))
    (root / f"dev/nvidia{CARDS[1].minor}").unlink()
    found = make_container(tmp_path / "container", limiter_build, made.libraries)
    found.limit((CARDS[0], LIMIT_MIB))
    return found


def test_it_shows_one_card_and_the_limit(driver: Unpacked, container: Container, figures: Figures) -> None:
    program, number = driver.program("nvidia-smi"), int(driver.branch.name)
    assert program is not None
    with Child(container.libraries) as process:
        process.open_cuda()
        process.alloc(TAKEN_MIB)
        uuid, row = CARDS[0].uuid, f"{CARDS[0].uuid}, {LIMIT_MIB} MiB, {TAKEN_MIB} MiB"
        assert container.run(program, "-L") == f"GPU 0: {CARDS[0].name} (UUID: {uuid})\n"
        queried = container.run(program, "--query-gpu=uuid,memory.total,memory.used", "--format=csv").splitlines()
        assert queried == ["uuid, memory.total [MiB], memory.used [MiB]", row]
        listed = container.run(program, "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
        assert listed == ("[N/A], [N/A]\n" if number >= PRIVATE_LIST else f"{process.pid}, {TAKEN_MIB} MiB\n")
        if number >= WHOLE_SCREEN:
            screen, details = container.run(program), container.run(program, "-q")
            assert re.findall(r"(\d+)MiB / +(\d+)MiB", screen) == [(str(TAKEN_MIB), str(LIMIT_MIB))]
            assert re.search(rf"{driver.branch.version} +Driver Version: {driver.branch.version}", screen)
            assert re.findall(r"GPU UUID +: (\S+)", details) == [uuid]
            memory = re.search(r"FB Memory Usage\n +Total +: (.+)\n(?: +Reserved +: .+\n)? +Used +: (.+)\n", details)
            assert memory
            assert memory.groups() == (f"{LIMIT_MIB} MiB", f"{TAKEN_MIB} MiB")
    figures.note("simulated cards", screens=4 if number >= WHOLE_SCREEN else 2)
