"""kubeadm: `edgegpu install` and `uninstall`, with a real kubelet that runs a real kube-scheduler as a static pod."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.conftest import LOGS, units
from e2e.k3s import K3s, measured
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import DRIVER_ROOT, PluginNode, cards
from lab.kubeadmkit import (
    IMAGE,
    MANIFEST,
    MANIFESTS,
    REFUSES,
    REFUSING,
    RELEASE,
    TEXT,
    lay_manifest,
    lay_release,
    up_control_plane,
)
from lab.labkit import LabError, Node, down, missing, wait_until

from edgegpu_installer.scheduler.manifest import FOLDER, SCHEDULER_FILE

NODE, NAMESPACE = "kubeadm", "baetyl-edge"
CARDS = cards(7611)
GIVEN = TEXT.replace("    - --leader-elect=true\n", "    - --leader-elect=true\n    - --profiling=false\n")
"""As a hardened cluster has it: our file would silence that flag."""
LOOKED_AT = ("/etc", "/opt", "/usr/local", "/var/lib")
NOT_AT = ("/var/lib/rancher", "/var/lib/kubelet", "/var/lib/cni", "/opt/edgegpu", MANIFESTS)
LACKS = missing("kubeadm")
pytestmark = pytest.mark.skipif(bool(LACKS) and not os.environ.get("CI"), reason="; ".join(LACKS))


class Plane:
    """The node with the scheduler in a static pod."""

    def __init__(self, cluster: K3s, server: Node) -> None:
        self.cluster = cluster
        self.server = server

    def edgegpu(self, *words: str, well: bool = True) -> dict[str, Any]:
        """Run the command line of the release; returns its document."""
        done = self.server.exec(f"{RELEASE}/bin/edgegpu", *words, "--yes", "--json", check=False, timeout_s=300)
        assert (done.returncode == 0) == well, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def install(self, *, well: bool = True) -> dict[str, Any]:
        """Install by the line that an engineer pastes."""
        return self.edgegpu("install", "--driver-root", DRIVER_ROOT, well=well)

    def scheduler(self) -> dict[str, Any]:
        """The scheduler's mirror pod."""
        return self.cluster.get("pod", f"kube-scheduler-{NODE}", namespace="kube-system")

    def container(self) -> tuple[str, bool]:
        """The scheduler's container, and whether it is ready."""
        status = (self.scheduler()["status"].get("containerStatuses") or [{}])[0]
        return status.get("containerID", ""), status.get("ready", False)

    def manifest(self) -> tuple[str, int]:
        """The manifest's text and mode."""
        path = self.server.path(MANIFEST)
        return path.read_text(), stat.S_IMODE(path.stat().st_mode)

    def files(self) -> dict[str, str]:
        """What lies on the node, as an uninstall has to leave it."""
        root = self.server.path("/")
        found: dict[str, str] = {}
        for top in LOOKED_AT:
            for folder, names, files in os.walk(root / top[1:]):
                inside = f"/{Path(folder).relative_to(root)}"
                names[:] = [name for name in names if f"{inside}/{name}" not in NOT_AT]
                found |= {f"{inside}/{name}": _print(Path(folder, name)) for name in (*names, *files)}
        return found


def _print(path: Path) -> str:
    found = path.lstat()
    if stat.S_ISREG(found.st_mode):
        what = hashlib.sha256(path.read_bytes()).hexdigest()
    else:
        what = str(path.readlink()) if stat.S_ISLNK(found.st_mode) else ""
    return f"{found.st_mode:o} {found.st_uid}:{found.st_gid} {what}"


@pytest.fixture(scope="module")
def plane(simdriver_build: Path) -> Iterator[Plane]:
    LOGS.mkdir(parents=True, exist_ok=True)
    down(NODE)
    server = up_control_plane(NODE)
    cluster = K3s(server)
    plugin = PluginNode(server, role="server", build=simdriver_build, logs=LOGS)
    cluster.nodes[NODE] = plugin
    try:
        cluster.kubectl("create", "namespace", NAMESPACE)
        lay_release(server)
        plugin.insert_cards(CARDS)
        lay_manifest(server, GIVEN)
        yield Plane(cluster, server)
    finally:
        down(NODE)


