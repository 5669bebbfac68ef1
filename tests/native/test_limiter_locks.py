"""What waits in the driver keeps no other thread of the program waiting, and what it takes or gives counts right."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from native.limiterkit import MIB, Container, make_container
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

NO_CONTEXT = 201
"""What a load says in a thread that has made none current."""
LIMIT_MIB, CONTEXT_MIB, MODULE_MIB = 1024, 100, 10

Hook = Callable[[Child], tuple[Any, ...]]


@pytest.fixture
def driver(tmp_path: Path, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    versions = SimVersions(context_mib=CONTEXT_MIB, module_mib=MODULE_MIB)
    return SimDriver.create(tmp_path / "box", two_cards, build=simdriver_build, versions=versions)


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path, driver: SimDriver, two_cards: list[SimCard]) -> Container:
    made = make_container(tmp_path / "container", limiter_build, driver.libraries)
    made.limit(*((card, LIMIT_MIB) for card in two_cards), context_mib=CONTEXT_MIB)
    return made


@pytest.fixture
def process(container: Container) -> Iterator[Child]:
    with Child(container.libraries) as child:
        child.open_cuda()
        yield child


def _context(process: Child) -> int:
    """Make a context that is not current."""
    status, context = process.call("cuCtxCreate_v2", "&ptr", 0, 0)
    assert (status, process.call("cuCtxPopCurrent_v2", "&ptr")) == (0, [0, context])
    return int(context)


def _module(process: Child) -> int:
    status, module = process.call("cuModuleLoadFatBinary", "&ptr", "image")
    assert status == 0
    return int(module)


def _of_primary(device: int, call: str) -> Hook:
    return lambda _: (call, *(["&ptr"] if call.endswith("Retain") else []), device)


def _of_own(call: str) -> Hook:
    return lambda process: (call, _context(process))


def _loads(call: str) -> Hook:
    return lambda _: (call, "&ptr", "image")


_ON_CARD = "\x01\0\0\0" + "\0" * 4 + "\x01\0\0\0" + "\0" * 20
"""CUmemAllocationProp: pinned memory of the first card."""


def _creates(_: Child) -> tuple[Any, ...]:
    return ("cuMemCreate", "&u64", 2 * MIB, _ON_CARD, 0)


def _backing(process: Child) -> int:
    status, handle = process.call(*_creates(process))
    assert status == 0
    return int(handle)


def _releases(process: Child) -> tuple[Any, ...]:
    return ("cuMemRelease", _backing(process))


def _unmaps(process: Child) -> tuple[Any, ...]:
    status, address = process.call("cuMemAddressReserve", "&u64", 2 * MIB, 0, 0, 0)
    assert (status, process.call("cuMemMap", address, 2 * MIB, 0, _backing(process), 0)) == (0, [0])
    return ("cuMemUnmap", address, 2 * MIB)


def _unloads(process: Child) -> tuple[Any, ...]:
    return ("cuModuleUnload", _module(process))


@pytest.mark.parametrize(
    ("waits", "goes_on", "after_s"),
    [
        (_of_own("cuCtxDestroy_v2"), _of_primary(0, "cuDevicePrimaryCtxRetain"), 1),
        (_of_own("cuCtxDestroy_v2"), _of_primary(1, "cuDevicePrimaryCtxReset_v2"), 1),
        (_of_own("cuCtxDestroy_v2"), _of_own("cuCtxDestroy"), 1),
        (_of_primary(0, "cuDevicePrimaryCtxReset_v2"), _of_primary(1, "cuDevicePrimaryCtxRetain"), 1),
        (_of_primary(0, "cuDevicePrimaryCtxReset_v2"), _of_own("cuCtxDestroy_v2"), 1),
        (_of_primary(1, "cuDevicePrimaryCtxRetain"), _of_own("cuCtxDestroy_v2"), 1),
        (_loads("cuModuleLoadData"), _loads("cuModuleLoadFatBinary"), 3),
        (_loads("cuModuleLoadData"), _unloads, 3),
        (_unloads, _loads("cuModuleLoadFatBinary"), 3),
        (_unmaps, _creates, 1),
        (_releases, _unmaps, 1),
        (_creates, _unmaps, 1),
    ],
)
def test_a_call_that_waits_keeps_no_other_waiting(
    process: Child,
    driver: SimDriver,
    container: Container,
    two_cards: list[SimCard],
    waits: Hook,
    goes_on: Hook,
    after_s: float,
) -> None:
    first, second = waits(process), goes_on(process)
    driver.hang(first[0])
    waiting = process.start(*first)
    time.sleep(0.2)
    began = time.monotonic()
    other = process.start(*second, thread=False)
    try:
        while not process.answered(other):
            assert time.monotonic() < began + after_s, f"{second[0]} waits for {first[0]}"
            time.sleep(0.01)
        assert not process.answered(waiting)
    finally:
        driver.clear()
    assert process.result(other)[0] == 0
    assert process.result(waiting)[0] in {0, NO_CONTEXT}
    assert container.counted() == sum(driver.used_mib(card.uuid) for card in two_cards) * MIB
