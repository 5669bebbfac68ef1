"""An uninstall on a machine from which k3s was removed before: nobody is asked, and this machine is restored."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from integration.previewkit import machine_of, never, release, server_box
from integration.transactionkit import UNIT, Bed, install, nothing

from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import PLUGIN_UNIT, UNITS
from edgegpu_installer.plan.site import Site, SiteKind, leaving_site_of, site_of
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.uninstall import Uninstallation, UninstallResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kits.facts import FakeBox

    from edgegpu_installer.changes import Deadline

PLUGIN = f"{UNITS}/{PLUGIN_UNIT}"
DROP_IN = "/etc/rancher/k3s/config.yaml.d/90-edgegpu.yaml"
FOREIGN = "/etc/rancher/k3s/edgegpu-scheduler.yaml"
HOSTS = "/etc/edgegpu-was-here"
INDEX = f"1 - - {PLUGIN}\n2 k - {DROP_IN}\n3 k f {FOREIGN}\n4 - f {HOSTS}\n"


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    made = server_box(tmp_path / "box")
    kept = "/var/lib/edgegpu/baseline/000001.a"
    for path in (PLUGIN, DROP_IN, FOREIGN, HOSTS, f"{kept}/3", f"{kept}/4"):
        made.write(path, "x")
    made.write(f"{kept}/index", INDEX)
    return made


def remove_k3s(box: FakeBox) -> None:
    for path in (f"{UNITS}/k3s.service", "/usr/local/bin/k3s"):
        box.layout.at(path).unlink()
    for folder in ("/etc/rancher/k3s", "/var/lib/rancher/k3s"):
        shutil.rmtree(box.layout.at(folder))


def removal(box: FakeBox) -> Uninstallation:
    return Uninstallation(
        site=leaving_site_of(box.facts()), release=release(), machine=machine_of(box), verifier=never, agreed=True
    )


def test_where_k3s_is_there_it_is_asked_as_ever(box: FakeBox) -> None:
    assert leaving_site_of(box.facts()) == site_of(box.facts())


def test_only_a_removed_k3s_makes_an_installation_impossible_and_an_uninstall_not(box: FakeBox) -> None:
    remove_k3s(box)
    with pytest.raises(InstallError, match="no Kubernetes runs"):
        site_of(box.facts())
    assert leaving_site_of(box.facts()).is_removed


def test_its_plan_restarts_no_k3s_and_brings_none_of_its_files_back(box: FakeBox) -> None:
    remove_k3s(box)
    preview = removal(box).preview()
    paths = {change.path for change in preview.plan.files}
    assert {PLUGIN, DROP_IN, HOSTS} <= paths
    assert FOREIGN not in paths, "k3s has removed it with its folder"
    assert preview.plan.restart is None
    assert "k3s is not on this machine any more" in preview.cluster_changes.unseen


def machine_without_k3s(folder: Path) -> tuple[Bed, dict[str, object]]:
    """Return a machine that had k3s and edgegpu, after k3s's own uninstall, and what it was like before both."""
    bed = Bed(folder)
    before = bed.tree()
    bed.run(install())
    shutil.rmtree(bed.root / "etc/rancher/k3s")
    (bed.fake / "units/k3s").unlink()
    return bed, {path: what for path, what in before.items() if "rancher" not in path}


def uninstalled(bed: Bed, verify: Callable[[Deadline], None]) -> UninstallResult:
    site = Site(
        kind=SiteKind.K3S_AGENT,
        unit="",
        node_name="box",
        kubelet_folder="/var/lib/kubelet",
        kubelet_kubeconfig="/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
        is_removed=True,
        has_cards=True,
    )
    made = Uninstallation(
        site=site, release=release(), machine=bed.machine(), verifier=lambda _offers: verify, agreed=True
    )
    return made.run()


def test_this_machine_becomes_what_it_was_and_the_cluster_is_named(tmp_path: Path) -> None:
    bed, before = machine_without_k3s(tmp_path / "root")
    removal = uninstalled(bed, nothing)
    assert removal.succeeded
    assert not removal.has_node
    assert "k3s kubectl label node box edgegpu.io/gpu-;" in removal.kept[0]
    assert not bed.calls("restart --no-block -- k3s")[1:], "only the installation restarted k3s"
    assert bed.unit("edgegpu-farewell.service") == "active"
    after = {path: what for path, what in bed.tree().items() if "farewell" not in path}
    assert {path: what for path, what in after.items() if path in before} == before
    assert not (bed.root / UNIT[1:]).exists()


def test_one_that_fails_is_undone_without_k3s_too(tmp_path: Path) -> None:
    bed, _ = machine_without_k3s(tmp_path / "root")
    before = bed.tree()

    def refuse(_: Deadline) -> None:
        raise InstallError("cannot verify")

    outcome = uninstalled(bed, refuse).outcome
    assert outcome is not None
    assert outcome.state is TransactionState.ROLLED_BACK
    assert bed.tree() == before
