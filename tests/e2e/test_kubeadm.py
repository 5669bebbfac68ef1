"""kubeadm: a transaction over a static pod's manifest, with a real kubelet that runs a real kube-scheduler from it."""

import datetime as dt
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.cluster import grant
from e2e.conftest import LOGS, insert_cards
from e2e.k3s import EXTENDER, K3s
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import PluginNode, cards
from lab.kubeadmkit import MANIFEST, MANIFESTS, TEXT, lay_manifest, up_control_plane
from lab.labkit import LabError, Node, down, wait_until

from edgegpu_installer import certificates, schedulerfile
from edgegpu_installer.kubeadm_manifest import FOLDER, KUBECONFIG, SCHEDULER_FILE

NODE, NAMESPACE = "kubeadm", "baetyl-edge"
WANTED = "/run/wanted-scheduler.yaml"
RUNNER = Path(__file__).resolve().parents[1] / "lab/kubeadmrun.py"


class Plane:
    """The node with the scheduler in a static pod, and the plugin beside it."""

    def __init__(self, cluster: K3s, server: Node, scheduler_file: str) -> None:
        self.cluster = cluster
        self.server = server
        self.scheduler_file = scheduler_file

    def run(self, *words: str) -> dict[str, Any]:
        """Do a transaction in the node; returns its outcome."""
        done = self.server.exec(sys.executable, str(RUNNER), *words, NODE, timeout_s=300)
        outcome: dict[str, Any] = json.loads(done.stdout)
        return outcome

    def install(self, content: str) -> dict[str, Any]:
        """Give the scheduler a file."""
        self.server.write(WANTED, content, mode=0o600)
        return self.run("install", WANTED)

    def scheduler(self) -> dict[str, Any]:
        """The scheduler's mirror pod."""
        return self.cluster.get("pod", f"kube-scheduler-{NODE}", namespace="kube-system")

    def container(self) -> tuple[str, bool]:
        """The scheduler's container, and whether it is ready."""
        status = (self.scheduler()["status"].get("containerStatuses") or [{}])[0]
        return status.get("containerID", ""), status.get("ready", False)

    def recovers(self) -> None:
        """Wait until the scheduler of the manifest that was put back is ready."""
        wait_until(lambda: self.container()[1], what="the scheduler is ready again", timeout_s=90, every_s=0.3)

    def place(self, name: str) -> None:
        """A pod with a share is placed through the extender, and runs."""
        self.cluster.apply(pod(name, pod_spec(container(memory=2, core=1)), namespace=NAMESPACE))
        placed = self.cluster.wait_phase(NAMESPACE, name, "Running")
        assert "edgegpu.io/cards" in placed["metadata"]["annotations"]
        assert len(self.cluster.sees(NAMESPACE, name)) == 1

    def manifest(self) -> tuple[bytes, int]:
        """The manifest's bytes and mode."""
        path = self.server.path(MANIFEST)
        return path.read_bytes(), path.stat().st_mode & 0o7777


@pytest.fixture(scope="module")
def plane(simdriver_build: Path) -> Iterator[Plane]:
    LOGS.mkdir(parents=True, exist_ok=True)
    down(NODE)
    server = up_control_plane(NODE)
    cluster = K3s(server)
    plugin = PluginNode(server, role="server", build=simdriver_build, logs=LOGS)
    plugin.log_file.unlink(missing_ok=True)
    cluster.nodes[NODE] = plugin
    try:
        made = certificates.make(dt.datetime.now(dt.UTC))
        server.write("/etc/edgegpu/extender/ca.crt", made.ca)
        server.write("/etc/edgegpu/extender/server.crt", made.server.cert)
        server.write("/etc/edgegpu/extender/server.key", made.server.key, mode=0o600)
        grant(cluster)
        plugin.configure(extender={"listen": EXTENDER})
        cluster.kubectl("create", "namespace", NAMESPACE)
        insert_cards(cluster, {NODE: cards(7611)})
        lay_manifest(server)
        extender = schedulerfile.Extender(ca=made.ca, cert=made.client.cert, key=made.client.key)
        yield Plane(cluster, server, schedulerfile.render(extender, kubeconfig=KUBECONFIG))
    finally:
        plugin.stop()
        down(NODE)


def test_changed_verified_rolled_back_and_uninstalled(plane: Plane) -> None:
    before = plane.manifest()
    first, _ = plane.container()

    done = plane.install(plane.scheduler_file)
    assert (done["state"], done["changed"]) == ("COMMITTED", True), done
    second, ready = plane.container()
    assert ready
    assert second != first
    plane.place("through-the-extender")
    plane.cluster.report("kubeadm_install_s", [done["took_s"]], limit=120)

    again = plane.install(plane.scheduler_file)
    assert (again["state"], again["changed"]) == ("COMMITTED", False)
    assert plane.container() == (second, True), "the scheduler was started anew for nothing"

    ours = plane.manifest()
    bad = plane.install(plane.scheduler_file.replace("extenders:", "extenderz:"))
    assert (bad["state"], bad["changed"]) == ("ROLLED_BACK", False), bad
    assert "unknown field" in bad["why"]
    assert "extenderz" in bad["why"]
    assert plane.manifest() == ours
    assert plane.server.path(SCHEDULER_FILE).read_text() == plane.scheduler_file
    plane.recovers()
    plane.place("after-the-bad-file")

    gone = plane.run("uninstall")
    assert gone["state"] == "COMMITTED", gone
    assert plane.manifest() == before == (TEXT.encode(), 0o600)
    assert not plane.server.path(FOLDER).exists()
    assert plane.container()[1]
    volumes = plane.scheduler()["spec"]["volumes"]
    assert [volume["name"] for volume in volumes] == ["kubeconfig"]


def test_kubelet_passes_over_dot_files_and_over_no_others(plane: Plane) -> None:
    """What is staged beside a manifest must not be taken for one; a copy with another ending would be."""
    folder = plane.server.path(MANIFESTS)

    def static(name: str) -> str:
        metadata = {"name": name, "namespace": NAMESPACE}
        spec = pod_spec(container()) | {"hostNetwork": True}
        return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    (folder / ".kube-scheduler.yaml.edgegpu-new").write_text(static("staged"))
    (folder / ".kube-scheduler.yaml.edgegpu-old").write_text(static("kept"))
    (folder / "copy.bak").write_text(static("copy"))
    try:
        wait_until(lambda: _named(plane, "copy"), what="the copy runs", timeout_s=60, every_s=0.3)
        plane.server.restart()  # a kubelet that starts lists the folder by another way than by events
        wait_until(lambda: _named(plane, "copy"), what="the copy runs still", timeout_s=60, every_s=0.3)
        assert not _named(plane, "staged")
        assert not _named(plane, "kept")
    finally:
        for name in (".kube-scheduler.yaml.edgegpu-new", ".kube-scheduler.yaml.edgegpu-old", "copy.bak"):
            (folder / name).unlink()


def _named(plane: Plane, name: str) -> bool:
    try:
        found = plane.cluster.get("pod", f"{name}-{NODE}", namespace=NAMESPACE)
    except LabError:
        return False
    return bool(found["status"].get("phase") == "Running")
