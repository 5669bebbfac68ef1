"""Who uses the cards: real processes that allocate memory of the simulated driver, as NVML lists them."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from integration.plugin.test_nvml import CARDS, WAIT_S, Looker
from native.simkit import Child

from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.containers.cgroups import CgroupOwner
from edgegpu_plugin.containers.memory_use import MemoryUseReader, ProcessMemory
from edgegpu_sim.driver import SimDriver, make_card

MIB = 1 << 20
NOT_SUPPORTED, FUNCTION_NOT_FOUND, NO_PERMISSION = 3, 13, 4
LIST = "nvmlDeviceGetComputeRunningProcesses"
UID, ID = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11", "ab" * 32
FIRST, SECOND = (card.uuid for card in CARDS)

MakeUser = Callable[..., Child]


@pytest.fixture
def driver(tmp_path: Path, simdriver_build: Path) -> SimDriver:
    return SimDriver.create(tmp_path / "box", CARDS, build=simdriver_build)


@pytest.fixture
def user(driver: SimDriver) -> Iterator[MakeUser]:
    with ExitStack() as stack:

        def make(mib: int, *, index: int = 0, env: dict[str, str] | None = None) -> Child:
            made = stack.enter_context(Child(driver.libraries, env=env))
            made.open_cuda(index)
            made.alloc(mib)
            return made

        yield make


def listed(root: Path) -> dict[str, set[CardProcess]]:
    """Return the processes that a plugin's NVML lists at its start."""
    looker = Looker(root, run=True, settings={})
    try:
        deadline = time.monotonic() + WAIT_S
        looker.cards()
        while not (found := looker.ask("processes")["processes"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        looker.close()
    return {uuid: {CardProcess(**one) for one in some} for uuid, some in found[0].items()}


def test_each_card_has_its_processes_with_what_they_use(driver: SimDriver, user: MakeUser) -> None:
    one, two = user(512), user(100)
    other = user(7, index=1)
    assert listed(driver.root) == {
        FIRST: {CardProcess(one.pid, 512 * MIB), CardProcess(two.pid, 100 * MIB)},
        SECOND: {CardProcess(other.pid, 7 * MIB)},
    }


def test_who_draws_alone_is_told_from_who_computes(driver: SimDriver, user: MakeUser) -> None:
    both = user(512)
    with Child(driver.libraries) as draws:
        assert (draws.call("draw", 40), both.call("draw", 5)) == (0, 0)
        assert listed(driver.root)[FIRST] == {
            CardProcess(both.pid, 517 * MIB),
            CardProcess(draws.pid, 40 * MIB, computes=False),
        }


def test_a_card_without_processes_is_measured_all_the_same(driver: SimDriver) -> None:
    assert listed(driver.root) == {FIRST: set(), SECOND: set()}


def test_an_older_driver_has_older_lists(driver: SimDriver, user: MakeUser) -> None:
    one = user(512)
    for name in (LIST, "nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        driver.fail(f"{name}_v3", FUNCTION_NOT_FOUND)
    assert listed(driver.root)[FIRST] == {CardProcess(one.pid, 512 * MIB)}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION])
def test_a_driver_that_lists_nobody_is_not_one_that_nobody_uses(driver: SimDriver, user: MakeUser, code: int) -> None:
    user(512)
    driver.fail(LIST, code)
    assert listed(driver.root) == {}


def test_a_mig_device_has_the_processes_in_it(tmp_path: Path, simdriver_build: Path) -> None:
    split = make_card(0, "NVIDIA A100", 40960, profiles=["1g.5gb", "2g.10gb"])
    driver = SimDriver.create(tmp_path / "box", [split], build=simdriver_build)
    with Child(driver.libraries, env={"CUDA_VISIBLE_DEVICES": split.mig[1].uuid}) as user:
        user.open_cuda()
        user.alloc(300)
        found = listed(driver.root)
    assert found == {split.mig[0].uuid: set(), split.mig[1].uuid: {CardProcess(user.pid, 300 * MIB)}}


def test_processes_belong_to_pods_by_their_cgroups(tmp_path: Path, driver: SimDriver, user: MakeUser) -> None:
    inside, also, host, gone = user(512), user(100), user(30), user(9)
    proc = tmp_path / "proc"
    for child, cgroup in (
        (inside, f"kubepods/pod{UID}/{ID}"),
        (also, f"kubepods/pod{UID}/{ID}/x"),
        (host, "init.scope"),
    ):
        (proc / str(child.pid)).mkdir(parents=True)
        (proc / str(child.pid) / "cgroup").write_text(f"0::/{cgroup}\n")
    reader = MemoryUseReader(proc=proc)
    reader.take(5.0, listed(driver.root))
    assert reader.last is not None
    assert gone.process.poll() is None
    assert reader.last.cards == {
        FIRST: {CgroupOwner(UID, ID): ProcessMemory(2, 612 * MIB), None: ProcessMemory(1, 30 * MIB)},
        SECOND: {},
    }
