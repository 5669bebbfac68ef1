"""The doctor's checks of the way of a card into a container: green on a healthy box, red where it is harmed."""

from __future__ import annotations

import json
import tomllib

from kits.cli import CARD_0, CARD_1, pod
from kits.doctor import Box
from kits.doctorserver import CONTAINERD
from kits.runtime import container_runtime

from edgegpu_base.containerd import K3S_SOCKET
from edgegpu_core.injection import ContainerdSupport, NodeVersions
from edgegpu_installer.doctor.verdict import CheckLevel


def test_containerd_without_cdi(box: Box) -> None:
    config = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
    box.write(config, CONTAINERD.replace("enable_cdi = true", "enable_cdi = false"))
    box.expect("runtime", CheckLevel.BROKEN, "has CDI off", "take enable_cdi = false out of the template")
    box.write(config, CONTAINERD.replace("version = 3", "version = 2").replace("cri.v1.runtime", "grpc.v1.cri"))
    assert box.see("runtime").level is CheckLevel.OK
    box.write(config, "version = 2\n")
    box.expect("runtime", CheckLevel.BROKEN, "has CDI off", "upgrade k3s to 1.29")
    box.write(config, CONTAINERD.replace(', "/var/run/cdi"', ""))
    box.expect("runtime", CheckLevel.BROKEN, "reads CDI specs from /etc/cdi", "driver.cdi_folder")
    box.write(config, "version = [")
    box.expect("runtime", CheckLevel.BROKEN, "cannot read containerd's configuration", "restart --no-block k3s")
    box.at(config).unlink()
    box.expect("runtime", CheckLevel.WARNING, "no configuration of containerd", "driver.containerd_config")


def test_the_running_containerd_counts_before_its_file(box: Box) -> None:
    box.write("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = [")
    socket = box.at(K3S_SOCKET)
    socket.parent.mkdir(parents=True)
    runc = {"defaultRuntimeName": "runc", "runtimes": {"runc": {"options": {"SystemdCgroup": True}}}}
    for enabled in (True, False):
        config = {"containerd": runc, "enableCDI": enabled, "cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"]}
        with container_runtime(socket, {}, information={"config": json.dumps(config)}):
            check = box.see("runtime")
        assert f"containerd (asked on {K3S_SOCKET}), cgroups by systemd" in check.details
        assert check.level is (CheckLevel.OK if enabled else CheckLevel.BROKEN)
        assert enabled or "set enable_cdi = true in the template of /var/lib" in check.problems[0].remedy


def test_a_containerd_from_before_cdi_has_no_setting_to_change(box: Box) -> None:
    socket = box.at(K3S_SOCKET)
    socket.parent.mkdir(parents=True)
    answer = json.dumps({"containerd": {"defaultRuntimeName": "runc", "runtimes": {}}})
    with container_runtime(socket, {}, information={"config": answer}):
        box.expect("runtime", CheckLevel.BROKEN, "has CDI off", "upgrade k3s to 1.29")


def test_a_kubelet_that_ignores_cdi(box: Box) -> None:
    box.k3s_program("v1.28.15+k3s1")
    box.expect("runtime", CheckLevel.BROKEN, "kubelet v1.28.15+k3s1 passes no CDI devices on", "driver.injection")
    box.status["injection"] = {"mode": "devices", "why": "kubelet is given device nodes and files"}
    assert box.see("runtime").level is CheckLevel.OK


def test_a_container_that_runs_without_its_card(box: Box) -> None:
    box.status["pods"] = [pod("p", 4, CARD_0, namespace="ns", state="cardless", reason="runs without its card 0")]
    box.expect("runtime", CheckLevel.BROKEN, "pod ns/p, container main: runs without its card 0", "delete pod -n ns p")