def test_installed_used_uninstalled_and_rolled_back(plane: Plane) -> None:
    plane.server.path(MANIFEST).chmod(0o640)
    before, files = plane.manifest(), plane.files()
    first, _ = plane.container()

    took_s, done = measured(plane.install)
    assert (done["op"], done["state"], done["changed"], done["role"]) == ("install", "COMMITTED", True, "server"), done
    assert plane.manifest()[1] == 0o640
    assert yaml.safe_load(plane.server.path(SCHEDULER_FILE).read_text())["enableProfiling"] is False
    second, ready = plane.container()
    assert ready
    assert second != first
    plane.cluster.wait_allocatable(NODE, units(CARDS), 100)
    plane.cluster.apply(pod("shares", pod_spec(container(memory=2, core=1)), namespace=NAMESPACE))
    placed = plane.cluster.wait_phase(NAMESPACE, "shares", "Running")
    assert "edgegpu.io/cards" in placed["metadata"]["annotations"]
    assert len(plane.cluster.sees(NAMESPACE, "shares")) == 1

    again = plane.install()
    assert (again["state"], again["changed"]) == ("COMMITTED", False), again
    assert plane.container() == (second, True), "the scheduler was started anew for nothing"
    refused = plane.edgegpu("uninstall", well=False)
    assert [line.partition(" ")[0] for line in refused["pods"]] == [f"{NAMESPACE}/shares"]
    plane.cluster.clear(NAMESPACE)

    upgraded = before[0].replace(IMAGE, REFUSING)  # as `kubeadm upgrade` does, to a scheduler that takes no file
    manifest = plane.server.path(MANIFEST)
    plane.server.write(f"{MANIFESTS}/.new", manifest.read_text().replace(IMAGE, REFUSING), mode=0o600).rename(manifest)
    gone_s, gone = measured(lambda: plane.edgegpu("uninstall"))
    assert (gone["state"], gone["still"], gone["kept"]) == ("COMMITTED", [], []), gone
    assert plane.manifest() == (upgraded, 0o600), "what others did to the manifest is not kept"
    assert not plane.server.path(FOLDER).exists()
    assert not plane.server.path("/opt/edgegpu").exists()
    assert _differs(files, plane.files()) == set()
    assert plane.container()[1]
    assert [volume["name"] for volume in plane.scheduler()["spec"]["volumes"]] == ["kubeconfig"]

    lay_release(plane.server)
    back_s, bad = measured(lambda: plane.install(well=False))
    assert (bad["state"], bad["changed"]) == ("ROLLED_BACK", False), bad
    assert bad["why"].startswith("cannot see that the scheduler works"), bad
    assert REFUSES in bad["why"]
    assert "with everything put back" not in bad["why"]
    assert plane.manifest() == (upgraded, 0o600)
    assert _differs(files, plane.files()) == set()
    assert plane.container()[1], "the scheduler of the manifest that was put back is not ready"
    for name, seconds in (("install", took_s), ("uninstall", gone_s), ("rolled_back", back_s)):
        plane.cluster.report(f"kubeadm_{name}_s", [seconds], limit=120)


def _differs(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Return the paths that an uninstall has not put right; edgegpu-farewell's wait for kubelet's five minutes."""
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    return {path for path in differing if "farewell" not in path and path != "/usr/local/lib/edgegpu"}


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
        wait_until(lambda: _named(plane, "copy"), what="the copy runs", every_s=0.3)
        plane.server.restart()  # a kubelet that starts lists the folder by another way than by events
        wait_until(lambda: _named(plane, "copy"), what="the copy runs still", every_s=0.3)
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
