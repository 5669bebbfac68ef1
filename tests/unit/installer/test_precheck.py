import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kits.devicesocket import served_socket
from kits.elf import library
from kits.facts import CONTAINERD, SHOWN, FakeBox

from edgegpu_installer.machine.facts import DiskSpace, MachineFacts
from edgegpu_installer.plan.precheck import Finding, FindingLevel, precheck, refused
from edgegpu_installer.plan.site import InstallOptions, MachineRole

OLD_CONTAINERD = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
NVIDIA = OLD_CONTAINERD + '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\nruntime_type = "x"\n'
CONFIG = "/etc/rancher/k3s/config.yaml"
DROP_INS = "/etc/rancher/k3s/config.yaml.d"


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    made = FakeBox(tmp_path)
    made.gpu()
    return made


def facts_of(box: FakeBox, **changes: Any) -> MachineFacts:  # noqa: ANN401  (fields of Facts)
    return replace(box.facts(), **{"root": True, "machine": "x86_64", "rooms": (), **changes})


def found(box: FakeBox, *, role: MachineRole | None = None, **changes: Any) -> list[Finding]:  # noqa: ANN401
    return precheck(facts_of(box, **changes), InstallOptions(role=role))


def the_one(findings: list[Finding], level: FindingLevel = FindingLevel.REFUSE) -> Finding:
    (finding,) = findings
    assert finding.level is level
    assert finding.why
    assert finding.remedy
    return finding


def test_a_healthy_server_with_cards_has_no_findings(box: FakeBox) -> None:
    box.k3s()
    assert found(box) == []


def test_a_server_without_cards_needs_none(box: FakeBox, tmp_path: Path) -> None:
    bare = FakeBox(tmp_path / "bare")
    bare.k3s(node={"allocatable": {"nvidia.com/gpu": "1"}})
    assert found(bare) == []
    assert box.facts().kind == "no Kubernetes"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"root": False}, "not root"),
        ({"machine": "aarch64"}, "aarch64"),
        ({"rooms": (DiskSpace("/opt", 5, read_only=False),)}, "/opt has 5 MiB left"),
        ({"rooms": (DiskSpace("/etc", 5000, read_only=True),)}, "/etc is read-only"),
    ],
)
def test_a_machine_that_will_not_do(box: FakeBox, changes: dict[str, Any], words: str) -> None:
    box.k3s()
    assert words in the_one(found(box, **changes)).what


def test_a_version_that_lies_there_needs_little_room(box: FakeBox) -> None:
    box.k3s()
    for free_mib, unpacked, wrong in ((299, False, True), (10, True, False), (9, True, True)):
        facts = facts_of(box, rooms=(DiskSpace("/opt", free_mib, read_only=False),))
        assert bool(precheck(facts, InstallOptions(), unpacked=unpacked)) is wrong


def test_an_agent_node_is_not_asked_to_label(box: FakeBox) -> None:
    box.k3s("agent")
    finding = the_one(precheck(facts_of(box), InstallOptions(nodes=("box-1",))))
    assert "--node on an agent node" in finding.what
    assert "on a server" in finding.remedy
    box.k3s("server")
    assert precheck(facts_of(box), InstallOptions(nodes=("box-1",))) == []


def test_another_machine_may_have_an_extender_alone(box: FakeBox) -> None:
    box.k3s()
    assert found(box, role=MachineRole.EXTENDER_ONLY, machine="aarch64") == []


def test_no_cluster_and_rke2(box: FakeBox) -> None:
    assert "no k3s" in the_one(found(box)).what
    box.write("/etc/systemd/system/rke2-server.service", "[Service]\nExecStart=/usr/local/bin/rke2 server\n")
    assert the_one(found(box)).what == "RKE2"


@pytest.mark.parametrize(
    ("shown", "ready", "words"),
    [
        (SHOWN.replace("ActiveState=active", "ActiveState=activating"), True, "is not up"),
        (SHOWN.replace("=1000000", "=97000000").replace("NRestarts=0", "NRestarts=7"), True, "up for 3 s only"),
        (SHOWN, False, "API server is not ready"),
    ],
)
def test_a_k3s_that_is_not_healthy(box: FakeBox, *, shown: str, ready: bool, words: str) -> None:
    box.k3s(ready=ready)
    box.program("systemctl", shown)
    assert words in the_one(found(box)).what