def test_a_runtime_that_is_no_containerd(box: Box) -> None:
    node = box.api.objects["/api/v1/nodes/box-1"]["status"]
    node["nodeInfo"] = {"kubeletVersion": "v1.33.4+k3s1", "containerRuntimeVersion": "cri-o://1.33.2"}
    box.at("/var/lib/rancher/k3s/agent/etc/containerd/config.toml").unlink()
    box.expect("runtime", CheckLevel.WARNING, "the container runtime is cri-o://1.33.2", "CDI specs")
    node["nodeInfo"]["containerRuntimeVersion"] = "docker://28.3.0"
    box.expect("runtime", CheckLevel.BROKEN, "docker://28.3.0 passes no CDI devices on", "driver.injection")
    box.status["injection"] = {"mode": "devices", "why": "docker://28.3.0 passes no CDI devices on"}
    box.expect("runtime", CheckLevel.WARNING, "the container runtime is docker://28.3.0", "nvidia-smi -L")


def test_an_nvidia_default_runtime_beside_cdi(box: Box) -> None:
    box.write(
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        CONTAINERD + "[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'nvidia'\n",
    )
    box.expect("runtime", CheckLevel.WARNING, "default runtime is nvidia", "default-runtime")


def test_an_nvidia_default_runtime_of_an_old_containerd(box: Box) -> None:
    text = (
        "[plugins.cri.containerd]\ndefault_runtime_name = 'nvidia'\n"
        "[plugins.cri.containerd.runtimes.nvidia.options]\nSystemdCgroup = true\n"
    )
    support = ContainerdSupport.of("config.toml", [tomllib.loads(text)])
    assert (support.default_runtime, support.systemd_cgroups) == ("nvidia", True)
    assert not support.has_cdi(NodeVersions())
    assert not support.nvidia_runtime, "its containers get device nodes"
    box.write("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", text)
    by_nvidia(box, says("all"), runtime_class="")
    box.expect("visible", CheckLevel.WARNING, "container c0: it sees the cards", "void")


def test_an_agent_node_is_told_its_own_units_name(box: Box) -> None:
    for name in ("units/k3s", "etc/systemd/system/k3s.service"):
        box.at(name).unlink()
    box.k3s("agent", name="k3s-agent")
    box.status["injection"] = {"mode": "runtime", "why": "driver.injection says so"}
    box.status["kubelet"] = {"registered": True, "checkpoint": "no JSON"}
    box.expect("runtime", CheckLevel.BROKEN, "no nvidia runtime", "restart --no-block k3s-agent")
    box.expect("resources", CheckLevel.BROKEN, "book cannot be read", "restart --no-block k3s-agent")


def test_the_nvidia_runtime_and_its_class(box: Box) -> None:
    box.status["injection"] = {"mode": "runtime", "why": "driver.injection says so"}
    box.expect("runtime", CheckLevel.BROKEN, "no nvidia runtime", "nvidia-container-toolkit")
    box.expect("runtime", CheckLevel.BROKEN, "no RuntimeClass nvidia", "kubectl apply")
    box.api.objects["/apis/node.k8s.io/v1/runtimeclasses/nvidia"] = {"handler": "nvidia"}
    box.write(
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        CONTAINERD + "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]\nruntime_type = 'x'\n",
    )
    assert box.see("runtime").level is CheckLevel.OK


def test_a_cdi_spec_whose_files_are_gone(box: Box) -> None:
    box.cdi_spec(library="/usr/lib/libcuda.so.1.2")
    box.expect("cdi", CheckLevel.BROKEN, "/usr/lib/libcuda.so.1.2, which is not there", "restart edgegpu-plugin")


def test_a_cdi_spec_whose_hook_lacks_or_is_gone(box: Box) -> None:
    box.cdi_spec(hook="")
    box.expect("cdi", CheckLevel.WARNING, "no hook for loader caches: Triton", "restart edgegpu-plugin")
    gone = "/opt/edgegpu/0.1/limiter/edgegpu-loader-cache"
    box.cdi_spec(hook=gone)
    box.expect(
        "cdi", CheckLevel.BROKEN, f"{gone}, which is not there: containers do not start", "restart edgegpu-plugin"
    )


