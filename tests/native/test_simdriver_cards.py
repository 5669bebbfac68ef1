"""The driver root: how it is laid out and changed, and what a bad cards file does."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native.simkit import Child

from edgegpu_sim.cards import cards_text
from edgegpu_sim.driver import SimCard, SimDriver, SimDriverError, SimVersions, main, make_card

CARDS = Path("var/lib/nvidia-sim/cards")
STATE = Path("var/lib/nvidia-sim/state")


def _files(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): path.lstat().st_ino for path in root.rglob("*")}


def test_files_are_laid_out_as_a_real_driver_has_them(box: SimDriver) -> None:
    for name in ("libnvidia-ml.so", "libcuda.so"):
        assert (box.libraries / f"{name}.1").readlink() == Path(f"{name}.560.35.03")
        assert (box.libraries / f"{name}.560.35.03").is_file()
    devices = {path.name for path in (box.root / "dev").iterdir()}
    assert devices == {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps"}
    assert (box.root / STATE).stat().st_mode & 0o777 == 0o666


def test_create_again_changes_nothing(box: SimDriver, two_cards: list[SimCard], simdriver_build: Path) -> None:
    before = _files(box.root)
    SimDriver.create(box.root, two_cards, build=simdriver_build)
    assert _files(box.root) == before


def test_another_set_of_cards(
    box: SimDriver, two_cards: list[SimCard], simdriver_build: Path, child: Callable[..., Child]
) -> None:
    user = child()
    user.open_cuda()
    user.alloc(40)
    split = make_card(4, "NVIDIA A30", 24576, profiles=["1g.6gb"])
    SimDriver.create(box.root, [two_cards[0], split], build=simdriver_build)
    devices = {path.name for path in (box.root / "dev").iterdir()}
    assert {"nvidia0", "nvidia4"} <= devices
    assert "nvidia1" not in devices
    assert (box.root / f"dev/nvidia-caps/nvidia-cap{split.mig[0].caps[1]}").exists()
    assert box.used_mib(two_cards[0].uuid) == 40
    minors = (box.root / "proc/driver/nvidia-caps/mig-minors").read_text()
    assert f"gpu4/gi1/access {split.mig[0].caps[0]}\n" in minors


def test_a_driver_upgrade_replaces_the_files(
    box: SimDriver, two_cards: list[SimCard], simdriver_build: Path, child: Callable[..., Child]
) -> None:
    SimDriver.create(box.root, two_cards, build=simdriver_build, versions=SimVersions("575.57.08", "12.9"))
    names = sorted(path.name for path in box.libraries.iterdir())
    libraries = [("libGLX_nvidia.so", "0"), ("libcuda.so", "1"), ("libnvidia-ml.so", "1")]
    assert names == [f"{name}.{number}" for name, major in libraries for number in (major, "575.57.08")]
    process = child()
    process.call("nvmlInit")
    assert process.call("nvmlSystemGetDriverVersion") == "575.57.08"
    assert process.call("cuDriverGetVersion", "&int") == [0, 12090]


@pytest.mark.parametrize(
    "line",
    [
        "colour green",
        "cuda twelve",
        "card uuid=GPU-x",
        'card uuid=GPU-x name="open mib=1 pci=0:1:0.0 minor=0',
        "card uuid=GPU-x name=a mib=1 pci=0:1:0.0 minor=0 colour=green",
        "card uuid=GPU-x name=a mib=-1 pci=0:1:0.0 minor=0",
        "mig card=GPU-none uuid=MIG-x profile=1g.5gb mib=5 caps=3,4",
        "card uuid=GPU-x name=a mib=1 pci=0:9:0.0 minor=0",
        "x" * 2000,
    ],
)
def test_a_bad_line_fails_init_and_is_named(box: SimDriver, line: str) -> None:
    cards = box.root / CARDS
    cards.write_text(f"{cards.read_text()}# fine\n\n{line}\n")
    number = len(cards.read_text().splitlines())
    code = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as error: print(error.value)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"LD_LIBRARY_PATH": str(box.libraries)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "999\n"
    assert f"{cards}:{number}: bad line" in done.stderr
    with pytest.raises(SimDriverError, match=f"cards:{number}: bad line"):
        box.clear()


def test_create_refuses_cards_that_make_no_sense(
    tmp_path: Path, two_cards: list[SimCard], simdriver_build: Path
) -> None:
    with pytest.raises(SimDriverError, match="twice"):
        SimDriver.create(tmp_path, [two_cards[0], two_cards[0]], build=simdriver_build)
    with pytest.raises(SimDriverError, match="nothing is built"):
        SimDriver.create(tmp_path, two_cards, build=tmp_path)
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    with pytest.raises(SimDriverError, match="real NVIDIA driver"):
        SimDriver.create(tmp_path, two_cards, build=simdriver_build)


def test_faults_need_a_card_that_is_there(box: SimDriver) -> None:
    with pytest.raises(SimDriverError, match="no such card"):
        box.xid("GPU-nowhere", 79)
    for number in range(16):
        box.hang(f"nvmlNothing{number}")
    box.hang("nvmlNothing3")
    with pytest.raises(SimDriverError, match="too many"):
        box.hang("nvmlMore")


def test_a_state_of_another_version_is_made_anew(
    box: SimDriver, two_cards: list[SimCard], simdriver_build: Path, child: Callable[..., Child]
) -> None:
    (box.root / STATE).write_bytes(b"old")
    assert child().code("nvmlInit") == 999
    SimDriver.create(box.root, two_cards, build=simdriver_build)
    assert child().code("nvmlInit") == 0


def test_text_of_a_card() -> None:
    card = make_card(0, "NVIDIA A100", 40960, profiles=["3g.20gb"])
    text = cards_text([card], SimVersions())
    assert f'card uuid={card.uuid} mib=40960 pci=00000000:01:00.0 minor=0 cc=8.0 name="NVIDIA A100"\n' in text
    assert f"mig card={card.uuid} uuid={card.mig[0].uuid} profile=3g.20gb mib=20480 gi=1 ci=0 caps=3,4\n" in text
    with pytest.raises(ValueError, match="MIG profile"):
        make_card(0, "x", 1, profiles=["big"])


def test_the_command_line(tmp_path: Path, simdriver_build: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, build = str(tmp_path / "box"), str(simdriver_build)
    assert main(["create", root, "--build", build, "--card", "Tesla T4:15360", "--card", "A100:40960:1g.5gb"]) == 0
    uuids = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert len(uuids) == 2
    for command in (
        ["xid", root, uuids[0], "79"],
        ["vanish", root, uuids[0]],
        ["restore", root, uuids[0]],
        ["temperature", root, uuids[0], "70"],
        ["utilisation", root, uuids[0], "7"],
        ["hang", root, "nvmlInit"],
        ["fail", root, "nvmlInit", "9"],
        ["unload", root],
        ["load", root],
        ["clear", root],
        ["used", root, uuids[0]],
    ):
        assert main(command) == 0
    assert capsys.readouterr().out == "0\n"
    assert main(["vanish", root, "GPU-nowhere"]) == 1
    assert "no such card" in capsys.readouterr().err
    assert main(["create", root, "--build", build, "--card", "nonsense"]) == 1