def test_versions(box: FakeBox) -> None:
    box.k3s(version="v1.19.16+k3s1", containerd=NVIDIA)
    assert "1.20" in refused(found(box))[0].why
    box.k3s(version="v1.20.15+k3s1", containerd=NVIDIA)
    old = found(box, role=MachineRole.SERVER)
    assert refused(old) == []
    assert any("v1beta1" in finding.why for finding in old)
    box.k3s(version="v1.24.17+k3s1", containerd=NVIDIA)
    old = found(box, role=MachineRole.SERVER)
    assert refused(old) == []
    assert any("v1beta3" in finding.why for finding in old)
    box.k3s(version="v1.25.16+k3s4", containerd=NVIDIA)
    assert not any("is old" in finding.what for finding in found(box))


@pytest.mark.parametrize(
    ("config", "words", "remedy"),
    [
        ("kube-scheduler-arg: [v=2]\n", "cannot add to kube-scheduler-arg in /etc/rancher/k3s/config.yaml", "- 'v=2'"),
        ("kube-scheduler-arg:\n  - config=/etc/mine.yaml\n", "gives the scheduler a configuration already", "take `"),
    ],
)
def test_a_configuration_that_an_old_k3s_cannot_be_told_in(box: FakeBox, config: str, words: str, remedy: str) -> None:
    box.k3s(version="v1.20.15+k3s1", config=config, containerd=NVIDIA)
    finding = the_one(refused(found(box)))
    assert words in finding.what
    assert remedy in finding.remedy


def test_arguments_of_the_unit_stay_there(box: FakeBox) -> None:
    box.k3s(version="v1.20.15+k3s1", args="--kube-scheduler-arg=v=2 --kube-scheduler-arg x=y", containerd=NVIDIA)
    assert refused(found(box)) == []


def test_a_drop_in_that_an_old_k3s_does_not_read(box: FakeBox) -> None:
    box.k3s(version="v1.20.15+k3s1", config="token: x\n", containerd=NVIDIA)
    box.write(f"{DROP_INS}/10-x.yaml", "kube-scheduler-arg+: [v=2]\n")
    finding = the_one(refused(found(box)))
    assert "10-x.yaml gives the scheduler arguments" in finding.what
    assert "config.yaml" in finding.remedy


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda box: box.k3s(args="--docker"), "--docker"),
        (lambda box: box.k3s(args="--kube-scheduler-arg=config=/x"), "names the scheduler's configuration"),
        (
            lambda box: box.k3s(args="--kube-scheduler-arg=config=/x", config="kube-scheduler-arg: [config=/a]\n"),
            "names the scheduler's configuration",
        ),
        (lambda box: box.k3s(args="--data-dir ${NOWHERE}"), "--data-dir without a value"),
        (lambda box: box.k3s(args="--disable-scheduler"), "--disable-scheduler"),
        (lambda box: box.k3s(config="a: ["), "configuration"),
        (
            lambda box: (box.k3s(), box.write(f"{DROP_INS}/99-x.yaml", "kube-scheduler-arg: [v=2]\n")),
            "would take our scheduler argument away",
        ),
        (
            lambda box: (box.k3s(), box.write(f"{DROP_INS}/99-x.yaml", 'kube-scheduler-arg+: ["config=/x"]\n')),
            "scheduler configurations in",
        ),
        (lambda box: box.k3s(config='kube-scheduler-arg: ["config=/a", "config=/b"]\n'), "scheduler configurations in"),
    ],
)
def test_a_configuration_that_ours_would_not_count_in(
    box: FakeBox, prepare: Callable[[FakeBox], object], words: str
) -> None:
    prepare(box)
    assert words in the_one(found(box)).what


def test_a_configuration_that_the_unit_names_comes_with_what_to_write_where(box: FakeBox) -> None:
    box.k3s(args="--kube-scheduler-arg=v=2 --kube-scheduler-arg=--config=/x")
    remedy = the_one(found(box)).remedy
    assert CONFIG in remedy
    lines = remedy.partition("\n")[2]
    assert lines == "kube-scheduler-arg:\n  - 'config=/x'"
    assert found(box, role=MachineRole.AGENT) == []
    box.k3s(args="--kube-scheduler-arg=v=2", config=f"{lines}\n")
    assert refused(found(box)) == []


