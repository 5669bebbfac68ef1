"""cuGetProcAddress: each version and kind of default stream gets its own variant, NVIDIA's runtimes too."""

from collections.abc import Callable
from pathlib import Path

import pytest
from native import cudart
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions

LEGACY, PER_THREAD = 1, 2
FOUND, NOT_FOUND, VERSION_TOO_LOW = 0, 1, 2
ASKED = {"11": 384, "12": 418, "13": 480}
UNLISTED = {"cuSubgridCreate", "cuSubgridWorkerGridCreate", "cuSubgridWorksetCreate"}  # CUDA 13.5's headers lack them
NOT_SUPPORTED = 801


@pytest.fixture
def newest(box: SimDriver, two_cards: list[SimCard], simdriver_build: Path) -> SimDriver:
    return SimDriver.create(box.root, two_cards, build=simdriver_build, versions=SimVersions(cuda="13.5"))


@pytest.fixture
def user(newest: SimDriver, child: Callable[..., Child]) -> Child:
    return child(newest.libraries)


def _symbol(user: Child, name: str, version: int, flags: int = 0) -> str | None:
    status, found = user.call("cuGetProcAddress_v2", name, "&symbol", version, flags, "&int")[:2]
    assert status == 0
    return None if found is None else str(found)


@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 3010, 0, "cuMemAlloc"),
        ("cuMemAlloc", 11020, 0, "cuMemAlloc_v2"),
        ("cuCtxCreate", 11020, 0, "cuCtxCreate_v2"),
        ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12000, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
        ("cuCtxSynchronize", 12080, 0, "cuCtxSynchronize"),
        ("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
        ("cuDeviceGetUuid", 11020, 0, "cuDeviceGetUuid"),
        ("cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"),
        ("cuLaunchKernel", 11020, LEGACY, "cuLaunchKernel"),
        ("cuLaunchKernel", 11020, PER_THREAD, "cuLaunchKernel_ptsz"),
        ("cuMemcpyHtoD", 13000, PER_THREAD, "cuMemcpyHtoD_v2_ptds"),
        ("cuMemcpyHtoD", 6050, PER_THREAD, "cuMemcpyHtoD_v2"),
        ("cuMemAlloc", 13000, PER_THREAD, "cuMemAlloc_v2"),
        ("cuMemPrefetchAsync", 12010, PER_THREAD, "cuMemPrefetchAsync_ptsz"),
        ("cuMemPrefetchAsync", 12020, PER_THREAD, "cuMemPrefetchAsync_v2_ptsz"),
    ],
)
def test_the_variant_of_a_version(user: Child, name: str, version: int, flags: int, symbol: str) -> None:
    assert _symbol(user, name, version, flags) == symbol


def test_every_function_is_found_at_the_version_that_first_has_it(user: Child) -> None:
    wrong = {}
    for function in cudart.functions():
        found = _symbol(user, function.base, function.since, PER_THREAD if function.per_thread else LEGACY)
        if found != function.symbol:
            wrong[function.symbol] = found
    assert wrong == {}


def test_what_is_not_there(user: Child) -> None:
    lookup = "cuGetProcAddress_v2"
    assert user.call(lookup, "cuNothing", "&ptr", 12000, 0, "&int") == [0, None, NOT_FOUND]
    assert user.call(lookup, "cuMemAlloc_v2", "&ptr", 12000, 0, "&int") == [0, None, NOT_FOUND]
    assert user.call(lookup, "cuMemAllocAsync", "&ptr", 11010, 0, "&int") == [0, None, VERSION_TOO_LOW]
    assert user.call(lookup, "cuMemAlloc", "&ptr", 13060, 0, "&int")[0] == 1, "newer than the driver"
    assert user.call(lookup, "cuMemAlloc", "&ptr", 12000, 3, "&int")[0] == 1, "no such flag"
    assert user.call(lookup, "cuMemAlloc", 0, 12000, 0, "&int")[0] == 1
    assert user.call("cuGetProcAddress", "cuNothing", "&ptr", 12000, 0) == [500, None]
    assert user.call("cuGetProcAddress", "cuMemAllocAsync", "&ptr", 11010, 0) == [500, None]


def test_a_caller_of_cuda_11_gives_no_place_for_a_status(user: Child) -> None:
    """Until now it got cuGetProcAddress_v2, which writes a status to where its fifth argument would point."""
    status, address = user.call("cuGetProcAddress", "cuGetProcAddress", "&ptr", 11030, 0)
    assert status == 0
    assert address == user.call("cuGetProcAddress_v2", "cuGetProcAddress", "&ptr", 11080, 0, "&int")[1]
    assert address != user.call("cuGetProcAddress_v2", "cuGetProcAddress", "&ptr", 12000, 0, "&int")[1]


def test_what_is_not_simulated_says_so(user: Child) -> None:
    assert user.call("cuCoredumpGetAttribute", 1, 0, 0) == [3]
    user.open_cuda()
    assert user.call("cuCoredumpGetAttribute", 1, 0, 0) == [NOT_SUPPORTED]


def test_the_list_is_in_order_and_has_no_symbol_twice() -> None:
    listed = [(one.base, one.symbol.split("_v")[-1]) for one in cudart.functions()]
    assert [base for base, _ in listed] == sorted(base for base, _ in listed)
    symbols = [one.symbol for one in cudart.functions()]
    assert len(symbols) == len(set(symbols)) == 724


def _check(requests: list[cudart.Request], major: str) -> None:
    """The runtimes ask for the very version that brought the variant that they were built with."""
    variants = {(one.base, one.since, one.per_thread): one.symbol for one in cudart.functions()}
    asked = [one for one in requests if one.name != "-"]
    assert len(asked) == ASKED[major]
    wrong = [
        one
        for one in asked
        if one.symbol != variants.get((one.name, one.version, one.flags == PER_THREAD), "-")
        or (one.symbol == "-") != (one.name in UNLISTED)
    ]
    assert wrong == []


@pytest.mark.skipif(not cudart.HAVE_CUDART, reason="NVIDIA's runtime wheels are for Linux on x86_64")
@pytest.mark.parametrize("major", ["11", "12", "13"])
def test_the_shared_runtime_gets_what_it_asks_for(newest: SimDriver, tmp_path: Path, major: str) -> None:
    program = cudart.shared_program(cudart.SHARED[major])
    status, requests = cudart.requests_of(program, newest.libraries, tmp_path)
    _check(requests, major)
    assert status == NOT_SUPPORTED, "what the runtime gets from the stubs of the export tables"


@pytest.mark.skipif(not cudart.HAVE_CUDART, reason="NVIDIA's runtime wheels are for Linux on x86_64")
@pytest.mark.parametrize("major", ["12", "13"])
def test_the_static_runtime_gets_what_it_asks_for(newest: SimDriver, tmp_path: Path, major: str) -> None:
    program = cudart.static_program(tmp_path, cudart.STATIC[major])
    status, requests = cudart.requests_of([program], newest.libraries, tmp_path)
    _check(requests, major)
    assert status == NOT_SUPPORTED
