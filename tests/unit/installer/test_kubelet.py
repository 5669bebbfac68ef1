"""A kubelet of its own: what its process, its unit and its files say, in this order."""

from pathlib import Path

import pytest
from kits.facts import FakeBox

from edgegpu_installer.machine.kubelet import Kubelet

UNIT = "/usr/lib/systemd/system/kubelet.service"
KUBEADM = """\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/b.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""
KUBESPRAY = """\
[Service]
EnvironmentFile=-/etc/kubernetes/kubelet.env
ExecStart=/usr/local/bin/kubelet \\
\t\t$KUBE_LOG_LEVEL \\
\t\t$KUBELET_HOSTNAME \\
\t\t$KUBELET_ARGS
"""
KUBESPRAY_VARIABLES = """\
KUBE_LOG_LEVEL="--v=2"
KUBELET_HOSTNAME="--hostname-override=Node-7"
KUBELET_ARGS="--config=/etc/kubernetes/kubelet-config.yaml \\
--kubeconfig=/etc/kubernetes/node.conf \\
--root-dir=/srv/kubelet "
PATH=/usr/local/bin:/usr/bin
"""


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    box = FakeBox(tmp_path)
    box.write("/etc/kubernetes/kubelet.conf", "")
    return box


def read(box: FakeBox) -> Kubelet:
    return box.facts().kubelet


def test_without_a_word_of_its_own_it_has_its_defaults(box: FakeBox) -> None:
    facts = box.facts()
    assert (facts.node_name, facts.kubelet_folder) == ("edge-1", "/var/lib/kubelet")
    assert (facts.kubelet.kubelet_kubeconfig, facts.kubelet.endpoint) == ("/etc/kubernetes/kubelet.conf", "")


def test_kubeadms_unit_with_its_files_of_variables(box: FakeBox) -> None:
    box.write(UNIT, "[Service]\nExecStart=/usr/bin/kubelet\n")
    box.write(f"{UNIT}.d/10-kubeadm.conf", KUBEADM)
    socket = "unix:///run/containerd/containerd.sock"
    box.write("/var/lib/kubelet/kubeadm-flags.env", 'KUBELET_KUBEADM_ARGS="--hostname-override=gpu-1"\n')
    box.write("/var/lib/kubelet/config.yaml", f"containerRuntimeEndpoint: {socket}\n")
    box.write("/etc/default/kubelet", 'KUBELET_EXTRA_ARGS="--root-dir /data/kubelet/ --v=2"\n')
    facts = box.facts()
    assert (facts.node_name, facts.kubelet_folder, facts.kubelet.endpoint) == ("gpu-1", "/data/kubelet", socket)


def test_kubesprays_unit_with_its_file_of_variables(box: FakeBox) -> None:
    box.write("/etc/systemd/system/kubelet.service", KUBESPRAY)
    box.write("/etc/kubernetes/kubelet.env", KUBESPRAY_VARIABLES)
    box.write("/etc/kubernetes/kubelet-config.yaml", "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n")
    kubelet = read(box)
    assert (kubelet.node_name, kubelet.kubelet_folder, kubelet.kubelet_kubeconfig) == (
        "node-7",
        "/srv/kubelet",
        "/etc/kubernetes/node.conf",
    )
    assert kubelet.endpoint == "unix:///run/crio/crio.sock"


def test_the_running_process_counts_before_its_files(box: FakeBox) -> None:
    box.write("/etc/systemd/system/kubelet.service", KUBESPRAY)
    box.write("/etc/kubernetes/kubelet.env", KUBESPRAY_VARIABLES)
    words = ("/usr/local/bin/kubelet", "--hostname-override=as-it-runs", "--config=/nowhere", "")
    box.write("/proc/77/cmdline", "\0".join(words))
    box.program("systemctl", "MainPID=77")
    assert read(box).node_name == "as-it-runs"
    assert read(box).kubelet_folder == "/var/lib/kubelet"
    box.write("/proc/77/cmdline", "/usr/bin/other\0--hostname-override=x\0")
    assert read(box).node_name == "node-7"
    box.program("systemctl", "MainPID=0")
    assert read(box).node_name == "node-7"


def test_a_node_of_kubeadms_is_read_by_kubectl_with_kubelets_kubeconfig(box: FakeBox) -> None:
    box.write("/etc/default/kubelet", 'KUBELET_EXTRA_ARGS="--kubeconfig=/srv/node.conf --hostname-override=n1"\n')
    node = '{"status": {"nodeInfo": {"kubeletVersion": "v1.24.17", "containerRuntimeVersion": "containerd://2.1.0"}}}'
    script = (
        f"""case "$*" in *" {box.layout.at("/srv/node.conf")} "*"get node n1 "*) echo '{node}';; *) exit 2;; esac"""
    )
    box.program("kubectl", "", script=script)
    facts = box.facts()
    assert facts.node is not None
    assert facts.node.versions.runtime == "containerd://2.1.0"
    assert facts.scheduler_minor == 24
