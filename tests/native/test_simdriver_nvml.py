"""NVML as nvidia-ml-py sees it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, SimVersions, make_card

DEV = ["dev", 0]
PRIVATE_TABLES = """
import ctypes, random
nvml, table, word = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.sizeof(ctypes.c_size_t)
for _ in range(3):
    print(nvml.nvmlInternalGetExportTable(ctypes.byref(table), random.randbytes(16)))
    count = ctypes.c_size_t.from_address(table.value).value // word - 1
    functions = (ctypes.c_void_p * count).from_address(table.value + word)
    print(count > 100, {ctypes.CFUNCTYPE(ctypes.c_int)(function)() for function in functions})
print(nvml.nvmlInternalGetExportTable(ctypes.byref(table), None), nvml.nvmlInternalGetExportTable(None, bytes(16)))
"""
NOT_SUPPORTED, INVALID_ARGUMENT = 3, 2


@pytest.fixture
def nvml(child: Callable[..., Child]) -> Child:
    process = child()
    process.call("nvmlInit")
    return process


def test_versions(nvml: Child) -> None:
    assert nvml.call("nvmlSystemGetDriverVersion") == "560.35.03"
    assert nvml.call("nvmlSystemGetNVMLVersion") == "12.560.35.03"
    assert nvml.call("nvmlSystemGetCudaDriverVersion_v2") == 12060


def test_what_a_card_is(nvml: Child, two_cards: list[SimCard]) -> None:
    assert nvml.call("nvmlDeviceGetCount") == 2
    for index, card in enumerate(two_cards):
        dev = ["dev", index]
        assert nvml.call("nvmlDeviceGetName", dev) == card.name
        assert nvml.call("nvmlDeviceGetUUID", dev) == card.uuid
        assert nvml.call("nvmlDeviceGetIndex", dev) == index
        assert nvml.call("nvmlDeviceGetMinorNumber", dev) == card.minor
        assert nvml.call("nvmlDeviceGetPciInfo", dev)["busId"] == card.pci
        assert nvml.call("nvmlDeviceGetMemoryInfo", dev)["total"] == card.mib << 20
    assert nvml.call("nvmlDeviceGetCudaComputeCapability", ["dev", 1]) == [8, 6]
    assert nvml.call("nvmlDeviceGetArchitecture", DEV) == 6
    assert nvml.call("nvmlDeviceGetArchitecture", ["dev", 1]) == 7


def test_handles(nvml: Child, two_cards: list[SimCard]) -> None:
    second = two_cards[1]
    assert nvml.call("nvmlDeviceGetIndex", ["uuid", second.uuid]) == 1
    assert nvml.code("nvmlDeviceGetHandleByPciBusId", second.pci) == 0
    assert nvml.code("nvmlDeviceGetHandleByPciBusId", "0000:02:00.0") == 0
    assert nvml.code("nvmlDeviceGetHandleByPciBusId", "0000:77:00.0") == 6
    assert nvml.code("nvmlDeviceGetHandleByUUID", "GPU-nowhere") == 6
    assert nvml.code("nvmlDeviceGetHandleByIndex", 2) == 2


def test_gauges(nvml: Child, box: SimDriver, two_cards: list[SimCard]) -> None:
    box.temperature(two_cards[0].uuid, 83)
    box.utilisation(two_cards[0].uuid, 64)
    assert nvml.call("nvmlDeviceGetTemperature", DEV, 0) == 83
    assert nvml.call("nvmlDeviceGetTemperatureV", DEV, 0) == 83
    assert nvml.call("nvmlDeviceGetUtilizationRates", DEV) == {"gpu": 64, "memory": 32}
    assert nvml.call("nvmlDeviceGetTemperature", ["dev", 1], 0) == 35
    assert nvml.call("nvmlDeviceGetPowerUsage", DEV) < nvml.call("nvmlDeviceGetEnforcedPowerLimit", DEV)
    assert nvml.call("nvmlDeviceGetPersistenceMode", DEV) == 1
    assert nvml.call("nvmlDeviceGetComputeMode", DEV) == 0


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetFanSpeed", "nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode", "nvmlDeviceGetSerial"]
)
def test_what_such_a_card_lacks(nvml: Child, call: str) -> None:
    assert nvml.code(call, DEV) == 3


def test_reserved_memory_counts_as_used_only_in_the_first_version(
    box: SimDriver, two_cards: list[SimCard], simdriver_build: Path, child: Callable[..., Child]
) -> None:
    SimDriver.create(box.root, two_cards, build=simdriver_build, versions=SimVersions(reserved_mib=400))
    process = child()
    process.call("nvmlInit")
    assert process.call("nvmlDeviceGetMemoryInfo", DEV)["used"] == 400 << 20
    second = process.call("nvmlDeviceGetMemoryInfo", DEV, 0x02000028)
    assert (second["used"], second["reserved"]) == (0, 400 << 20)
    assert second["free"] == (8192 - 400) << 20


def test_calls_before_init_and_after_shutdown_are_refused(child: Callable[..., Child]) -> None:
    process = child()
    process.call("nvmlInit")
    process.call("nvmlInit")
    process.call("nvmlShutdown")
    assert process.call("nvmlDeviceGetCount") == 2
    process.call("nvmlShutdown")
    assert process.code("nvmlDeviceGetCount") == 1
    process.call("nvmlInit")
    assert process.call("nvmlDeviceGetCount") == 2


def test_pci_order_whatever_the_order_in_the_file(
    tmp_path: Path, simdriver_build: Path, two_cards: list[SimCard], child: Callable[..., Child]
) -> None:
    box = SimDriver.create(tmp_path / "other", two_cards[::-1], build=simdriver_build)
    process = child(box.libraries)
    process.call("nvmlInit")
    assert process.call("nvmlDeviceGetUUID", DEV) == two_cards[0].uuid


def test_new_cards_show_after_a_new_init(
    box: SimDriver, two_cards: list[SimCard], simdriver_build: Path, nvml: Child
) -> None:
    SimDriver.create(box.root, [*two_cards, make_card(2, "Tesla T4", 8192)], build=simdriver_build)
    assert nvml.call("nvmlDeviceGetCount") == 2
    nvml.call("nvmlShutdown")
    nvml.call("nvmlInit")
    assert nvml.call("nvmlDeviceGetCount") == 3


def test_a_private_table_of_any_id_refuses(box: SimDriver) -> None:
    """What NVIDIA's nvidia-smi asks for before anything else; tests/driver runs that program."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(box.libraries)}
    printed = subprocess.check_output([sys.executable, "-c", PRIVATE_TABLES], text=True, env=environment).splitlines()
    assert printed == ["0", f"True {{{NOT_SUPPORTED}}}"] * 3 + [f"{INVALID_ARGUMENT} {INVALID_ARGUMENT}"]
