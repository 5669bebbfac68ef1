"""nvidia-smi: the formats that scripts read, and the texts and statuses of its failures."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from native.simkit import Child

from edgegpu_sim.driver import SimCard, SimDriver, make_card

Smi = Callable[..., tuple[int, str]]


def _smi_of(box: SimDriver, libraries: Path | None = None) -> Smi:
    def run(*args: str) -> tuple[int, str]:
        done = subprocess.run(
            [box.nvidia_smi, *args],
            env={"LD_LIBRARY_PATH": str(libraries or box.libraries)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


@pytest.fixture
def smi(box: SimDriver) -> Smi:
    return _smi_of(box)


def test_list(smi: Smi, two_cards: list[SimCard]) -> None:
    first, second = two_cards
    assert smi("-L") == (
        0,
        f"GPU 0: Tesla T4 (UUID: {first.uuid})\nGPU 1: NVIDIA A2 (UUID: {second.uuid})\n",
    )


def test_list_of_mig_instances(tmp_path: Path, simdriver_build: Path) -> None:
    card = make_card(0, "NVIDIA H100", 81920, profiles=["1g.10gb", "3g.40gb"])
    box = SimDriver.create(tmp_path / "split", [card], build=simdriver_build)
    assert _smi_of(box)("--list-gpus")[1].splitlines() == [
        f"GPU 0: NVIDIA H100 (UUID: {card.uuid})",
        f"  MIG 1g.10gb     Device  0: (UUID: {card.mig[0].uuid})",
        f"  MIG 3g.40gb     Device  1: (UUID: {card.mig[1].uuid})",
    ]


def test_query_gpu(smi: Smi, two_cards: list[SimCard], child: Callable[..., Child]) -> None:
    user = child()
    user.open_cuda()
    user.alloc(256)
    fields = "--query-gpu=index,gpu_uuid,memory.total,memory.used,utilization.gpu,temperature.gpu,fan.speed"
    first, second = (card.uuid for card in two_cards)
    assert smi(fields, "--format=csv")[1].splitlines() == [
        "index, uuid, memory.total [MiB], memory.used [MiB], utilization.gpu [%], temperature.gpu, fan.speed [%]",
        f"0, {first}, 8192 MiB, 256 MiB, 0 %, 35, [N/A]",
        f"1, {second}, 16384 MiB, 0 MiB, 0 %, 35, [N/A]",
    ]
    assert smi(fields, "--format=csv,noheader,nounits", "-i", "1")[1] == f"1, {second}, 16384, 0, 0, 35, [N/A]\n"
    assert (
        smi(fields, "--format=csv,noheader", f"--id={first}")[1] == f"0, {first}, 8192 MiB, 256 MiB, 0 %, 35, [N/A]\n"
    )


def test_every_field_of_the_help_can_be_queried(smi: Smi) -> None:
    names = re.findall(r'"([\w.]+)"', smi("--help-query-gpu")[1])
    status, out = smi(f"--query-gpu={','.join(names)}", "--format=csv,noheader", "-i", "0")
    assert status == 0
    assert len(out.split(", ")) == len(names)
    assert "Error" not in out


def test_query_compute_apps(smi: Smi, two_cards: list[SimCard], child: Callable[..., Child]) -> None:
    user = child()
    user.open_cuda(1)
    user.alloc(99)
    status, out = smi("--query-compute-apps=pid,used_memory,gpu_uuid,name", "--format=csv")
    assert status == 0
    header, row = out.splitlines()
    assert header == "pid, used_gpu_memory [MiB], gpu_uuid, process_name"
    assert row.startswith(f"{user.pid}, 99 MiB, {two_cards[1].uuid}, ")
    assert smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")[1] == f"{user.pid}, 99\n"


def test_table(smi: Smi, child: Callable[..., Child]) -> None:
    assert "No running processes found" in smi()[1]
    user = child()
    user.open_cuda()
    user.alloc(300)
    status, out = smi()
    assert status == 0
    assert re.search(r"Driver Version: 560\.35\.03 +CUDA Version: 12\.6 ", out)
    assert re.search(r"\| +300MiB / +8192MiB \|", out)
    assert re.search(rf"\| +0 +N/A +N/A +{user.pid} +C +\S+ +300MiB \|", out)
    boxed = [line for line in out.splitlines() if line.startswith(("|", "+"))]
    assert {len(line) for line in boxed} == {91}


def test_table_with_mig_instances(tmp_path: Path, simdriver_build: Path) -> None:
    card = make_card(0, "NVIDIA H100", 81920, profiles=["1g.10gb"])
    box = SimDriver.create(tmp_path / "split", [card], build=simdriver_build)
    status, out = _smi_of(box)()
    assert status == 0
    assert "MIG devices:" in out
    assert {len(line) for line in out.splitlines() if line.startswith(("|", "+"))} == {91}


def test_version(smi: Smi) -> None:
    assert smi("--version") == (
        0,
        (
            "NVIDIA-SMI version  : 560.35.03\nNVML version        : 560.35\n"
            "DRIVER version      : 560.35.03\nCUDA Version        : 12.6\n"
        ),
    )
    assert smi("--help")[0] == 0


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        (["--query-gpu=index,colour", "--format=csv"], 2, 'Field "colour" is not a valid field to query.'),
        (["--query-compute-apps=colour", "--format=csv"], 2, 'Field "colour" is not a valid field to query.'),
        (["--query-gpu=index"], 2, '"--format=" switch is missing.'),
        (["--format=csv"], 2, "Invalid combination of input arguments."),
        (["--nonsense"], 2, "Invalid combination of input arguments."),
        (["-L", "-i", "9"], 6, "No devices were found"),
    ],
)
def test_refusals(smi: Smi, args: list[str], status: int, text: str) -> None:
    got, out = smi(*args)
    assert (got, out.startswith(text)) == (status, True)


def test_no_driver_and_no_library(box: SimDriver, smi: Smi, tmp_path: Path) -> None:
    box.unload()
    assert smi()[0] == 9
    assert "couldn't communicate with the NVIDIA driver" in smi("-L")[1]
    status, out = _smi_of(box, tmp_path)()
    assert status == 12
    assert out.startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")


def test_other_failures_of_the_start(box: SimDriver, smi: Smi) -> None:
    box.fail("nvmlInit", 18)
    assert smi() == (18, "Failed to initialize NVML: Driver/library version mismatch\n")
    box.fail("nvmlInit", 999)
    assert smi() == (255, "Failed to initialize NVML: Unknown Error\n")


def test_a_lost_card(box: SimDriver, smi: Smi, two_cards: list[SimCard]) -> None:
    box.vanish(two_cards[1].uuid)
    status, out = smi()
    assert status == 15
    assert "GPU1: GPU is lost.  Reboot the system to recover this GPU" in out
