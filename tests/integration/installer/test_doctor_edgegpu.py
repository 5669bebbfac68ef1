"""The doctor's checks of edgegpu's parts: green on a healthy box, red where it is harmed."""

from __future__ import annotations

import base64
import datetime as dt
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from kits.cli import CARD_0, CARD_1, pod
from kits.devicesocket import served_socket
from kits.doctor import Box
from kits.doctorserver import NOW

from edgegpu_installer.doctor.access import EXTENDER_RIGHTS, NODE_RIGHTS, ClusterRight
from edgegpu_installer.doctor.verdict import CheckLevel
from edgegpu_installer.plan import certificates

ROOT = Path(__file__).resolve().parents[3]


def test_a_plugin_that_does_not_run(box: Box) -> None:
    box.unit("edgegpu-plugin", ActiveState="activating", SubState="auto-restart", Result="exit-code")
    box.program("journalctl", "echo nothing special; echo cannot listen on 127.0.0.1:8787")
    box.stop_plugin()
    box.expect("plugin", CheckLevel.BROKEN, "activating (auto-restart, exit-code)", "systemctl restart edgegpu-plugin")
    assert "cannot listen on 127.0.0.1:8787" in box.see("plugin").details
    assert len(box.see("plugin").problems) == 1
    box.unit("edgegpu-plugin")
    box.expect("plugin", CheckLevel.BROKEN, "it is not running (no socket there)", "journalctl")


def test_a_machine_that_has_another_name_in_its_cluster(box: Box) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes")]
    names.append(x509.NameAttribute(NameOID.COMMON_NAME, "system:node:renamed"))
    name, day = x509.Name(names), dt.timedelta(days=1)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW - day, NOW + day).sign(key, hashes.SHA256())
    folder = "/var/lib/rancher/k3s/agent"
    users = [{"name": "user", "user": {"client-certificate": f"{folder}/client-kubelet.crt"}}]
    box.write(f"{folder}/kubelet.kubeconfig", yaml.safe_dump({"users": users}))
    assert box.see("plugin").level is CheckLevel.OK
    box.write(f"{folder}/client-kubelet.crt", made.public_bytes(Encoding.PEM).decode())
    box.expect("plugin", CheckLevel.BROKEN, "this machine is node renamed in its cluster", "sudo edgegpu install")
    box.configure(node_name="renamed")
    assert not [one for one in box.see("plugin").problems if "in its cluster" in one.text]


def test_what_holds_containers_is_not_known_while_the_plugin_does_not_run(box: Box) -> None:
    box.stop_plugin()
    assert box.see("limiter").level is CheckLevel.SKIPPED
    assert box.see("limiter").text.startswith("not looked at: cannot reach edgegpu-plugin")


def test_a_box_without_edgegpu(box: Box) -> None:
    for path in ("units/edgegpu-plugin", "etc/systemd/system/edgegpu-plugin.service", "etc/edgegpu/plugin.yaml"):
        box.at(path).unlink()
    box.at("/opt/edgegpu/current").unlink()
    box.expect("plugin", CheckLevel.BROKEN, "edgegpu is not installed", "sudo edgegpu install")
    assert box.see("extender").level is CheckLevel.SKIPPED
    assert box.see("limiter") == box.see("extender")


def test_a_plugin_that_does_not_start_with_the_machine_or_is_started_often(box: Box) -> None:
    again = {"NRestarts": "12", "ExecMainStartTimestampMonotonic": box.since_boot_us(ago_s=60)}
    box.unit("edgegpu-plugin", UnitFileState="disabled", NeedDaemonReload="yes", **again)
    box.expect("plugin", CheckLevel.BROKEN, "does not start with the machine", "systemctl enable")
    box.expect("plugin", CheckLevel.WARNING, "started again by systemd 12 times", "journalctl")
    box.expect("plugin", CheckLevel.WARNING, "unit file changed", "edgegpu install")


def test_a_configuration_that_cannot_be_used(box: Box) -> None:
    box.write("/etc/edgegpu/plugin.yaml", "version: 1\nrole: sever\n")
    box.expect("plugin", CheckLevel.BROKEN, "sever", "edgegpu config check")


def test_what_the_plugin_says_is_wrong(box: Box) -> None:
    box.status |= {
        "driver": {"version": "", "problem": "the NVIDIA driver is not loaded"},
        "api": {"synced": False, "problem": ""},
        "pods": [pod("face", 30, state="refused", reason="needs 30 vcuda-memory on one card")],
    }
    box.expect("plugin", CheckLevel.BROKEN, "the NVIDIA driver is not loaded", "driver")
    box.expect("plugin", CheckLevel.WARNING, "has not been read yet", "kubeconfig")
    box.expect("plugin", CheckLevel.WARNING, "baetyl-edge/face is refused: needs 30", "edgegpu pods")


