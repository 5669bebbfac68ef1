"""The doctor's checks of the machine: green on a healthy box, red where it is harmed."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.cli import CARD_0, CARD_1, card, pod
from kits.doctor import FOLDER, SMI, Box

from edgegpu_installer.doctor.checks import CHECKS, run_checks
from edgegpu_installer.doctor.probe import FileSystemSpace
from edgegpu_installer.doctor.verdict import CheckLevel
from edgegpu_plugin.containers.held.reasons import UNWRITABLE
from edgegpu_sim.driver import SimDriver, make_card

if TYPE_CHECKING:
    from pathlib import Path

ROOM = FileSystemSpace(free_bytes=10 << 30, free_share=0.5, free_inodes_share=0.5, read_only=False)


def test_a_healthy_box_has_no_trouble(box: Box) -> None:
    verdicts = {result.check.name: result.verdict for result in run_checks(CHECKS, box.sight())}
    assert not {name: one for name, one in verdicts.items() if one.level.rank or one.problems}
    assert {name for name, one in verdicts.items() if one.level is CheckLevel.SKIPPED} == {"cloud", "enrolment", "link"}
    assert verdicts.keys() == {check.name for check in CHECKS}


def test_a_driver_upgraded_without_a_reboot(box: Box) -> None:
    box.at(f"{FOLDER}/libnvidia-ml.so.1").unlink()
    box.write(f"{FOLDER}/libnvidia-ml.so.570.10", "")
    box.at(f"{FOLDER}/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.570.10")
    box.program("nvidia-smi", "echo Failed to initialize NVML: Driver/library version mismatch; exit 18")
    box.expect("driver", CheckLevel.BROKEN, "kernel module 560.35.03, library 570.10", "sudo reboot")
    box.expect("driver", CheckLevel.BROKEN, "version mismatch", "sudo reboot")


def test_a_module_that_is_not_loaded(box: Box) -> None:
    box.at("/proc/driver/nvidia/version").unlink()
    box.program("nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    box.expect("driver", CheckLevel.BROKEN, "(560.35.03) is installed, its kernel", "sudo modprobe nvidia")
    assert len(box.see("driver").problems) == 1
    box.program("nvidia-smi", "echo Unknown Error; exit 255")
    box.expect("driver", CheckLevel.BROKEN, "nvidia-smi fails: Unknown Error", "dmesg")


def put_card(box: Box, address: str, *, driver: str = "") -> None:
    """Put a card on the PCI bus, which a driver of the kernel has."""
    folder = f"/sys/bus/pci/devices/{address}"
    box.write(f"{folder}/vendor", "0x10de\n")
    box.write(f"{folder}/class", "0x030000\n")
    if driver:
        box.at(f"{folder}/driver").symlink_to(f"../../../bus/pci/drivers/{driver}")


def test_a_card_that_another_driver_holds_beside_one_that_works(box: Box) -> None:
    put_card(box, "0000:09:00.0", driver="nouveau")
    box.expect("cards", CheckLevel.WARNING, "card at 0000:09:00.0 is on the bus", "look for nouveau in /etc/modprobe.d")
    put_card(box, "0000:0a:00.0", driver="nvidia")
    box.expect("cards", CheckLevel.WARNING, "0000:0a:00.0 is on the bus", "RmInitAdapter failed")


def test_a_card_that_does_not_initialise_beside_those_that_do(box: Box) -> None:
    put_card(box, "0000:0a:00.0", driver="nvidia")
    broken = "echo 'Unable to determine the device handle for GPU2'; exit 15"
    box.program("nvidia-smi", f"case $1 in *driver*) echo 560.35.03 ;; *) printf '%s' '{SMI}'; {broken} ;; esac")
    box.expect("cards", CheckLevel.WARNING, "0000:0a:00.0 is on the bus", "RmInitAdapter failed")


def test_a_card_in_mig_mode_without_instances(box: Box) -> None:
    box.smi(SMI.replace("Disabled", "Enabled", 1))
    box.status["cards"] = box.status["cards"][1:]
    box.expect("cards", CheckLevel.WARNING, "card 0 is in MIG mode and has no instances", "mig -i 0 -cgi")


def test_a_card_whose_errors_nobody_watches(box: Box) -> None:
    box.status["cards"][0]["watched"] = False
    box.expect("cards", CheckLevel.WARNING, "card 0: its health is not watched", "install the whole driver")


def test_a_card_that_is_out_until_a_reset(box: Box) -> None:
    box.status["cards"][0] |= {"healthy": False, "problem": "XID 95, uncontained memory error: out until a reset of it"}
    box.expect("cards", CheckLevel.WARNING, "XID 95, uncontained memory error", "sudo edgegpu card release 0")


KERNEL = "6.1.0-50-amd64"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
SIGNATURE = "~Module signature appended~\n"


def unloaded(box: Box, kernel: str = KERNEL) -> str:
    """Leave the driver installed and not loaded; return the folder of the running kernel's modules."""
    box.at("/proc/driver/nvidia/version").unlink()
    box.program("nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    box.write("/proc/sys/kernel/osrelease", f"{kernel}\n")
    box.write(f"/lib/modules/{kernel}/modules.dep", "")
    return f"/lib/modules/{kernel}"


@pytest.mark.parametrize(
    ("on", "tail", "says"),
    [
        ("\1", "", "has no signature, and Secure Boot is on"),
        ("\1", SIGNATURE, "Secure Boot is on, and may not know the key"),
        ("\0", "", "its kernel module is not loaded"),
    ],
)
def test_secure_boot(box: Box, on: str, tail: str, says: str) -> None:
    folder = unloaded(box)
    box.write(f"{folder}/modules.dep", "updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko\n")
    box.write(f"{folder}/updates/dkms/nvidia-uvm.ko", f"ELF{tail}")
    box.write(SECURE_BOOT, f"\6\0\0\0{on}")
    found = box.see("driver").problems
    assert [says in problem.text for problem in found] == [True]


def test_a_kernel_that_is_newer_than_the_module(box: Box) -> None:
    folder = unloaded(box)
    box.write("/lib/modules/5.10.0-1-amd64/modules.dep", "updates/dkms/nvidia-uvm.ko:\n")
    box.at(f"{folder}/build").mkdir()
    box.expect("driver", CheckLevel.BROKEN, f"no module of it for the running kernel {KERNEL}", "boot 5.10.0-1-amd64")
    box.write("/var/lib/dkms/nvidia/560.35.03/build/make.log", f"make KERNELRELEASE={KERNEL}\nerror: no member\n")
    box.expect("driver", CheckLevel.BROKEN, "DKMS could not build version 560.35.03", "install a newer driver")
    box.at(f"{folder}/build").rmdir()
    box.expect("driver", CheckLevel.BROKEN, f"running kernel {KERNEL}", f"apt-get install linux-headers-{KERNEL}")


def test_why_a_module_is_not_loaded(box: Box) -> None:
    box.at("/proc/driver/nvidia/version").unlink()
    box.program("nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    box.write("/proc/sys/kernel/osrelease", "6.1.0-50-amd64\n")
    modules = "/lib/modules/6.1.0-50-amd64/modules.dep"
    box.write(modules, "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.xz:\nkernel/nvidia-wmi-ec-backlight.ko.xz:\n")
    box.expect("driver", CheckLevel.BROKEN, "no module of it for the running kernel 6.1.0-50-amd64", "dkms autoinstall")
    for name in ("nvidia-uvm.ko", "nvidia-current-uvm.ko.xz", "nvidia-tesla-470-uvm.ko"):
        box.write(modules, f"updates/dkms/{name}: updates/dkms/nvidia.ko\n")
        box.expect("driver", CheckLevel.BROKEN, "its kernel module is not loaded", "sudo modprobe nvidia")
    box.write("/proc/modules", "nouveau 2404352 0 - Live 0x0000000000000000\n")
    box.expect("driver", CheckLevel.BROKEN, "not loaded, and nouveau holds the cards", "blacklist nouveau")


def test_a_machine_without_a_driver(box: Box) -> None:
    box.at("/proc/driver/nvidia/version").unlink()
    box.at(f"{FOLDER}/libnvidia-ml.so.1").unlink()
    box.at("programs/nvidia-smi").unlink()
    box.expect("driver", CheckLevel.BROKEN, "not installed", "install NVIDIA's driver")
    box.write("/proc/modules", "nouveau 2404352 0 - Live 0x0000000000000000\n")
    box.expect("driver", CheckLevel.BROKEN, "nouveau holds the cards", "blacklist nouveau")


def test_a_driver_without_its_library_or_its_tools(box: Box) -> None:
    box.at(f"{FOLDER}/libnvidia-ml.so.1").unlink()
    box.at("programs/nvidia-smi").unlink()
    box.expect("driver", CheckLevel.BROKEN, "cannot find libnvidia-ml.so.1", "driver.root")
    box.expect("driver", CheckLevel.WARNING, "nvidia-smi is not installed", "nvidia-utils")


def test_a_card_that_the_driver_lost(box: Box) -> None:
    box.smi(SMI.splitlines(keepends=True)[0])
    box.expect("cards", CheckLevel.WARNING, "the card at 0000:02:00.0 is on the bus", "dmesg")


def test_a_card_that_is_not_offered(box: Box) -> None:
    box.status["cards"] = [card(CARD_0)]
    box.expect("cards", CheckLevel.WARNING, f"card 1 ({CARD_1}) is seen and not offered", "restart edgegpu-plugin")
    box.configure(placement={"exclude": [1]})
    assert box.see("cards").text == "2 seen, 1 excluded, 1 offered"


def test_an_exclusion_that_names_no_card(box: Box) -> None:
    box.configure(placement={"exclude": [7]})
    box.expect("cards", CheckLevel.WARNING, "placement.exclude names 7", "config check")


def test_a_card_out_of_order_and_no_card_at_all(box: Box) -> None:
    box.status["cards"] = [card(CARD_0, healthy=False), card(CARD_1)]
    box.expect("cards", CheckLevel.WARNING, "card 0 is out of order", "reboot")
    box.status["cards"] = []
    box.expect("cards", CheckLevel.BROKEN, "no card is offered", "journalctl -u edgegpu-plugin")


def test_a_pod_that_runs_on_a_card_that_is_gone(box: Box) -> None:
    box.status["pods"] = [pod("face", 20, CARD_1, state="lost", reason="its card 1 (T4, GPU-1) is gone")]
    said = "pod baetyl-edge/face: its card 1 (T4, GPU-1) is gone"
    box.expect("cards", CheckLevel.BROKEN, said, "kubectl delete pod -n baetyl-edge face")
    box.smi("")
    box.expect("cards", CheckLevel.BROKEN, said, "sudo reboot")


def test_cards_of_a_machine_whose_plugin_is_down(box: Box) -> None:
    box.stop_plugin()
    assert box.see("cards").level is CheckLevel.SKIPPED
    box.smi("")
    box.expect("cards", CheckLevel.BROKEN, "the driver shows no card", "dmesg")


def test_a_server_without_cards_is_not_asked_for_them(box: Box) -> None:
    box.configure(role="extender-only")
    for name in ("driver", "cards", "resources", "runtime", "cdi", "cgroups", "limiter"):
        assert box.see(name).level is CheckLevel.SKIPPED, name


def test_a_clock_that_lost_its_battery(box: Box) -> None:
    box.now = dt.datetime(1970, 1, 1, 0, 5, tzinfo=dt.UTC)
    box.expect("clock", CheckLevel.BROKEN, "the clock says 1970", "date -s")


def test_a_clock_that_differs_from_the_servers(box: Box) -> None:
    box.api.now = box.now + dt.timedelta(seconds=40)
    box.expect("clock", CheckLevel.WARNING, "differs by 40 s", "set-ntp")
    box.api.now = box.now + dt.timedelta(hours=1)
    box.expect("clock", CheckLevel.BROKEN, "differs by 3600 s", "set-ntp")


def test_a_clock_that_nobody_sets(box: Box) -> None:
    box.program("timedatectl", "echo no")
    box.expect("clock", CheckLevel.WARNING, "not synchronised", "set-ntp")


@pytest.mark.parametrize(
    ("folder", "space", "level", "words"),
    [
        ("/var/lib", replace(ROOM, free_bytes=50 << 20), CheckLevel.BROKEN, "only 50 MiB"),
        ("/opt", replace(ROOM, free_share=0.06), CheckLevel.WARNING, "(6%)"),
        ("/etc", replace(ROOM, read_only=True), CheckLevel.BROKEN, "read-only"),
        ("/var/lib", replace(ROOM, free_inodes_share=0.01), CheckLevel.WARNING, "inodes"),
    ],
)
def test_a_disk_that_is_full_or_cannot_be_written(
    box: Box, folder: str, space: FileSystemSpace, level: CheckLevel, words: str
) -> None:
    box.spaces[folder] = space
    box.expect("disk", level, words, "mount" if space.read_only else "sudo du")


def test_leftovers_of_older_installs(box: Box) -> None:
    box.write("/opt/edgegpu/0.0.8/bin/edgegpu", "")
    assert box.see("leftovers").level is CheckLevel.OK
    box.write("/opt/edgegpu/0.0.9/bin/edgegpu", "")
    box.expect(
        "leftovers", CheckLevel.WARNING, "2 old versions: 0.0.8, 0.0.9", "rm -rf /opt/edgegpu/0.0.8 /opt/edgegpu/0.0.9"
    )
    box.write("/opt/edgegpu/.0.2.0.new/lib/x", "")
    box.expect("leftovers", CheckLevel.WARNING, "half-unpacked", "rm -rf /opt/edgegpu/.0.2.0.new")
    box.at("/opt/edgegpu/current").unlink()
    box.at("/opt/edgegpu/current").symlink_to("0.3.0")
    box.expect("leftovers", CheckLevel.BROKEN, "leads to 0.3.0, which is not there", "run the installer")


def test_leftovers_of_other_products(box: Box) -> None:
    box.write("/usr/local/vgpu/libvgpu.so", "")
    box.write("/etc/gpu-manager/vdriver", "")
    box.expect("leftovers", CheckLevel.WARNING, "/usr/local/vgpu is HAMi's", "uninstall HAMi first")
    box.expect("leftovers", CheckLevel.WARNING, "/etc/gpu-manager is gpu-manager's", "uninstall gpu-manager first")


def test_leftovers_of_an_install_by_hand(box: Box) -> None:
    box.write("/etc/edgegpu/scheduler.yaml", "")
    box.expect("leftovers", CheckLevel.WARNING, "/etc/edgegpu/scheduler.yaml is of an install by hand", "sudo rm")
    box.write(
        "/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml", "kube-scheduler-arg: config=/etc/edgegpu/scheduler.yaml"
    )
    assert box.see("leftovers").level is CheckLevel.OK


def test_a_foreign_preload_library(box: Box) -> None:
    box.write("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so\n")
    box.expect("limiter", CheckLevel.WARNING, "/usr/local/vgpu/libvgpu.so", "/etc/ld.so.preload")


def test_what_holds_containers_to_their_memory(box: Box) -> None:
    assert box.see("limiter").text == "shares are placed, not enforced (isolation.mode none)"
    held = pod("held", 4, CARD_0, isolation={"state": "enforced", "reason": ""})
    loose = pod("loose", 4, CARD_0, isolation={"state": "degraded", "reason": "its pod was admitted before"})
    box.status |= {"isolation": "limiter", "isolation_problem": "", "pods": [held, pod("new", 4)]}
    assert box.see("limiter").text == "the limiter holds 1 container to its memory"
    box.status["pods"] = [held, loose]
    box.expect("limiter", CheckLevel.WARNING, "its pod was admitted before", "edgegpu pods")
    loose["isolation"] = {"state": "degraded", "reason": UNWRITABLE}
    box.expect(
        "limiter", CheckLevel.WARNING, "a container is without card memory: its programs may not", "edgegpu pods"
    )
    assert "not surely held" not in box.see("limiter").text, "nothing is taken past its limit"
    held["isolation"] = {"state": "enforced", "reason": "", "notes": ["its variable asks for video"]}
    box.status["pods"] = [held]
    box.expect("limiter", CheckLevel.WARNING, "without what it asks for: its variable asks for video", "edgegpu pods")
    box.status["isolation_problem"] = "the nvidia runtime brings the driver's files"
    box.expect("limiter", CheckLevel.BROKEN, "the nvidia runtime brings the driver's files", "journalctl")
    box.status |= tried("inconclusive")
    box.expect("limiter", CheckLevel.BROKEN, "the nvidia runtime brings the driver's files", "journalctl")


def test_on_a_node_that_holds_no_others_a_pod_that_chose_it_is_looked_at(box: Box) -> None:
    held = pod("held", 4, CARD_0, isolation={"state": "enforced", "reason": ""})
    free = pod("free", 4, CARD_0, isolation={"state": "off", "reason": ""})
    box.status |= {"isolation": "none", "isolation_problem": "", "pods": [held, free]}
    assert box.see("limiter").text == "the limiter holds 1 container to its memory; 1 not"
    held["isolation"] = {"state": "degraded", "reason": "process 7 uses card 0 past the limiter"}
    box.expect("limiter", CheckLevel.WARNING, "process 7 uses card 0 past the limiter", "edgegpu pods")


def tried(verdict: str, context_mib: int | None = None, **more: object) -> dict[str, object]:
    row = {
        "index": "0",
        "card": CARD_0,
        "verdict": verdict,
        "reason": f"why {verdict}",
        "remedy": "sudo edgegpu selftest",
    }
    return {"selftest": {"cards": [row | {"context_mib": context_mib} | more]}}


def test_what_the_nodes_self_test_found(box: Box) -> None:
    box.status |= {"isolation": "limiter", "isolation_problem": "", "pods": [], **tried("passed", 300)}
    assert (box.see("limiter").level, box.see("limiter").details) == (CheckLevel.OK, ())
    box.status |= tried("passed", 300, not_tried={"graph": "the driver has no such function"})
    assert box.see("limiter").level is CheckLevel.OK
    assert box.see("limiter").details == ("self-test of card 0: graph was not tried: the driver has no such function",)
    newer = "the driver's CUDA 13.6 is newer than the limiter's list of functions, which ends with CUDA 13.5"
    one = {"index": "0", "card": CARD_0, "verdict": "passed", "newer_driver": newer}
    box.status["selftest"] = {"cards": [one, one | {"index": "1", "card": CARD_1}]}
    box.expect("limiter", CheckLevel.WARNING, newer, "upgrade edgegpu; until then programs that it holds")
    assert len(box.see("limiter").problems) == 1  # the cards have one driver
    box.status |= tried("passed", 300) | {"driver": {"unknown_functions": ["cuNew", "cuNewer"]}}
    text = "the driver has 2 functions that this edgegpu does not know (cuNew, cuNewer): programs"
    box.expect("limiter", CheckLevel.WARNING, text, "upgrade edgegpu")
    box.status |= {"driver": {}}
    named = one | {"newer_driver": "", "by_name": "the driver gives other addresses"}
    box.status["selftest"] = {"cards": [named, named | {"index": "1", "card": CARD_1}]}
    box.expect("limiter", CheckLevel.WARNING, "the driver gives other addresses", "nothing: programs run and are held")
    assert len(box.see("limiter").problems) == 1
    for verdict in ("loose", "harmful"):
        problem = f"card 0: self-test: why {verdict}"
        box.status |= {"isolation_problem": problem, **tried(verdict)}
        box.expect("limiter", CheckLevel.BROKEN, f"self-test of card 0: why {verdict}", "sudo edgegpu selftest")
        assert len(box.see("limiter").problems) == 1  # and not the same once more
    box.status |= {"isolation_problem": "", **tried("inconclusive")}
    box.expect("limiter", CheckLevel.WARNING, "self-test of card 0: why inconclusive", "sudo edgegpu selftest")


def test_a_container_with_less_than_a_context_takes(box: Box) -> None:
    units = {"limit_units": 1, "held_units": 1, "core_percent": 1}
    limits = [{"card": CARD_0, "limit_mib": 256, "counted_mib": 0, **units}]
    small = pod("small", 1, CARD_0, isolation={"state": "enforced", "reason": "", "cards": limits})
    box.status |= {"isolation": "limiter", "isolation_problem": "", "pods": [small], **tried("passed", 525)}
    box.expect("limiter", CheckLevel.WARNING, f"a CUDA context takes on card {CARD_0} (525 MiB)", "give it 3 units")
    box.status |= tried("passed", 256)
    assert box.see("limiter").level is CheckLevel.OK


def test_the_simulated_driver_below_a_root_of_its_own(box: Box, simdriver_build: Path) -> None:
    root = box.at("/run/edgegpu-sim")
    root.mkdir()
    SimDriver.create(root, [make_card(index, "NVIDIA Tesla T4", 15360) for index in (0, 1)], build=simdriver_build)
    for name in ("programs/nvidia-smi", "proc/driver/nvidia/version"):
        box.at(name).unlink()
    box.at("sys").rename(box.at("nosys"))
    box.configure(driver={"root": "/run/edgegpu-sim"})
    verdict = box.see("driver")
    assert (verdict.level, verdict.text) == (CheckLevel.OK, "560.35.03 everywhere"), verdict
    uuids = [detail.split()[2] for detail in box.see("cards").details]
    box.status["cards"] = [card() | {"uuid": uuid, "index": str(index)} for index, uuid in enumerate(uuids)]
    assert box.see("cards").text == "2 seen, 0 excluded, 2 offered"