def test_a_cdi_spec_without_a_card_or_with_a_double(box: Box) -> None:
    box.cdi_spec(CARD_0)
    box.expect("cdi", CheckLevel.BROKEN, f"lacks card 1 ({CARD_1})", "restart edgegpu-plugin")
    box.write("/etc/cdi/old.json", json.dumps({"kind": "edgegpu.io/gpu", "devices": []}))
    box.expect(
        "cdi", CheckLevel.BROKEN, "/etc/cdi/old.json names devices of edgegpu.io/gpu too", "rm /etc/cdi/old.json"
    )


def test_no_cdi_spec_and_one_that_is_none(box: Box) -> None:
    box.write("/var/run/cdi/edgegpu.json", "{}")
    box.expect("cdi", CheckLevel.BROKEN, "is no CDI spec", "rm")
    box.at("/var/run/cdi/edgegpu.json").unlink()
    box.expect("cdi", CheckLevel.BROKEN, "there is no CDI spec", "restart edgegpu-plugin")
    box.status["injection"] = {"mode": "runtime"}
    assert box.see("cdi").level is CheckLevel.SKIPPED


def test_missing_device_links(box: Box) -> None:
    box.at("dev/char/1:3").unlink()
    box.expect("cgroups", CheckLevel.WARNING, "2 links in /dev/char are missing", "restart edgegpu-plugin")
    assert box.see("cgroups").details == ("/dev/char/1:3 for /dev/nvidia0", "/dev/char/1:3 for /dev/nvidiactl")
    box.write("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", CONTAINERD.replace("true", "false"))
    box.expect("cgroups", CheckLevel.WARNING, "2 links", "restart edgegpu-plugin")


def by_nvidia(box: Box, *containers: dict[str, object], runtime_class: str = "nvidia", phase: str = "Running") -> None:
    """Let one pod with these containers run on the node."""
    named = [{"name": f"c{number}", **one} for number, one in enumerate(containers)]
    spec = {"containers": named, "runtimeClassName": runtime_class}
    item = {"metadata": {"namespace": "ns", "name": "p"}, "spec": spec, "status": {"phase": phase}}
    box.write("pods.json", json.dumps({"items": [item]}))


SHARE: dict[str, object] = {"resources": {"limits": {"baidu.com/vcuda-memory": "4", "baidu.com/vcuda-core": "10"}}}


def says(value: str) -> dict[str, object]:
    return {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]}


def test_a_container_that_sees_cards_past_its_share(box: Box) -> None:
    assert box.see("visible").level is CheckLevel.OK
    by_nvidia(box, says("all"))
    box.expect(
        "visible", CheckLevel.WARNING, "pod ns/p, container c0: it sees the cards NVIDIA_VISIBLE_DEVICES=all", "void"
    )
    by_nvidia(box, SHARE | says("0"))
    box.expect("visible", CheckLevel.WARNING, "NVIDIA_VISIBLE_DEVICES=0 past its share", "deny-all-cards")
    by_nvidia(box, {})
    box.expect("visible", CheckLevel.WARNING, "it has no share, and sees every card if its image says", "void")
    by_nvidia(box, SHARE, says("void"), says("none"))
    assert box.see("visible").level is CheckLevel.OK
    by_nvidia(box, says("all"), phase="Succeeded")
    assert box.see("visible").level is CheckLevel.OK


def test_by_the_default_runtime_a_container_that_names_none_sees_cards_too(box: Box) -> None:
    by_nvidia(box, says("all"), runtime_class="")
    assert box.see("visible").level is CheckLevel.OK
    box.write(
        "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        CONTAINERD + "[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'nvidia'\n",
    )
    box.expect("visible", CheckLevel.WARNING, "container c0: it sees the cards", "void")
    by_nvidia(box, {}, runtime_class="")
    assert box.see("visible").level is CheckLevel.OK  # its image may say so: that is told by the check `runtime`