def test_a_unit_that_waits_until_nobody_holds_a_share(box: Box) -> None:
    box.status["unit_wanted_mib"] = 512
    box.expect(
        "plugin", CheckLevel.WARNING, "resources.unit_mib is 512, and units are of 256 MiB", "set resources.unit_mib"
    )


def test_a_machine_without_systemd(box: Box) -> None:
    box.program("systemctl", "echo System has not been booted with systemd >&2; exit 1")
    box.expect("plugin", CheckLevel.BROKEN, "System has not been booted", "systemd")


def test_a_plugin_that_kubelet_does_not_know(box: Box) -> None:
    box.status["kubelet"] = {"registered": False, "waiting_for": "kubelet's socket /k/kubelet.sock"}
    text = "the plugin is not registered with kubelet: waiting for kubelet's socket /k/kubelet.sock"
    box.expect("resources", CheckLevel.BROKEN, text, "kubelet.device_plugins")


def test_a_kubelet_that_does_not_wait_for_the_devices_at_its_start(box: Box) -> None:
    assert not [line for line in box.see("resources").details if "at its start" in line], "an older plugin"
    kubelet = box.status["kubelet"]
    kubelet["start_wait"] = {"waits": True, "why": ""}
    assert "kubelet waits for the devices at its start: yes" in box.see("resources").details
    kubelet["start_wait"] = {"waits": None, "why": "kubelet has not started since the plugin did"}
    assert "at its start: not known: kubelet has not started since the plugin did" in box.see("resources").details[-1]
    kubelet["start_wait"] = {"waits": False, "why": "no lease on /k/resolv.conf: Invalid argument"}
    assert box.see("resources").level is CheckLevel.OK, "nobody has asked for it"
    assert "start: no: no lease on /k/resolv.conf: Invalid argument" in box.see("resources").details[-1]
    box.configure(kubelet={"resolv_conf": "/k/resolv.conf"})
    box.expect("resources", CheckLevel.WARNING, "does not wait for the devices at its start", "docs/box/restarts.md")
    box.configure(kubelet={"resolv_conf": "/k/resolv.conf", "wait_at_start": False})
    assert box.see("resources").level is CheckLevel.OK


def test_a_kubelet_with_another_root_than_the_file_has(box: Box) -> None:
    box.k3s("server", "--kubelet-arg=root-dir=/data/kubelet/")
    box.expect("resources", CheckLevel.BROKEN, "kubelet's --root-dir is /data/kubelet", "edgegpu install")


def test_a_pod_whose_many_devices_kubelet_names_in_its_status(box: Box) -> None:
    node = box.api.objects["/api/v1/nodes/box-1"]["status"]
    box.status["pods"] = [pod("large", 564, CARD_0, core=100), pod("small", 4, CARD_1)]
    node["nodeInfo"] = {"kubeletVersion": "v1.35.4+k3s1"}
    assert not box.see("resources").problems
    node["nodeInfo"] = {"kubeletVersion": "v1.36.3+k3s1"}
    box.expect(
        "resources", CheckLevel.INFO, "ids of 664 devices (56 kB) into the status of pod baetyl-edge/large", "costs.md"
    )
    assert "small" not in box.see("resources").text
    box.write(
        "/etc/rancher/k3s/config.yaml.d/20-ids.yaml", 'kubelet-arg+: ["feature-gates=ResourceHealthStatus=false"]'
    )
    assert not box.see("resources").problems


def test_a_plugin_whose_socket_kubelet_takes_for_connected(box: Box) -> None:
    why = "kubelet to take baidu.com/vcuda-core: unknown: device plugin already connected: /k/edgegpu/a.sock"
    box.status["kubelet"] = {"registered": False, "waiting_for": why}
    box.expect("resources", CheckLevel.BROKEN, "kubelet has dropped the plugin", "systemctl restart --no-block k3s")


def test_a_node_that_offers_nothing(box: Box) -> None:
    box.api.objects["/api/v1/nodes/box-1"]["status"]["allocatable"] = {"baidu.com/vcuda-core": "100"}
    text = (
        "kubelet does not know the plugin, or has dropped it: the node offers no baidu.com/vcuda-memory, the plugin 58"
    )
    box.expect("resources", CheckLevel.BROKEN, text, "restart edgegpu-plugin")
    box.expect("resources", CheckLevel.BROKEN, text, "help: sudo systemctl restart --no-block k3s")
    box.expect("resources", CheckLevel.WARNING, "offers 100 baidu.com/vcuda-core, the plugin 200", "sleep 15; ")


