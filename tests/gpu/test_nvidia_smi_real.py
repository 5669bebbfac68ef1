"""The formats of nvidia-smi that we rely on and simulate, asked of the real one."""

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA driver: /dev/nvidiactl is missing"),
]

GPU_LINE = re.compile(r"GPU (\d+): (.+) \(UUID: (GPU-[0-9a-f-]{36})\)")
MIG_LINE = re.compile(r"  MIG (\S+) +Device +(\d+): \(UUID: (MIG-[0-9a-f-]{36})\)")


def _smi(*args: str) -> tuple[int, str]:
    done = subprocess.run(["nvidia-smi", *args], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


def test_list_has_a_line_per_card_and_per_instance() -> None:
    status, out = _smi("-L")
    assert status == 0
    lines = out.splitlines()
    assert GPU_LINE.fullmatch(lines[0])
    assert [line for line in lines if not GPU_LINE.fullmatch(line) and not MIG_LINE.fullmatch(line)] == []


def test_query_gpu_says_the_same_as_the_list() -> None:
    uuids = [match[3] for match in map(GPU_LINE.fullmatch, _smi("-L")[1].splitlines()) if match]
    status, out = _smi("--query-gpu=index,gpu_uuid,memory.total,pci.bus_id", "--format=csv")
    header, *rows = out.splitlines()
    assert (status, header) == (0, "index, uuid, memory.total [MiB], pci.bus_id")
    for index, (row, uuid) in enumerate(zip(rows, uuids, strict=True)):
        assert re.fullmatch(rf"{index}, {uuid}, \d+ MiB, [0-9A-F]{{8}}:[0-9A-F]{{2}}:[0-9A-F]{{2}}\.0", row)


def test_query_without_header_and_units() -> None:
    status, out = _smi("--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits", "-i", "0")
    assert status == 0
    assert re.fullmatch(r"\d+, \d+\n", out)


def test_query_compute_apps_has_its_header() -> None:
    status, out = _smi("--query-compute-apps=pid,used_memory,gpu_uuid,name", "--format=csv")
    assert (status, out.splitlines()[0]) == (0, "pid, used_gpu_memory [MiB], gpu_uuid, process_name")


def test_refusals() -> None:
    assert _smi("--query-gpu=colour", "--format=csv") == (2, 'Field "colour" is not a valid field to query.\n\n')
    status, out = _smi("--query-gpu=index,uuid", "--format=csv", "-i", "99")
    assert (status, out.splitlines()[0]) == (6, "No devices were found")
