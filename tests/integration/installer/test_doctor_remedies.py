"""Each remedy of the doctor that is a command, run as it stands on a box that was harmed: its check is green then.

Those of the checks of the cloud are run in test_doctor_cloud.py, over a real agent; some are run on booted boxes too
(tests/box/harms.py). Where the remedy is a sentence, the test does what it says.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.transactionkit import Bed, install
from kits.doctor import FOLDER, SCHEDULER, VERSION, Box
from kits.doctorharms import CONFIG, HARMS, TOML
from kits.doctorserver import CONTAINERD, NOW
from kits.remedies import Effects, Repairs

from edgegpu_agent.cli.clients.doctor import BoxClients
from edgegpu_installer.doctor.checks import CHECKS, run_checks
from edgegpu_installer.doctor.probe import BoxProbe
from edgegpu_installer.doctor.verdict import CheckLevel, CheckResult
from edgegpu_installer.transaction.transaction import resume

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def repairs(box: Box) -> Repairs:
    return Repairs(box, ROOT)


@pytest.mark.parametrize(
    ("check", "harm"),
    [
        pytest.param(check, harm, id=f"{check}-{harm.__name__.replace('_', '-')}")
        for check, harms in HARMS.items()
        for harm in harms
    ],
)
def test_the_remedy_turns_the_check_green(
    box: Box, repairs: Repairs, check: str, harm: Callable[[Box], Effects | None]
) -> None:
    repairs.mend(check, harm(box) or {})


def test_a_clock_that_lost_its_battery_is_set_by_the_remedy(box: Box, repairs: Repairs) -> None:
    box.now = dt.datetime(1970, 1, 1, 0, 5, tzinfo=dt.UTC)
    (trouble,) = [one for one in box.see("clock").problems if "1970" in one.text]
    calls = repairs.paste(
        trouble.remedy.replace("YYYY-MM-DD HH:MM", f"{NOW:%Y-%m-%d %H:%M}"),
        {"date -s 2026-11-21 12:00": lambda: setattr(box, "now", NOW)},
    )
    assert calls[-1] == "hwclock -w"
    assert box.see("clock").level is CheckLevel.OK


def test_an_edited_and_a_removed_file_are_written_anew_by_the_remedy(box: Box, repairs: Repairs) -> None:
    repairs.install()
    paths = (SCHEDULER, "/etc/systemd/system/edgegpu-recover.service")
    box.record_baseline(paths)
    assert box.see("files").level is CheckLevel.OK
    box.at(paths[0]).write_text(box.at(paths[0]).read_text() + "# mine\n")
    box.at(paths[1]).unlink()
    assert repairs.mend("files", {}) == ["edgegpu install"]


def look(bed: Bed, name: str) -> CheckResult:
    """Run one check on the machine of a transaction."""
    (check,) = [one for one in CHECKS if one.name == name]
    now = dt.datetime.now(dt.UTC)
    probe = BoxProbe(root=bed.root, clients=BoxClients(bed.root), path="/usr/bin:/bin", now=lambda: now)
    (result,) = run_checks([check], probe)
    return result.verdict


@pytest.mark.parametrize("step", ["after-SWAPPED", "before-restart", "before-verify"])
def test_an_unfinished_change_is_finished_by_the_remedy(tmp_path: Path, step: str) -> None:
    """`edgegpu transaction resume` calls `resume`; where that puts all back, the installation is the next remedy."""
    bed = Bed(tmp_path / "root")
    (bed.root / "proc").symlink_to("/proc")
    bed.die_at(step, install())
    (trouble,) = look(bed, "transaction").problems
    assert (trouble.level, trouble.remedy) == (CheckLevel.BROKEN, "sudo edgegpu transaction resume")
    resume(bed.machine(), verify=lambda _: None)
    verdict = look(bed, "transaction")
    if verdict.level is not CheckLevel.OK:
        assert [one.remedy.partition("  #")[0] for one in verdict.problems] == ["sudo edgegpu install"]
        bed.run(install())
    assert look(bed, "transaction").level is CheckLevel.OK


def a_unit_that_waits(box: Box) -> Callable[[], object]:
    box.status["unit_wanted_mib"] = 512
    return lambda: box.status.pop("unit_wanted_mib")  # set back, and the plugin restarted


def an_image_of_every_card(box: Box) -> Callable[[], object]:
    box.write(
        TOML, CONTAINERD + "[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'nvidia'\n"
    )
    return lambda: box.write(TOML, CONTAINERD)


def a_folder_that_containerd_does_not_read(box: Box) -> Callable[[], object]:
    box.write(TOML, CONTAINERD.replace(', "/var/run/cdi"', ""))

    def set_folder() -> None:
        box.configure(driver={"cdi_folder": "/etc/cdi"})

    return set_folder


def cdi_off(box: Box) -> Callable[[], object]:
    box.write(TOML, CONTAINERD.replace("enable_cdi = true", "enable_cdi = false"))
    return lambda: box.status.update(injection={"mode": "devices"})  # driver.injection is out, the plugin restarted


def no_containerd_file(box: Box) -> Callable[[], object]:
    box.at(TOML).unlink()

    def set_file() -> None:
        box.write("/etc/containerd/site.toml", CONTAINERD)
        box.configure(driver={"containerd_config": "/etc/containerd/site.toml"})

    return set_file


def another_device_plugin(box: Box) -> Callable[[], object]:
    box.node(**{"nvidia.com/gpu": "2"})
    return box.node


def a_bad_file_of_k3s(box: Box) -> Callable[[], object]:
    box.write(CONFIG, "disable: [")
    return lambda: box.write(CONFIG, "disable: []\n")


def no_library(box: Box) -> Callable[[], object]:
    box.at(f"{FOLDER}/libnvidia-ml.so.1").unlink()
    other = "/opt/driver"

    def set_root() -> None:
        box.write(f"{other}/{FOLDER}/libnvidia-ml.so.{VERSION}", "")
        box.at(f"{other}/{FOLDER}/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{VERSION}")
        box.configure(driver={"root": other})

    return set_root


def files_of_hami(box: Box) -> Callable[[], object]:
    library = box.write("/usr/local/vgpu/libvgpu.so", "")

    def uninstalled() -> None:
        library.unlink()
        library.parent.rmdir()

    return uninstalled


@pytest.mark.parametrize(
    ("check", "harm", "words"),
    [
        ("plugin", a_unit_that_waits, "set resources.unit_mib back to 256"),
        ("runtime", an_image_of_every_card, "remove default-runtime from /etc/rancher/k3s/config.yaml"),
        (
            "runtime",
            a_folder_that_containerd_does_not_read,
            "set driver.cdi_folder in /etc/edgegpu/plugin.yaml to one of",
        ),
        ("runtime", cdi_off, "take driver.injection out of /etc/edgegpu/plugin.yaml"),
        ("runtime", no_containerd_file, "set driver.containerd_config in /etc/edgegpu/plugin.yaml"),
        ("double", another_device_plugin, "DaemonSet"),
        ("k3s", a_bad_file_of_k3s, "sudoedit that file"),
        ("driver", no_library, "or set driver.root"),
        ("leftovers", files_of_hami, "uninstall HAMi first; only then remove /usr/local/vgpu"),
    ],
)
def test_what_a_sentence_says_turns_the_check_green(
    box: Box, check: str, harm: Callable[[Box], Callable[[], object]], words: str
) -> None:
    do = harm(box)
    verdict = box.see(check)
    assert verdict.level.rank
    assert [one for one in verdict.problems if words in one.remedy], verdict
    do()
    verdict = box.see(check)
    assert not verdict.level.rank, verdict
