from pathlib import Path

import pytest
from kits.facts import SHOWN, FakeBox

from edgegpu_installer.machine.device_sockets import DeviceSocket
from edgegpu_installer.machine.facts import NodeKind
from edgegpu_installer.machine.k3s import K3s


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    return FakeBox(tmp_path)


def k3s_of(box: FakeBox) -> K3s:
    k3s = box.facts().k3s
    assert k3s is not None
    return k3s


def test_a_server_is_read_whole(box: FakeBox) -> None:
    box.k3s(node={"allocatable": {"cpu": "4"}})
    box.gpu()
    facts = box.facts()
    assert (facts.kind, facts.node_name, facts.machine != "") == (NodeKind.K3S_SERVER, "edge-1", True)
    assert facts.k3s is not None
    assert (facts.k3s.version, facts.k3s.minor, facts.k3s.unit.name) == ("v1.33.13+k3s1", 33, "k3s")
    assert (facts.k3s.health.active, facts.k3s.health.ready, facts.k3s.health.up_s) == (True, True, 99.0)
    assert facts.node is not None
    assert facts.node.ready
    assert facts.containerd is not None
    assert (facts.containerd.has_cdi(facts.node.versions), facts.containerd.systemd_cgroups) == (True, True)
    assert [card.name for card in facts.cards.cards] == ["Tesla T4"]
    assert (facts.node.why, facts.cards.why) == ("", "")
    assert facts.installed is None


DUMP = """\
version = 3
[plugins.'io.containerd.cri.v1.runtime']
enable_cdi = {enabled}
cdi_spec_dirs = ['/etc/cdi']
"""


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_containerds_own_reading_of_its_files_counts_before_ours(box: FakeBox, enabled: str) -> None:
    box.k3s(containerd="version = 2\n")
    program = box.root / "var/lib/rancher/k3s/data/current/bin/containerd"
    program.parent.mkdir(parents=True)
    box.executable(program, DUMP.format(enabled=enabled))
    support = box.facts().containerd
    assert support is not None
    assert (support.enable_cdi, support.cdi_folders) == (enabled == "true", ("/etc/cdi",))
    assert support.witness == "containerd (config dump)"


@pytest.mark.parametrize(("out", "code"), [("version = [", 0), (DUMP.format(enabled="false"), 1), ("", 0)])
def test_files_count_where_containerd_prints_no_configuration(box: FakeBox, out: str, code: int) -> None:
    box.k3s()
    program = box.root / "var/lib/rancher/k3s/data/current/bin/containerd"
    program.parent.mkdir(parents=True)
    box.executable(program, out, code)
    support = box.facts().containerd
    assert support is not None
    assert support.witness == "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"


def test_a_containerd_of_its_own_unit_is_asked_by_its_own_program(box: FakeBox) -> None:
    box.k3s(args="--container-runtime-endpoint=unix:///run/containerd/containerd.sock")
    box.write(
        "/usr/lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd -c /etc/ctd.toml\n"
    )
    box.write("/etc/ctd.toml", "version = 2\n")
    (box.root / "usr/bin").mkdir(parents=True, exist_ok=True)
    box.executable(box.root / "usr/bin/containerd", DUMP.format(enabled="true"))
    facts = box.facts()
    assert facts.containerd is not None
    assert (facts.runtime.config, facts.containerd.witness) == ("/etc/ctd.toml", "containerd (config dump)")


def test_nothing_at_all_is_read_as_that(box: FakeBox) -> None:
    facts = box.facts()
    assert (facts.kind, facts.k3s, facts.node, facts.cards.cards) == (NodeKind.NONE, None, None, ())
    assert "nvidiactl" in facts.cards.why


def test_a_unit_of_any_name_is_found_by_what_it_starts(box: FakeBox) -> None:
    box.k3s(unit="edge-cluster", args="--data-dir /data/k3s --node-name Box-7 --docker")
    box.write("/etc/systemd/system/other.service", "[Service]\nExecStart=/usr/bin/k3s-watcher server\n")
    k3s = k3s_of(box)
    assert (k3s.unit.name, k3s.data) == ("edge-cluster", "/data/k3s")
    assert k3s.effective().on("docker")
    assert k3s.scheduler_kubeconfig == "/data/k3s/server/cred/scheduler.kubeconfig"
    assert box.facts().node_name == "box-7"


def test_a_drop_in_that_starts_it_otherwise_counts(box: FakeBox) -> None:
    box.k3s()
    command = "/usr/local/bin/k3s server --config=/srv/k3s.yaml $MORE"
    text = f"[Service]\nExecStart=\nExecStart={command}\nEnvironment=MORE='--debug --docker'\n"
    box.write("/etc/systemd/system/k3s.service.d/10.conf", text)
    k3s = k3s_of(box)
    assert (k3s.config, k3s.drop_in) == ("/srv/k3s.yaml", "/srv/k3s.yaml.d/90-edgegpu.yaml")
    assert k3s.scheduler_file == "/srv/edgegpu-scheduler.yaml"


def test_variables_of_the_unit_count(box: FakeBox) -> None:
    box.k3s()
    box.write("/etc/systemd/system/k3s.service.env", "K3S_DATA_DIR='/x'\n# K3S_CONFIG_FILE=/no\n")
    assert k3s_of(box).data == "/x"


