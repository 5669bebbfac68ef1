"""What is harmed on a healthy box, by the check that has to see it, and what then happens by the calls of its remedy.

A harm returns effects that only its own remedy has (see kits/remedies.py); None where the usual ones do.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from kits.cli import CARD_0, CARD_1, card, pod
from kits.doctor import BOOTED_S, FOLDER, SCHEDULER, SMI, VERSION, Box
from kits.doctorserver import CONTAINERD, NOW, scheduler_kubeconfig

from edgegpu_installer.doctor.probe import FileSystemSpace
from edgegpu_installer.machine.config_block import with_block
from edgegpu_installer.plan import certificates
from edgegpu_installer.scheduler.manifest import MANIFEST, SCHEDULER_FILE
from edgegpu_plugin.cards.device_nodes import link_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kits.remedies import Effects

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "/etc/rancher/k3s/config.yaml"
LATER = "/etc/rancher/k3s/config.yaml.d/99-site.yaml"
TOML = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
DRIVER = "/proc/driver/nvidia/version"
PLUGIN_YAML = "/etc/edgegpu/plugin.yaml"
SCHEDULER_KUBECONFIG = "/var/lib/rancher/k3s/server/cred/scheduler.kubeconfig"
ROOM = FileSystemSpace(free_bytes=10 << 30, free_share=0.5, free_inodes_share=0.5, read_only=False)


def a_clock_that_differs(box: Box) -> Effects:
    box.api.now = box.now + dt.timedelta(hours=1)
    return {"timedatectl set-ntp true": lambda: setattr(box, "now", box.api.now)}


def a_clock_that_nobody_sets(box: Box) -> Effects:
    box.program("timedatectl", "echo no")
    return {"timedatectl set-ntp true": lambda: box.program("timedatectl", "echo yes")}


def a_full_disk(box: Box) -> Effects:
    box.spaces["/opt"] = replace(ROOM, free_share=0.06)
    return {"journalctl --vacuum-size=100M": box.spaces.clear}


def a_disk_that_cannot_be_written(box: Box) -> Effects:
    box.spaces["/etc"] = replace(ROOM, read_only=True)
    return {"mount -o remount,rw /etc": box.spaces.clear}


def loaded(box: Box, version: str = VERSION) -> None:
    box.write(DRIVER, f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Fri Aug 16\n")
    box.smi(SMI, version)


def a_driver_of_two_versions(box: Box) -> Effects:
    box.at(f"{FOLDER}/libnvidia-ml.so.1").unlink()
    box.write(f"{FOLDER}/libnvidia-ml.so.570.10", "")
    box.at(f"{FOLDER}/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.570.10")
    box.program("nvidia-smi", "echo Failed to initialize NVML: Driver/library version mismatch; exit 18")
    return {"reboot": lambda: loaded(box, "570.10")}


def a_driver_that_is_not_loaded(box: Box) -> Effects:
    box.at(DRIVER).unlink()
    box.program("nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    return {"modprobe nvidia": lambda: loaded(box)}


def a_driver_without_a_module_for_this_kernel(box: Box) -> Effects:
    kernel = "6.1.0-50-amd64"
    box.write("/proc/sys/kernel/osrelease", f"{kernel}\n")
    box.write(f"/lib/modules/{kernel}/modules.dep", "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:\n")
    effects = dict.fromkeys((f"apt-get install linux-headers-{kernel}", "dkms autoinstall"), lambda: None)
    return {**effects, **a_driver_that_is_not_loaded(box)}


def nouveau_before_an_installed_driver(box: Box) -> Effects:
    a_driver_that_is_not_loaded(box)
    box.write("/proc/modules", "nouveau 2404352 0 - Live 0x0000000000000000\n")
    box.at("/etc/modprobe.d").mkdir()

    def reboot() -> None:
        box.write("/proc/modules", "")
        loaded(box)

    return {"reboot": reboot}


def no_smi(box: Box) -> Effects:
    box.at("programs/nvidia-smi").unlink()
    return {"apt-get install nvidia-smi": lambda: box.smi(SMI)}


def nouveau(box: Box) -> Effects:
    for name in (DRIVER, f"{FOLDER}/libnvidia-ml.so.1", "programs/nvidia-smi"):
        box.at(name).unlink()
    box.write("/proc/modules", "nouveau 2404352 0 - Live 0x0000000000000000\n")
    box.at("/etc/modprobe.d").mkdir()

    def driver_and_reboot() -> None:
        assert box.at("/etc/modprobe.d/nouveau.conf").read_text() == "blacklist nouveau\n"
        box.write("/proc/modules", "")
        box.at(f"{FOLDER}/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{VERSION}")
        loaded(box)

    return {"": driver_and_reboot}


def a_card_that_is_not_offered(box: Box) -> Effects:
    cards = box.status["cards"]
    box.status["cards"] = [card(CARD_0)]
    return {"systemctl restart edgegpu-plugin": lambda: box.status.update(cards=cards)}


def a_card_that_is_out_of_order(box: Box) -> Effects:
    cards = box.status["cards"]
    box.status["cards"] = [card(CARD_0, healthy=False), card(CARD_1)]
    return {"": lambda: box.status.update(cards=cards)}  # as its comment says: the machine was started anew


def an_exclusion_of_no_card(box: Box) -> None:
    edited(box, yaml.safe_dump(box.config))
    box.configure(placement={"exclude": [7]})


def a_pod_on_a_card_that_is_gone(box: Box) -> Effects:
    pods = box.status["pods"]
    box.status["pods"] = [*pods, pod("face", 20, CARD_1, state="lost", reason="its card 1 (T4, GPU-1) is gone")]
    return {"k3s kubectl delete pod -n baetyl-edge face": lambda: box.status.update(pods=pods)}


def a_k3s_that_is_down(box: Box) -> None:
    box.k3s(ActiveState="failed", SubState="failed", Result="exit-code")


def an_open_kubeconfig(box: Box) -> None:
    box.at("/etc/edgegpu/kubeconfig").chmod(0o644)


def no_kubeconfig(box: Box) -> None:
    box.at("/etc/edgegpu/kubeconfig").unlink()


def a_kubeconfig_of_the_administrator(box: Box) -> None:
    box.write("/etc/rancher/k3s/k3s.yaml", box.kubeconfig({"token": "root"}).read_text())


def a_plugin_that_is_down(box: Box) -> None:
    box.unit("edgegpu-plugin", ActiveState="failed", SubState="failed", Result="exit-code")


def no_plugin(box: Box) -> None:
    box.at("units/edgegpu-plugin").unlink()


def a_plugin_that_does_not_start_with_the_machine(box: Box) -> None:
    box.unit("edgegpu-plugin", UnitFileState="disabled")


def a_plugin_with_an_unread_unit(box: Box) -> None:
    box.unit("edgegpu-plugin", NeedDaemonReload="yes")


def a_configuration_that_cannot_be_used(box: Box) -> None:
    edited(box, yaml.safe_dump(box.config))
    box.write(PLUGIN_YAML, "version: 1\nrole: sever\n")


def a_node_that_offers_too_little(box: Box) -> Effects:
    box.node(**{"baidu.com/vcuda-memory": "29"})
    return {"systemctl restart edgegpu-plugin": box.node}


def a_book_that_cannot_be_read(box: Box) -> Effects:
    known = box.status["kubelet"]
    box.status["kubelet"] = {"registered": True, "checkpoint": "not JSON"}
    return {"systemctl restart --no-block k3s": lambda: box.status.update(kubelet=known)}


def no_drop_in(box: Box) -> None:
    box.at("/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml").unlink()


def _site_file(box: Box) -> None:
    site = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    box.write("/etc/site.yaml", yaml.safe_dump({**site, "clientConnection": {"kubeconfig": SCHEDULER_KUBECONFIG}}))


def another_scheduler_file(box: Box) -> None:
    no_drop_in(box)
    _site_file(box)
    box.at(SCHEDULER).unlink()
    box.write(CONFIG, "kube-scheduler-arg: [config=/etc/site.yaml]\n")


def no_scheduler_file(box: Box) -> None:
    box.at(SCHEDULER).unlink()


def a_bad_scheduler_file(box: Box) -> None:
    box.write(SCHEDULER, box.at(SCHEDULER).read_text().replace("weight: 1", "weight: 0"), 0o600)


def an_open_scheduler_file(box: Box) -> None:
    box.at(SCHEDULER).chmod(0o644)


def a_scheduler_file_that_nobody_has_read(box: Box) -> None:
    os.utime(box.at(SCHEDULER), (BOOTED_S + 100, BOOTED_S + 100))


def a_later_drop_in(box: Box) -> None:
    box.write(LATER, "kube-scheduler-arg: [v=2]\n")


def an_argument_in_the_unit(box: Box) -> Effects:
    _site_file(box)
    box.k3s("server", "--kube-scheduler-arg", "config=/etc/site.yaml")

    def moved() -> None:
        box.k3s()
        box.write(CONFIG, "kube-scheduler-arg: [config=/etc/site.yaml]\n")

    return {"systemctl edit --full k3s": moved}


def lines_of_an_older_k3s(box: Box) -> None:
    no_drop_in(box)
    box.k3s_program("v1.20.15+k3s1")
    box.write(SCHEDULER, box.at(SCHEDULER).read_text().replace("k8s.io/v1", "k8s.io/v1beta1"), 0o600)
    box.write(CONFIG, with_block("token: x\n", SCHEDULER, path=CONFIG))
    box.k3s_program("v1.21.14+k3s1")


def a_manifest_of_kubeadm(box: Box) -> None:
    for name in ("units/k3s", "etc/systemd/system/k3s.service"):
        box.at(name).unlink()
    box.write(MANIFEST, (ROOT / "tests/lab/kubeadm-scheduler.yaml").read_text(encoding="utf-8"))
    box.write("/etc/kubernetes/scheduler.conf", scheduler_kubeconfig(box.certificates.ca))
    box.at("/etc/kubernetes/edgegpu").mkdir()
    box.at(SCHEDULER).rename(box.at(SCHEDULER_FILE))


def an_extender_that_is_down(box: Box) -> None:
    box.stop_extender()


def another_authority(box: Box) -> None:
    box.certificates = certificates.make(NOW)
    box.scheduler_file()


def another_name(box: Box) -> None:
    box.scheduler_file(tls_changes={"serverName": "somebody-else"})


def no_certificates(box: Box) -> None:
    box.scheduler_file(tls_changes={"caData": "", "certData": ""})


def another_port(box: Box) -> None:
    box.scheduler_file(urlPrefix="https://127.0.0.1:9", ignorable=True)


def certificates_that_have_ended(box: Box) -> None:
    box.now = NOW + dt.timedelta(days=365 * 21)


def a_certificate_that_is_none(box: Box) -> None:
    box.write("/etc/edgegpu/extender/server.crt", "nothing")


def a_certificate_of_k3s_that_ends(box: Box) -> Effects:
    name = "/var/lib/rancher/k3s/agent/client-kubelet.crt"
    box.write(name, box.certificates.client.cert)
    box.now = NOW + dt.timedelta(days=365 * 20 - 30)
    renewed = certificates.make(box.now).client.cert
    return {"systemctl restart --no-block k3s": lambda: box.write(name, renewed)}


def an_agent_that_is_down(box: Box) -> None:
    box.unit("edgegpu-agent", ActiveState="failed", SubState="failed", Result="exit-code")


def no_agent(box: Box) -> None:
    box.at("units/edgegpu-agent").unlink()


def an_agent_that_does_not_start_with_the_machine(box: Box) -> None:
    box.unit("edgegpu-agent", UnitFileState="disabled")


def a_bad_file_of_containerd(box: Box) -> Effects:
    box.write(TOML, "version = [")
    return {"systemctl restart --no-block k3s": lambda: box.write(TOML, CONTAINERD)}


def no_nvidia_runtime(box: Box) -> Effects:
    box.status["injection"] = {"mode": "runtime"}
    box.api.objects["/apis/node.k8s.io/v1/runtimeclasses/nvidia"] = {"handler": "nvidia"}
    runtime = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]\nruntime_type = 'x'\n"
    return {
        "apt-get install nvidia-container-toolkit": lambda: None,
        "systemctl restart --no-block k3s": lambda: box.write(TOML, CONTAINERD + runtime),
    }


def no_runtime_class(box: Box) -> Effects:
    no_nvidia_runtime(box)["systemctl restart --no-block k3s"]()
    del box.api.objects["/apis/node.k8s.io/v1/runtimeclasses/nvidia"]

    def applied() -> None:
        item = yaml.safe_load(box.at("/applied").read_text())
        group, kind = item["apiVersion"], f"{item['kind'].lower()}es"
        box.api.objects[f"/apis/{group}/{kind}/{item['metadata']['name']}"] = item

    return {"k3s kubectl apply -f -": applied}


def no_cdi_spec(box: Box) -> Effects:
    box.at("/var/run/cdi/edgegpu.json").unlink()
    return {"systemctl restart edgegpu-plugin": box.cdi_spec}


def a_cdi_spec_that_is_none(box: Box) -> Effects:
    box.write("/var/run/cdi/edgegpu.json", "{}")

    def restarted() -> None:
        assert not box.at("/var/run/cdi/edgegpu.json").exists(), "it was to be removed first"
        box.cdi_spec()

    return {"systemctl restart edgegpu-plugin": restarted}


def a_cdi_spec_without_the_hook(box: Box) -> Effects:
    box.cdi_spec(hook="")
    return {"systemctl restart edgegpu-plugin": box.cdi_spec}


def a_second_cdi_spec(box: Box) -> None:
    box.write("/etc/cdi/other.json", json.dumps({"kind": "edgegpu.io/gpu", "devices": []}))


def no_device_links(box: Box) -> Effects:
    box.at("dev/char/1:3").unlink()
    nodes = [box.at("dev/nvidia0"), box.at("dev/nvidiactl")]
    return {"systemctl restart edgegpu-plugin": lambda: link_nodes(nodes, char=box.at("dev/char"))}


def a_foreign_preload_library(box: Box) -> None:
    box.write("/etc/ld.so.preload", "/usr/local/vgpu/libvgpu.so\n")
    edited(box, "")


def a_recovery_that_cannot_be_run(box: Box) -> None:
    box.at("/usr/local/lib/edgegpu/edgegpu-recover").chmod(0o644)


def no_recovery(box: Box) -> None:
    box.at("/usr/local/lib/edgegpu/edgegpu-recover").unlink()
    box.at("/etc/systemd/system/edgegpu-recover.service").unlink()


def a_k3s_that_does_not_ask_for_recovery(box: Box) -> None:
    box.at("/etc/systemd/system/k3s.service.d/50-edgegpu.conf").unlink()


def old_versions(box: Box) -> None:
    for name in ("0.0.8", "0.0.9"):
        box.write(f"/opt/edgegpu/{name}/bin/edgegpu", "")
    box.write("/opt/edgegpu/.0.2.0.new/lib/x", "")


def a_scheduler_file_by_hand(box: Box) -> None:
    box.write("/etc/edgegpu/scheduler.yaml", "")


def edited(box: Box, text: str) -> None:
    """Let the next one who edits a file leave this in it."""
    box.write("/edited", text)


HARMS: dict[str, tuple[Callable[[Box], Effects | None], ...]] = {
    "clock": (a_clock_that_differs, a_clock_that_nobody_sets),
    "disk": (a_full_disk, a_disk_that_cannot_be_written),
    "driver": (
        a_driver_of_two_versions,
        a_driver_that_is_not_loaded,
        a_driver_without_a_module_for_this_kernel,
        nouveau_before_an_installed_driver,
        no_smi,
        nouveau,
    ),
    "cards": (
        *(a_card_that_is_not_offered, a_card_that_is_out_of_order, an_exclusion_of_no_card),
        a_pod_on_a_card_that_is_gone,
    ),
    "k3s": (a_k3s_that_is_down,),
    "kubeconfig": (an_open_kubeconfig, no_kubeconfig, a_kubeconfig_of_the_administrator),
    "plugin": (
        *(a_plugin_that_is_down, a_plugin_that_does_not_start_with_the_machine, a_plugin_with_an_unread_unit),
        *(no_plugin, a_configuration_that_cannot_be_used),
    ),
    "resources": (a_node_that_offers_too_little, a_book_that_cannot_be_read),
    "scheduler": (
        *(no_drop_in, another_scheduler_file, no_scheduler_file, a_bad_scheduler_file, an_open_scheduler_file),
        *(a_scheduler_file_that_nobody_has_read, a_later_drop_in, an_argument_in_the_unit, lines_of_an_older_k3s),
        a_manifest_of_kubeadm,
    ),
    "extender": (an_extender_that_is_down, another_authority, another_name, no_certificates, another_port),
    "certificates": (certificates_that_have_ended, a_certificate_that_is_none, a_certificate_of_k3s_that_ends),
    "agent": (an_agent_that_is_down, an_agent_that_does_not_start_with_the_machine, no_agent),
    "runtime": (a_bad_file_of_containerd, no_nvidia_runtime, no_runtime_class),
    "cdi": (no_cdi_spec, a_cdi_spec_that_is_none, a_cdi_spec_without_the_hook, a_second_cdi_spec),
    "cgroups": (no_device_links,),
    "limiter": (a_foreign_preload_library,),
    "recover": (a_recovery_that_cannot_be_run, no_recovery, a_k3s_that_does_not_ask_for_recovery),
    "leftovers": (old_versions, a_scheduler_file_by_hand),
}
