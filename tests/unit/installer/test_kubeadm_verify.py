"""When a static pod's scheduler counts as at work: what is waited for, and what is not waited for any longer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgegpu_installer.changes import Deadline
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.plan.site import Site, SiteKind
from edgegpu_installer.scheduler import kubeadm
from edgegpu_installer.scheduler.manifest import MANIFEST, Manifest
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.transaction.transaction import TransactionOutcome
from edgegpu_installer.verify.conditions import look_again
from edgegpu_installer.verify.kubeadm import SchedulerSample, lacks, mirror_name, wait_until_served
from edgegpu_installer.verify.kubeadm_probe import last_words, manifest_text

TEXT = (Path(__file__).resolve().parents[2] / "lab/kubeadm-scheduler.yaml").read_text()
NEW = kubeadm.read(kubeadm.with_file(TEXT, b"new"))
OLD = kubeadm.read(TEXT)
OTHER = kubeadm.read(kubeadm.with_file(TEXT, b"another"))


def mirror(manifest: Manifest = NEW, *, ready: bool = True, restarts: int = 0, **more: object) -> dict[str, Any]:
    """A mirror pod as kubelet makes it from that manifest."""
    status = {"name": "kube-scheduler", "ready": ready, "restartCount": restarts, "containerID": f"c{restarts}"}
    state = {"running": {}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
    return {
        "metadata": {
            "uid": "u",
            "annotations": {"kubernetes.io/config.mirror": "h"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "box-1", "uid": "n", "controller": True}],
        }
        | more,
        "spec": {
            "containers": [{"name": "kube-scheduler", "command": list(manifest.command)}],
            "volumes": [{"name": name} for name in manifest.volumes],
        },
        "status": {"containerStatuses": [status | {"state": state}]},
    }


def lease(renewed: int, holder: str = "box_1234") -> dict[str, Any]:
    return {"spec": {"renewTime": f"t{renewed}", "holderIdentity": holder}}


@dataclass
class World:
    """A clock that only pauses move, and what is to be seen at each second."""

    at: Callable[[int], SchedulerSample]
    now_s: float = 0.0
    looks: list[SchedulerSample] = field(default_factory=list)

    def look(self) -> SchedulerSample:
        self.looks.append(self.at(int(self.now_s)))
        return self.looks[-1]

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def wait(self, manifest: Manifest = NEW, *, deadline_s: float = 60.0) -> float:
        wait_until_served(
            manifest,
            look=self.look,
            last_words=lambda: "E1 unknown field",
            deadline=Deadline(deadline_s, lambda: self.now_s),
            pause=self.pause,
        )
        return self.now_s


def test_it_must_stay_ready_for_a_while_in_one_container_and_renew_its_lease() -> None:
    assert World(lambda now: SchedulerSample(mirror(), lease(now))).wait() == 10.0


def test_a_restart_begins_the_while_anew() -> None:
    world = World(lambda now: SchedulerSample(mirror(restarts=int(now >= 6)), lease(now)))
    assert world.wait() == 16.0


def test_the_old_pod_is_not_taken_for_the_new_one() -> None:
    def at(now: int) -> SchedulerSample:
        pods: Iterator[dict[str, Any] | None] = iter((mirror(OLD), mirror(OTHER), None, mirror(ready=False)))
        return SchedulerSample(next((pod for second, pod in enumerate(pods) if now == second), mirror()), lease(now))

    assert World(at).wait() == 14.0


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (SchedulerSample(unseen="cannot GET"), "cannot GET"),
        (SchedulerSample(), "no pod of it yet"),
        (SchedulerSample(mirror(OTHER)), "as the manifest was before"),
        (SchedulerSample(mirror(annotations={})), "as the manifest was before"),
        (SchedulerSample(mirror(ownerReferences=[])), "as the manifest was before"),
        (SchedulerSample(mirror(deletionTimestamp="now")), "as the manifest was before"),
        (SchedulerSample(mirror(ready=False)), "not ready (CrashLoopBackOff, restarted 0 times)"),
        (SchedulerSample(mirror() | {"status": {}}), "not ready (it starts)"),
        (
            SchedulerSample(mirror(), healthz="https://127.0.0.1:10259/healthz: 500"),
            "not well: https://127.0.0.1:10259/healthz: 500",
        ),
    ],
)
def test_what_is_missing_is_said(seen: SchedulerSample, words: str) -> None:
    assert words in lacks(NEW, seen)
    with pytest.raises(InstallError, match="cannot see that the scheduler works") as caught:
        World(lambda _: seen).wait(deadline_s=3)
    assert words in caught.value.message
    assert caught.value.remedy


def test_one_that_ends_again_and_again_is_not_waited_for() -> None:
    world = World(lambda now: SchedulerSample(mirror(ready=False, restarts=now // 5), lease(0)))
    with pytest.raises(InstallError, match=r"restarted 2 times.*E1 unknown field"):
        world.wait()
    assert world.now_s == 10.0


def test_the_old_ones_restarts_do_not_count() -> None:
    world = World(lambda now: SchedulerSample(mirror(OLD, restarts=9) if now < 5 else mirror(), lease(now)))
    assert world.wait() == 15.0


def test_a_lease_that_nobody_renews_is_no_scheduler_at_work() -> None:
    with pytest.raises(InstallError, match="nobody renews the lease"):
        World(lambda _: SchedulerSample(mirror(), lease(1))).wait(deadline_s=20)
    alone = kubeadm.read(kubeadm.with_file(TEXT.replace("--leader-elect=true", "--leader-elect=false"), b"new"))
    assert World(lambda _: SchedulerSample(mirror(alone))).wait(alone) == 10.0


def test_a_schedulers_last_line_is_found_where_kubelet_keeps_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert mirror_name(NEW, "Box-1") == "kube-scheduler-box-1"
    assert last_words(layout, NEW, node="box-1") == ""
    folder = tmp_path / "var/log/pods/kube-system_kube-scheduler-box-1_uid/kube-scheduler"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text("2026-01-01T00:00:00Z stderr F E1 strict decoding error\n\n")
    assert last_words(layout, NEW, node="box-1") == "E1 strict decoding error"


def site_of_kind(kind: SiteKind) -> Site:
    return Site(
        kind=kind,
        unit="kubelet",
        node_name="box",
        kubelet_folder="/var/lib/kubelet",
        kubelet_kubeconfig="/etc/kubernetes/kubelet.conf",
        admin_kubeconfig=kubeadm.ADMIN_KUBECONFIG,
        has_cards=False,
    )


def test_after_a_rollback_the_scheduler_is_looked_at_once_more(tmp_path: Path) -> None:
    layout, undone = Layout(tmp_path), TransactionOutcome(TransactionState.ROLLED_BACK, changed=False, why="no")
    found = look_again(undone, site_of_kind(SiteKind.KUBEADM_SERVER), layout, within_s=0.0)
    assert found.why.startswith("no; with everything put back: cannot ")
    assert found.state is TransactionState.ROLLED_BACK
    for kind in SiteKind:
        if kind is not SiteKind.KUBEADM_SERVER:
            assert look_again(undone, site_of_kind(kind), layout) == undone
    well = TransactionOutcome(TransactionState.COMMITTED, changed=True)
    assert look_again(well, site_of_kind(SiteKind.KUBEADM_SERVER), layout) == well


def test_the_manifest_as_it_is_now(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert manifest_text(layout) is None
    path = layout.at(MANIFEST)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"a: 1\r\n")
    assert manifest_text(layout) == "a: 1\r\n"
    path.write_bytes(b"\xff")
    with pytest.raises(InstallError, match="it is not text"):
        manifest_text(layout)
