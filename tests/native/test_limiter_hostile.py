"""What a program does to have more than its share, with functions of libc and of the driver that it may call."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from native.limiterkit import MIB, NULL_CARD, SOURCES, USAGE_BYTES, Container, compile_program, make_container
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

LIMIT_MIB, CONTEXT_MIB, MODULE_MIB = 1024, 100, 18


def test_a_process_that_can_read_its_limits_no_more_is_given_nothing_new(limiter_build: Path, tmp_path: Path) -> None:
    common = [
        f"common/{path.name}"
        for path in (SOURCES / "common").glob("*.c")
        if path.name not in {"driver.c", "settings.c"}
    ]
    (tmp_path / "usage").write_bytes(b"\0" * USAGE_BYTES)
    program = compile_program(tmp_path / "unread", limiter_build, ["tests/unread.c", *common])
    done = subprocess.run([program, tmp_path], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_driver_is_told_and_answers_counts_whatever_else_writes_there(
    limiter_build: Path, tmp_path: Path
) -> None:
    driver = tmp_path / "driver/libcuda.so.1"
    driver.parent.mkdir()
    compile_program(driver, limiter_build, ["tests/nullmeanwhile.c"], "-O2", "-shared", "-fPIC")
    container = make_container(tmp_path / "container", limiter_build, driver.parent)
    container.limit((NULL_CARD, 64), context_mib=4)
    container.run(compile_program(tmp_path / "meanwhile", limiter_build, ["tests/meanwhile.c"]), driver)


@pytest.fixture
def driver(tmp_path: Path, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    versions = SimVersions(context_mib=CONTEXT_MIB, module_mib=MODULE_MIB, cuda="13.5")
    return SimDriver.create(tmp_path / "box", two_cards, build=simdriver_build, versions=versions)


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path, driver: SimDriver, two_cards: list[SimCard]) -> Container:
    made = make_container(tmp_path / "container", limiter_build, driver.libraries)
    made.limit((two_cards[0], LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


@pytest.fixture
def process(container: Container) -> Iterator[Child]:
    with Child(container.libraries) as child:
        child.open_cuda()
        yield child


def test_a_library_counts_in_each_context_and_outlives_it(
    process: Child, container: Container, driver: SimDriver, two_cards: list[SimCard]
) -> None:
    def both(mib: int) -> None:
        assert (driver.used_mib(two_cards[0].uuid), container.counted()) == (mib, mib * MIB)

    status, library = process.call("cuLibraryLoadData", "&ptr", "image", 0, 0, 0, 0, 0, 0)
    assert status == 0
    status, primary = process.call("cuCtxGetCurrent", "&ptr")
    assert status == 0
    for _ in range(2):
        status, context = process.call("cuCtxCreate_v2", "&ptr", 0, 0)
        assert status == 0
        assert process.call("cuLibraryGetKernel", "&ptr", library, "kernel")[0] == 0
        both(2 * CONTEXT_MIB + MODULE_MIB)
        assert process.call("cuCtxDestroy_v2", context) == [0]
        both(CONTEXT_MIB)
        assert process.call("cuCtxSetCurrent", primary) == [0]
    assert process.call("cuLibraryGetKernel", "&ptr", library, "kernel")[0] == 0
    both(CONTEXT_MIB + MODULE_MIB)
    assert process.call("cuLibraryUnload", library) == [0]
    both(CONTEXT_MIB)


@pytest.mark.parametrize(("error", "mib"), [(None, 0), (201, 1)])
def test_what_a_green_context_held_counts_until_the_driver_says_that_it_is_free(
    tmp_path: Path, limiter_build: Path, container: Container, driver: SimDriver, error: int | None, mib: int
) -> None:
    """Another error of the driver's says nothing of the memory; the simulated one has freed it."""
    if error is not None:
        driver.fail("cuMemGetAddressRange", error)
    container.run(compile_program(tmp_path / "green", limiter_build, ["tests/green.c"]), str(mib))