def test_a_node_of_another_name(box: Box) -> None:
    box.configure(node_name="box-2")
    assert box.see("resources").level is CheckLevel.SKIPPED


def test_resources_of_a_plugin_that_is_down_are_told_by_the_plugins_check(box: Box) -> None:
    box.stop_plugin()
    verdict = box.see("resources")
    assert verdict.level is CheckLevel.SKIPPED
    assert "(see the check `plugin`)" in verdict.text


def test_another_device_plugin(box: Box) -> None:
    folder = box.at("/var/lib/kubelet/device-plugins")
    with served_socket(folder, "kvm.sock"):
        assert box.see("double").details == ("sockets of other plugins: kvm.sock",)
    with served_socket(folder, "nvidia-gpu.sock"):
        box.expect("double", CheckLevel.BROKEN, "socket nvidia-gpu.sock hands out the same cards", "DaemonSet")
    box.node("projecthami/hami:v2.9", **{"nvidia.com/gpumem": "16000"})
    box.expect("double", CheckLevel.BROKEN, "nvidia.com/gpumem hands out the same cards", "DaemonSet")


def test_what_another_device_plugin_left_behind(box: Box) -> None:
    box.write("/var/lib/kubelet/device-plugins/nvidia-gpu.sock", "")
    box.node("nvcr.io/nvidia/gpu-operator:v25.3.0", **{"other.io/gpu": "0"})
    double = box.see("double")
    assert (double.level, double.details) == (
        CheckLevel.OK,
        ("names beside them on which nobody answers: nvidia-gpu.sock",),
    )


def test_an_extender_that_is_down(box: Box) -> None:
    box.stop_extender()
    box.expect("extender", CheckLevel.BROKEN, "nobody listens on 127.0.0.1:", "systemctl restart edgegpu-plugin")


def test_an_extender_that_is_not_well(box: Box) -> None:
    box.health.well, box.health.words = False, "not in step with the API server"
    box.expect("extender", CheckLevel.BROKEN, "503 not in step with the API server", "edgegpu status")


def test_a_scheduler_with_another_authority(box: Box) -> None:
    box.certificates = certificates.make(NOW)
    box.scheduler_file()
    box.expect("extender", CheckLevel.BROKEN, "is not valid for the scheduler", "edgegpu install")


def test_a_scheduler_with_a_certificate_of_another_authority(box: Box) -> None:
    other = certificates.make(NOW).client
    pair = {"certData": other.cert, "keyData": other.key}
    box.scheduler_file(tls_changes={key: base64.b64encode(pem.encode()).decode() for key, pem in pair.items()})
    box.expect("extender", CheckLevel.BROKEN, "the scheduler's certificate", "edgegpu install")


def test_a_scheduler_that_expects_another_name(box: Box) -> None:
    box.scheduler_file(tls_changes={"serverName": "somebody-else"})
    box.expect("extender", CheckLevel.BROKEN, "is not valid for the scheduler: Hostname mismatch", "edgegpu install")


def test_a_scheduler_that_does_not_check_or_show_certificates(box: Box) -> None:
    box.scheduler_file(tls_changes={"caData": "", "certData": ""})
    box.expect("extender", CheckLevel.BROKEN, "does not check whom it talks to", "edgegpu install")
    box.expect("extender", CheckLevel.BROKEN, "no certificate for the extender", "edgegpu install")


def test_a_scheduler_that_calls_another_port_or_goes_on_without_us(box: Box) -> None:
    box.scheduler_file(urlPrefix="https://127.0.0.1:9", ignorable=True)
    box.expect("extender", CheckLevel.BROKEN, "the scheduler calls 127.0.0.1:9", "edgegpu install")
    box.expect("extender", CheckLevel.WARNING, "ignorable: true", "edgegpu install")


def test_a_scheduler_file_that_is_none(box: Box) -> None:
    box.write("/etc/rancher/k3s/edgegpu-scheduler.yaml", "extenders: [")
    box.expect("extender", CheckLevel.BROKEN, "not a scheduler file", "edgegpu install")
    box.at("/etc/rancher/k3s/edgegpu-scheduler.yaml").unlink()
    box.expect("extender", CheckLevel.BROKEN, "there is no scheduler file", "edgegpu install")


