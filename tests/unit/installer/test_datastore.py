"""k3s' datastore is brought to the disk after a write through its API, on a server with its own SQLite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgegpu_installer.layout import Layout
from edgegpu_installer.plan.credentials import settle_datastore
from edgegpu_installer.plan.site import Site, SiteKind

SERVER = Site(
    kind=SiteKind.K3S_SERVER,
    node_name="box-1",
    unit="k3s",
    kubelet_folder="/var/lib/kubelet",
    kubelet_kubeconfig="/data/agent/kubelet.kubeconfig",
    admin_kubeconfig="/data/server/cred/admin.kubeconfig",
    has_cards=True,
)


def synced(site: Site, root: Path) -> list[str]:
    found: list[str] = []
    settle_datastore(site, Layout(root), sync=lambda fd: found.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    return found


def test_what_a_server_has_written_goes_to_the_disk_its_log_first(tmp_path: Path) -> None:
    assert synced(SERVER, tmp_path) == []
    folder = tmp_path / "data/server/db"
    folder.mkdir(parents=True)
    (folder / "state.db").touch()
    assert synced(SERVER, tmp_path) == ["state.db"]
    (folder / "state.db-wal").touch()
    assert synced(SERVER, tmp_path) == ["state.db-wal", "state.db"]
    for kind in (SiteKind.K3S_AGENT, SiteKind.KUBEADM_SERVER):
        assert synced(replace(SERVER, kind=kind), tmp_path) == []


def test_a_disk_that_fails_is_no_reason_to_undo(tmp_path: Path) -> None:
    folder = tmp_path / "data/server/db"
    folder.mkdir(parents=True)
    (folder / "state.db").touch()

    def fails(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    settle_datastore(SERVER, Layout(tmp_path), sync=fails)