def test_configuration_is_read_with_its_drop_ins(box: FakeBox) -> None:
    box.k3s(config="kube-scheduler-arg: [v=2]\nkubelet-arg: [root-dir=/data/kubelet]\n")
    box.write("/etc/rancher/k3s/config.yaml.d/20-x.yaml", 'kube-scheduler-arg+: ["config=/etc/s.yaml"]\n')
    box.write("/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml", 'kube-scheduler-arg+: ["config=/ours"]\n')
    box.write("/etc/rancher/k3s/config.yaml.d/ignored.txt", "a: b\n")
    k3s = k3s_of(box)
    assert [Path(file.path).name for file in k3s.files] == ["config.yaml", "20-x.yaml", "90-edgegpu.yaml"]
    assert [(value.text, Path(value.source).name) for value in k3s.foreign_scheduler_files] == [
        ("/etc/s.yaml", "20-x.yaml")
    ]
    assert box.facts().kubelet_folder == "/data/kubelet"


def test_an_agent_is_asked_with_the_nodes_own_account(box: FakeBox) -> None:
    box.k3s("agent", unit="k3s-agent")
    facts = box.facts()
    assert facts.k3s is not None
    assert facts.kind is NodeKind.K3S_AGENT
    assert facts.k3s.health.ready is None
    assert facts.k3s.admin_kubeconfig.endswith("/agent/kubelet.kubeconfig")


def test_of_two_units_the_running_one_counts(box: FakeBox) -> None:
    box.k3s("agent", unit="k3s-agent")
    box.k3s("server", unit="k3s")
    stopped = SHOWN.replace("=active", "=inactive")
    box.program("systemctl", "", script=f"case $2 in k3s.service) echo '{stopped}';; *) echo '{SHOWN}';; esac")
    assert box.facts().kind is NodeKind.K3S_AGENT


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/etc/kubernetes/manifests/kube-scheduler.yaml", NodeKind.KUBEADM_SERVER),
        ("/etc/kubernetes/kubelet.conf", NodeKind.KUBEADM_NODE),
    ],
)
def test_kubeadm_is_known_by_its_files(box: FakeBox, file: str, kind: NodeKind) -> None:
    box.write("/etc/systemd/system/snap.microk8s.daemon-kubelite.service", "[Service]\nExecStart=/usr/bin/snap\n")
    box.write("/etc/systemd/system/k0sworker.service", "[Service]\nExecStart=/usr/local/bin/k0s worker\n")
    box.write(file, "")
    assert box.facts().kind is kind


def test_rke2_is_known_by_its_unit(box: FakeBox) -> None:
    box.write("/usr/local/lib/systemd/system/rke2-server.service", "[Service]\nExecStart=/usr/local/bin/rke2 server\n")
    assert box.facts().kind is NodeKind.RKE2


def test_what_fails_is_said_and_nothing_else_fails(box: FakeBox) -> None:
    box.k3s(ready=False, containerd="version = [")
    box.write("/etc/rancher/k3s/config.yaml", "kube-scheduler-arg: [")
    box.program("systemctl", "", code=1)
    (box.root / "usr/local/bin/k3s").write_text("#!/bin/sh\nexit 1\n")
    facts = box.facts()
    assert facts.k3s is not None
    assert not facts.k3s.health.active
    assert facts.node is not None
    assert facts.containerd is None
    assert not facts.k3s.version
    assert all((facts.node.why, facts.cards.why))
    assert facts.k3s.effective().problems


def test_a_program_that_hangs_is_left(box: FakeBox) -> None:
    box.program("nvidia-smi", "", script="sleep 60")
    box.write("/dev/nvidiactl", "")
    facts = box.facts(hostname=lambda: "x", timeout_s=1.0)
    assert "did not end" in facts.cards.why
    assert not facts.cards.driver


def test_cards_of_another_driver_root_are_asked_for_there(box: FakeBox) -> None:
    box.write("/sim/dev/nvidiactl", "")
    line = "GPU 0: Tesla T4 (UUID: GPU-aaaaaaaa-2222-3333-4444-555555555555)"
    box.write("/sim/usr/bin/nvidia-smi", f"#!/bin/sh\necho '{line}'\n").chmod(0o755)
    assert [card.name for card in box.facts(driver_root="/sim").cards.cards] == ["Tesla T4"]
    box.write("/etc/edgegpu/plugin.yaml", "version: 1\ndriver:\n  root: /sim\n")
    facts = box.facts()
    assert facts.driver_root == "/sim"
    assert facts.installed is not None
    assert len(facts.cards.cards) == 1


def test_cards_on_the_bus_without_a_driver_are_counted(box: FakeBox) -> None:
    box.write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    box.write("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
    box.write("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n")
    facts = box.facts()
    assert (facts.cards.on_bus, facts.cards.driver, facts.cards.cards) == (1, False, ())


def test_sockets_of_others_are_seen_and_ours_are_not(box: FakeBox) -> None:
    for name in ("kubelet.sock", "edgegpu/memory.sock", "nvidia-gpu.sock"):
        box.write(f"/var/lib/kubelet/device-plugins/{name}", "")
    assert box.facts().sockets == (DeviceSocket("nvidia-gpu.sock"),)
    box.k3s(args="--kubelet-arg=root-dir=/data/kubelet")
    assert box.facts().sockets == (DeviceSocket("nvidia-gpu.sock"),)