def test_an_agent_node_has_no_extender(box: Box) -> None:
    box.configure(role="agent")
    assert box.see("extender").level is CheckLevel.SKIPPED


def test_certificates_that_end(box: Box) -> None:
    box.now = NOW + dt.timedelta(days=365 * 20 - 30)
    box.expect("certificates", CheckLevel.WARNING, "the scheduler's client certificate ends in", "edgegpu install")
    box.now = NOW + dt.timedelta(days=365 * 21)
    box.expect("certificates", CheckLevel.BROKEN, "/etc/edgegpu/extender/server.crt has ended", "edgegpu install")


def test_certificates_of_k3s(box: Box) -> None:
    box.write("/var/lib/rancher/k3s/agent/client-kubelet.crt", box.certificates.client.cert)
    box.now = NOW + dt.timedelta(days=365 * 20 - 30)
    box.expect("certificates", CheckLevel.WARNING, "k3s's client-kubelet.crt ends in", "systemctl restart")


def test_a_certificate_that_is_none(box: Box) -> None:
    box.write("/etc/edgegpu/extender/server.crt", "nothing")
    box.expect("certificates", CheckLevel.BROKEN, "server.crt is no certificate", "edgegpu install")


def test_a_server_that_is_down(box: Box) -> None:
    box.api.stop()
    box.expect(
        "kubeconfig", CheckLevel.BROKEN, "cannot reach the API server http://127.0.0.1", "systemctl status 'k3s*'"
    )
    assert "the API server's clock is not known" in box.see("clock").details
    box.api = type(box.api)()


def test_an_account_that_is_gone(box: Box) -> None:
    box.api.refuses = 401
    box.expect("kubeconfig", CheckLevel.BROKEN, "refuses the account", "edgegpu install")
    box.api.refuses = 503
    box.expect("kubeconfig", CheckLevel.BROKEN, "answers 503", "journalctl -u k3s")


def test_rights_that_are_missing(box: Box) -> None:
    box.api.denied = {"get nodes/proxy", "create pods/binding"}
    box.expect("kubeconfig", CheckLevel.WARNING, "may not get nodes/proxy", "edgegpu install")
    box.expect("kubeconfig", CheckLevel.BROKEN, "may not create pods/binding", "edgegpu install")
    box.configure(role="agent")
    assert box.see("kubeconfig").level is CheckLevel.WARNING


def test_a_kubeconfig_that_is_missing_open_or_the_administrators(box: Box) -> None:
    path = box.at("/etc/edgegpu/kubeconfig")
    path.chmod(0o644)
    box.write("/etc/rancher/k3s/k3s.yaml", path.read_text())
    box.expect("kubeconfig", CheckLevel.WARNING, "can be read by others", "chmod 600")
    box.expect("kubeconfig", CheckLevel.WARNING, "admin kubeconfig", "edgegpu install")
    path.unlink()
    box.expect("kubeconfig", CheckLevel.BROKEN, "No such file", "edgegpu install")


@pytest.mark.parametrize(("role", "rights"), [("edgegpu-node", NODE_RIGHTS), ("edgegpu-extender", EXTENDER_RIGHTS)])
def test_every_right_that_is_asked_for_is_in_the_example(role: str, rights: tuple[ClusterRight, ...]) -> None:
    items = yaml.safe_load_all((ROOT / "docs/examples/rbac.yaml").read_text(encoding="utf-8"))
    (found,) = [item for item in items if item["kind"] == "ClusterRole" and item["metadata"]["name"] == role]
    granted = {(verb, name) for rule in found["rules"] for name in rule["resources"] for verb in rule["verbs"]}
    assert {(right.verb, right.resource) for right in rights} <= granted


def test_an_agent_node_that_acts_as_its_own_kubelet(box: Box) -> None:
    made = box.certificates.client
    pems = {"client-certificate-data": made.cert, "client-key-data": made.key}
    box.kubeconfig({key: base64.b64encode(pem.encode()).decode() for key, pem in pems.items()})
    box.configure(role="agent")
    box.api.denied = {"get nodes/proxy", "patch pods"}
    box.expect("kubeconfig", CheckLevel.INFO, "acts as its own kubelet", "--join")
    assert box.see("kubeconfig").level is CheckLevel.OK
    box.api.denied |= {"patch pods/status", "list pods"}
    box.expect("kubeconfig", CheckLevel.BROKEN, "may not list pods", "edgegpu install")
    box.expect("kubeconfig", CheckLevel.WARNING, "may not patch pods/status", "edgegpu install")
