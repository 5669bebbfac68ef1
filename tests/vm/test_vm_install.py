"""On cgroup v2: one line installs, both scenarios run, a daemon-reload takes no card, an uninstall leaves nothing."""

import os
import re

from box.bed import WAITS, differences
from e2e.manifests import MEMORY
from lab.labrun import run, wait_until
from vm.services import NAMESPACE, apply_service, card_of, containers_of, pending_reason, run_services
from vm.vmbed import VmBed

FULL = bool(os.environ.get("TEST_FULL"))
LET_GO_S = 60.0
"""kubelet keeps a dead resource for five minutes, of a clock that an emulated processor does not slow down."""

KUBELET_FILES = "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"
CONTAINERD_FILE = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"


def test_the_machine_has_a_kernel_of_its_own_with_cgroup_v2_alone(k3s_vm: VmBed) -> None:
    machine = k3s_vm.machine
    assert machine.exec("uname", "-r").stdout != run(["uname", "-r"]).stdout
    assert machine.exec("stat", "-fc", "%T", "/sys/fs/cgroup").stdout.strip() == "cgroup2fs"
    assert "cgroup" not in set(machine.exec("findmnt", "-rno", "FSTYPE").stdout.split())
    assert machine.exec("systemctl", "is-system-running").stdout.strip() == "running"


def test_kubelet_has_no_word_about_cgroup_v1_and_systemd_makes_its_cgroups(k3s_vm: VmBed) -> None:
    machine = k3s_vm.machine
    kubelet = machine.exec("sh", "-c", f"cat {KUBELET_FILES}/*").stdout
    assert "failCgroupV1" not in kubelet
    assert "cgroupDriver: systemd\n" in kubelet
    assert "SystemdCgroup = true\n" in machine.exec("cat", CONTAINERD_FILE).stdout
    assert machine.exec("test", "-d", "/sys/fs/cgroup/kubepods.slice", check=False).returncode == 0


def test_one_line_installs_both_scenarios_run_and_an_uninstall_leaves_nothing(k3s_vm: VmBed) -> None:
    bed = k3s_vm
    disk, node = bed.disk(), bed.node_object()
    bed.line("--yes")
    bed.offered()
    assert "COMMITTED" in bed.journal()["state"]
    assert bed.restarts()
    assert bed.machine.exec("systemctl", "is-system-running").stdout.strip() == "running"
    _two_cards(bed)
    _a_reload_takes_no_card(bed)
    bed.cluster.clear(NAMESPACE)
    _one_card(bed)
    bed.cluster.clear(NAMESPACE)
    assert bed.starved() == []

    bed.edgegpu("uninstall", "--yes")
    bed.machine.ready()
    left = {path: what for path, what in differences(disk, bed.disk()).items() if not re.search(WAITS, path)}
    assert left == {}
    after = bed.node_object()
    assert (after["labels"], after["annotations"]) == (node["labels"], node["annotations"])
    if FULL:
        wait_until(
            lambda: not differences(disk, bed.disk()) and bed.node_object() == node,
            what="the machine is as it was",
            timeout_s=LET_GO_S,
            every_s=10,
        )


def _two_cards(bed: VmBed) -> None:
    cards = run_services(bed, {"four": 4, "twenty": 20, "other": 20})
    assert cards["four"] == cards["twenty"] != cards["other"]
    apply_service(bed, "ten", 10)
    bed.cluster.wait_event(NAMESPACE, "ten", "needs 10 vcuda-memory on one card")


def _a_reload_takes_no_card(bed: VmBed) -> None:
    """systemd computes the devices' rules of each container again, which are a program in the kernel on cgroup v2."""
    names = ("four", "twenty", "other")
    before = {name: (card_of(bed, name), *containers_of(bed, name)[name]) for name in names}
    bed.machine.exec("systemctl", "daemon-reload")
    assert {name: (card_of(bed, name), *containers_of(bed, name)[name]) for name in names} == before


def _one_card(bed: VmBed) -> None:
    bed.insert_cards({"NVIDIA-T4-C": 24259})
    bed.cluster.wait_allocatable(bed.machine.name, 94, 100)
    cards = run_services(bed, {"forty": 40, "fifty": 50, "one": 1})
    assert len(set(cards.values())) == 1
    others = containers_of(bed, "forty", "fifty")

    apply_service(bed, "one", 10)
    refused = bed.cluster.wait_event(NAMESPACE, "one", f"Insufficient {MEMORY}")
    assert "UnexpectedAdmissionError" not in refused
    numbers = "needs 10 vcuda-memory on one card; card 0 has 4 free"
    wait_until(lambda: numbers in pending_reason(bed, "one"), what=numbers)

    apply_service(bed, "one", 1)
    assert card_of(bed, "one") == cards["one"]
    assert containers_of(bed, "forty", "fifty") == others