def test_a_scheduler_configuration_that_is_there_is_said(box: FakeBox) -> None:
    box.k3s(config='kube-scheduler-arg: ["config=/etc/s.yaml"]\n')
    assert "/etc/s.yaml" in the_one(found(box), FindingLevel.WARN).what


def test_a_configuration_of_kubeadms_scheduler_is_said(box: FakeBox) -> None:
    manifest = (Path(__file__).resolve().parents[2] / "lab/kubeadm-scheduler.yaml").read_text()
    box.write("/etc/kubernetes/manifests/kube-scheduler.yaml", manifest)
    assert found(box) == []
    there = manifest.replace("    - --kubeconfig=", "    - --config=/etc/mine.yaml\n    - --kubeconfig=")
    box.write("/etc/kubernetes/manifests/kube-scheduler.yaml", there)
    finding = the_one(found(box), FindingLevel.WARN)
    assert finding.what == "the scheduler has a configuration already: /etc/mine.yaml"


def pod(image: str, phase: str = "Running", *, more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "kube-system", "name": "p", "uid": "u"},
        "spec": {"containers": [{"image": image}], **(more or {})},
        "status": {"phase": phase},
    }


REGISTERS = {"volumes": [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins/"}}]}
UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.mark.parametrize(
    ("node", "pods", "words"),
    [
        ({"nvidia.com/gpu": "2"}, (), "nvidia.com/gpu"),
        ({"nvidia.com/gpumem": "900"}, (), "nvidia.com/gpumem"),
        ({"nvidia.com/mig-1g.5gb": "7"}, (), "nvidia.com/mig-1g.5gb"),
        ({"tencent.com/vcuda-core": "100"}, (), "tencent.com/vcuda-core"),
        ({"aliyun.com/gpu-mem": "24"}, (), "aliyun.com/gpu-mem"),
        ({"elasticgpu.io/gpu-core": "100"}, (), "elasticgpu.io/gpu-core"),
        ({"volcano.sh/vgpu-number": "10"}, (), "volcano.sh/vgpu-number"),
        ({"nvshare.com/gpu": "10"}, (), "nvshare.com/gpu"),
        ({}, (pod("site/nvidia-sharing:1", more=REGISTERS),), "pod kube-system/p"),
        ({"baidu.com/vcuda-memory": "58"}, (), "offers our resources"),
    ],
)
def test_another_device_plugin(box: FakeBox, node: dict[str, str], pods: tuple[Any, ...], words: str) -> None:
    box.k3s(node={"allocatable": node}, pods=pods)
    assert words in the_one(found(box)).what


@pytest.mark.parametrize(
    ("node", "pods"),
    [
        ({"gpu.intel.com/i915": "1", "amd.com/gpu": "1", "nvidia.com/hostdev": "8", "site.io/fuse": "8"}, ()),
        ({"nvidia.com/gpu": "0"}, (pod("nvcr.io/nvidia/k8s-device-plugin:v0.17"),)),
        ({}, (pod("nvcr.io/nvidia/gpu-operator:v25.3.0"), pod("nvcr.io/nvidia/k8s/dcgm-exporter:4.1"))),
        ({}, (pod("site/nvidia-sharing:1", "Failed", more=REGISTERS), pod("site/fuse:1", more=REGISTERS))),
        ({}, (pod("nvcr.io/nvidia/cloud-native/sriov-network-device-plugin:v1", more=REGISTERS),)),
        (
            {},
            (pod("registry.gpu-lab.example/site/fuse@sha256:00", more=REGISTERS), pod("cuda:5000/kvm", more=REGISTERS)),
        ),
    ],
)
def test_what_serves_none_of_these_cards(box: FakeBox, node: dict[str, str], pods: tuple[Any, ...]) -> None:
    box.k3s(node={"allocatable": node}, pods=pods)
    assert found(box) == []


def test_a_plugin_of_any_name_is_known_by_the_ids_of_its_devices(box: FakeBox) -> None:
    box.k3s(node={"allocatable": {"site.io/slice": "4", "site.io/other": "1"}})
    devices = {"site.io/slice": [f"{UUID}-_-0"], "site.io/other": ["GPU-99999999-2222-3333-4444-555555555555"]}
    text = json.dumps({"Data": {"PodDeviceEntries": None, "RegisteredDevices": devices}, "Checksum": 1})
    box.write("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", text)
    finding = the_one(found(box))
    assert "site.io/slice" in finding.what
    assert "site.io/other" not in finding.what


def test_a_socket_counts_while_somebody_answers_on_it(box: FakeBox) -> None:
    box.k3s()
    folder = box.layout.at("/var/lib/kubelet/device-plugins")
    with served_socket(folder, "site-gpu.sock"), served_socket(folder, "kvm.sock"):
        finding = the_one(found(box))
        assert "socket site-gpu.sock" in finding.what
        assert "kvm" not in finding.what
        box.write(f"/proc/{os.getpid()}/maps", "7f00-7f01 r-xp 0 00:00 1 /usr/lib/libnvidia-ml.so.570.1\n")
        box.write(f"/proc/{os.getpid()}/cmdline", "/opt/sharing\0--node=x\0")
        finding = the_one(found(box))
        assert "socket kvm.sock" in finding.what
        assert "sharing answers on kvm.sock, and has loaded NVIDIA's driver" in finding.why
    box.write("/var/lib/kubelet/device-plugins/nvidia-gpu.sock", "")
    assert found(box) == []


def test_what_is_left_of_a_plugin_that_went_says_nothing(box: FakeBox) -> None:
    gone = {"allocatable": {"nvidia.com/gpu": "0", "baidu.com/vcuda-memory": "0"}, "capacity": {"nvidia.com/gpu": "2"}}
    box.k3s(node=gone, pods=(pod("nvidia/k8s-device-plugin:1", "Succeeded"),))
    assert found(box) == []


def test_our_own_resources_are_nobody_elses(box: FakeBox) -> None:
    box.k3s(node={"allocatable": {"baidu.com/vcuda-memory": "58"}})
    box.write("/etc/systemd/system/edgegpu-plugin.service", "")
    assert found(box) == []


def test_ways_into_containers(box: FakeBox) -> None:
    box.k3s(containerd=OLD_CONTAINERD)
    assert "device nodes" in the_one(found(box), FindingLevel.WARN).what
    box.k3s(version="v1.28.15+k3s1")
    said = the_one(found(box), FindingLevel.WARN)
    assert "device nodes" in said.what
    assert "kubelet v1.28.15+k3s1 passes no CDI devices on" in said.why
    box.k3s(containerd=NVIDIA)
    assert "runtimeClassName" in the_one(found(box), FindingLevel.WARN).remedy
    default = CONTAINERD + '[plugins."io.containerd.cri.v1.runtime".containerd]\ndefault_runtime_name = "nvidia"\n'
    box.k3s(containerd=default)
    assert "default runtime" in the_one(found(box), FindingLevel.WARN).what


@pytest.mark.parametrize("runtime", ["cri-o://1.33.2", "docker://28.3.0"])
def test_a_runtime_that_is_no_containerd_is_said_and_no_file_of_containerds_counts(box: FakeBox, runtime: str) -> None:
    node = {"nodeInfo": {"kubeletVersion": "v1.33.4", "containerRuntimeVersion": runtime}}
    box.k3s(node=node, containerd=OLD_CONTAINERD, config="container-runtime-endpoint: unix:///run/x.sock\n")
    box.write("/etc/containerd/config.toml", OLD_CONTAINERD)
    (finding,) = found(box)
    assert runtime in finding.what
    assert finding.level is FindingLevel.WARN
    assert ("device nodes" in finding.why) is ("docker" in runtime)
    assert box.facts().containerd is None
    box.write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    box.write("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n")
    assert refused(found(box, role=MachineRole.EXTENDER_ONLY)) == []


def test_kubeadms_dockershim_is_no_reason_to_refuse(box: FakeBox) -> None:
    box.write("/etc/kubernetes/kubelet.conf", "")
    node = {"status": {"nodeInfo": {"kubeletVersion": "v1.23.17", "containerRuntimeVersion": "docker://20.10.7"}}}
    box.program("kubectl", "", script=f"echo '{json.dumps({'items': [], **node})}'")
    finding = the_one(found(box), FindingLevel.WARN)
    assert finding.what == "the container runtime is docker://20.10.7"
    assert "kubelet v1.23.17 passes no CDI devices on" in finding.why


def test_a_containerd_that_k3s_does_not_start_has_a_file_of_its_own(box: FakeBox) -> None:
    node = {"nodeInfo": {"kubeletVersion": "v1.33.4", "containerRuntimeVersion": "containerd://1.7.20"}}
    box.k3s(node=node, config="container-runtime-endpoint: unix:///run/containerd/containerd.sock\n")
    box.write("/etc/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd -c /srv/c.toml\n")
    box.write("/srv/c.toml", "version = 2\n")
    facts = facts_of(box)
    assert (facts.runtime.config, facts.runtime.is_usual) == ("/srv/c.toml", False)
    said, cdi = found(box)
    assert (
        said.what
        == "k3s uses a container runtime that it does not start itself: unix:///run/containerd/containerd.sock"
    )
    assert "/srv/c.toml has CDI off" in cdi.why


def test_wsl2_is_said_to_an_extender_and_refused_where_cards_are_wanted(box: FakeBox) -> None:
    box.k3s()
    box.write("/dev/dxg", "")
    assert "WSL2" in the_one(found(box)).what
    assert "WSL2" in the_one(found(box, role=MachineRole.EXTENDER_ONLY), FindingLevel.WARN).what


@pytest.mark.parametrize(
    ("unit", "command", "name"),
    [
        ("snap.microk8s.daemon-kubelite", "/usr/bin/snap run microk8s.daemon-kubelite", "microk8s"),
        ("k0scontroller", "/usr/local/bin/k0s controller --single", "k0s"),
    ],
)
def test_a_kubernetes_that_edgegpu_does_not_run_on_is_named(box: FakeBox, unit: str, command: str, name: str) -> None:
    box.write(f"/etc/systemd/system/{unit}.service", f"[Service]\nExecStart={command}\n")
    finding = the_one(found(box))
    assert (finding.what, "install k3s" in finding.remedy) == (name, False)


@pytest.mark.parametrize(("version", "refuses"), [("390.157", True), ("418.226.00", False), ("535.309.01", False)])
def test_a_driver_that_is_too_old_is_refused(box: FakeBox, version: str, *, refuses: bool) -> None:
    box.k3s()
    folder = "/usr/lib/x86_64-linux-gnu"
    box.write(f"{folder}/libnvidia-ml.so.{version}", "")
    box.layout.at(f"{folder}/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{version}")
    findings = [(one.what, one.level) for one in found(box)]
    assert findings == ([(f"the NVIDIA driver {version}", FindingLevel.REFUSE)] if refuses else [])


def test_libraries_that_the_driver_asks_for_and_lacks_are_a_warning(box: FakeBox) -> None:
    box.k3s()
    folder = "/usr/lib/x86_64-linux-gnu"
    content = library(["libcuda.so.1"]) + b"\0libnvidia-ptxjitcompiler.so.1\0libnvidia-nvvm.so.4\0"
    box.write(f"{folder}/libcuda.so.1", "")
    box.layout.at(f"{folder}/libcuda.so.1").write_bytes(content)
    box.write(f"{folder}/libnvidia-nvvm.so.570.1", "")
    assert the_one(found(box), FindingLevel.WARN).what == "the driver lacks libnvidia-ptxjitcompiler.so.1"
    box.write(f"{folder}/libnvidia-ptxjitcompiler.so.570.1", "")
    assert found(box) == []


def test_a_driver_that_is_not_there_yet_is_a_warning(tmp_path: Path) -> None:
    box = FakeBox(tmp_path)
    box.k3s()
    box.write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    box.write("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n")
    assert the_one(found(box), FindingLevel.WARN).what == "1 NVIDIA card, and no driver"
    box.write("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "")
    warning = the_one(found(box), FindingLevel.WARN)
    assert warning.what == "1 NVIDIA card, and a driver that is installed and not loaded"
    assert (warning.why, "modprobe nvidia" in warning.remedy) == ("there is no /dev/nvidiactl", True)
    box.write("/proc/modules", "nouveau 2404352 0 - Live 0x0000000000000000\n")
    nouveau = the_one(found(box), FindingLevel.WARN)
    assert (nouveau.what, nouveau.why, "blacklist nouveau" in nouveau.remedy) == (
        warning.what,
        "nouveau holds the cards",
        True,
    )
    box.write("/proc/modules", "")
    box.write("/dev/nvidiactl", "")
    box.program("nvidia-smi", "NVIDIA-SMI has failed", code=9)
    assert the_one(found(box), FindingLevel.WARN).what == warning.what
