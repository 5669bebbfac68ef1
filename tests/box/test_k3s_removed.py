"""k3s is removed as its own scripts do: edgegpu can be taken off, or takes no pod until it is installed again."""

from __future__ import annotations

import re

from box.bed import APPS, NAME, RECOVER, Bed, differences
from e2e.manifests import container, deployment, pod_spec
from lab.boxkit import Box
from lab.labrun import wait_until

REMOVED = r"^(/etc/rancher(/k3s.*)?|/usr/local/(bin/(k3s|kubectl|ctr|crictl)|lib/k3s-standin.*)|/var/lib/kubelet.*)$"
UNITS_OF_K3S = r"^/etc/systemd/system/(multi-user\.target\.wants/)?k3s(-agent)?\.service$"
FAREWELL_S = 60.0


def test_killall_takes_nothing_of_edgegpu_and_all_is_back_with_k3s(gpu_box: Bed) -> None:
    bed = gpu_box
    before = bed.disk()
    Box(NAME).kill_k3s()
    assert bed.machine.exec("systemctl", "is-active", "edgegpu-plugin").stdout.strip() == "active"
    assert not [line for line in shims(bed) if line]
    bed.machine.exec("systemctl", "start", "k3s")
    bed.machine.ready()
    bed.offered()
    bed.apps_run()
    assert not differences(before, bed.disk())


def shims(bed: Bed) -> list[str]:
    """Return the shims of containerd that run."""
    return bed.machine.exec("sh", "-c", "ps -e -o args= | grep [c]ontainerd-shim || true").stdout.splitlines()


def test_edgegpu_is_uninstalled_where_k3s_was_before(bed: Bed, installed: str) -> None:
    bed.fresh(installed)
    Box(NAME).uninstall_k3s()
    doctor = bed.edgegpu("doctor", check=False).stdout
    assert "there is no k3s on this machine any more" in doctor
    assert "sudo edgegpu uninstall" in doctor
    said = bed.edgegpu("uninstall", "--yes").stdout
    assert "k3s was removed from this machine before" in said
    assert "k3s kubectl label node edgebox edgegpu.io/gpu-" in said

    def farewell_gone() -> bool:
        return bed.machine.exec("test", "-e", "/usr/local/lib/edgegpu", check=False).returncode != 0

    wait_until(farewell_gone, what="the farewell has gone", timeout_s=FAREWELL_S, every_s=0.5)
    assert bed.machine.exec("test", "-e", RECOVER, check=False).returncode != 0
    assert bed.machine.exec("test", "-e", "/run/edgegpu", check=False).returncode != 0
    left = {
        path: what
        for path, what in differences(bed.pristine, bed.disk()).items()
        if not re.search(REMOVED, path) and not re.search(UNITS_OF_K3S, path)
    }
    assert not left, left


def test_a_k3s_that_comes_again_gets_no_gpu_pod_until_edgegpu_is_installed_again(bed: Bed, installed: str) -> None:
    bed.fresh(installed)
    Box(NAME).uninstall_k3s()
    bed.machine.up_k3s()
    app, units = next(iter(APPS.items()))
    bed.cluster.apply(deployment(app, pod_spec(container(memory=units, core=1)), namespace="default"))
    bed.cluster.wait_event("default", app, "Insufficient baidu.com/vcuda-")
    for _ in range(2):
        doctor = bed.edgegpu("doctor", check=False).stdout
        assert "k3s was removed and installed again" in doctor
        assert "sudo edgegpu install" in doctor
        assert bed.cluster.the_pod("default", app)["status"]["phase"] == "Pending"
        bed.machine.exec("systemctl", "restart", "edgegpu-plugin")
    bed.edgegpu("install", "--yes")
    bed.offered()
    pod = bed.cluster.wait_phase("default", app, "Running")
    assert "edgegpu.io/cards" in pod["metadata"]["annotations"]
    assert bed.edgegpu("doctor", check=False).returncode in {0, 1}
