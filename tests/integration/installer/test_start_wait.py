"""Kubelet's link and k3s's line for it in a transaction: both or neither, also where the plugin has a copy there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.previewkit import machine_of, never, release, report_of, server_box
from integration.transactionkit import DROP_IN, OVER, ROOT, Bed

from edgegpu_installer.changes import FileChange, Plan, TransactionKind
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import START_LINK
from edgegpu_installer.plan import start_wait
from edgegpu_installer.plan.release import Recovery
from edgegpu_installer.plan.site import InstallOptions, site_of
from edgegpu_installer.transaction import baseline
from edgegpu_installer.transaction.prepare import prepare
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.uninstall import Uninstallation
from edgegpu_plugin.kubelet.start_lease import OwnResolvConf

if TYPE_CHECKING:
    from edgegpu_installer.changes import Deadline

PLAIN, NAMING = b"kube-scheduler-arg+: [config=/a]\n", b"kube-scheduler-arg+: [config=/a]\nresolv-conf: x\n"


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    made = Bed(tmp_path / "root")
    (made.root / "etc/resolv.conf").write_text("nameserver 10.0.0.1\n")
    return made


def plan(*files: FileChange, op: TransactionKind = TransactionKind.CHANGE) -> Plan:
    return Plan(op, files, folders=("/etc/rancher/k3s/config.yaml.d",), restart="k3s")


def on(op: TransactionKind = TransactionKind.CHANGE) -> Plan:
    link = FileChange(START_LINK, link_to="/etc/resolv.conf")
    return plan(link, FileChange(DROP_IN, NAMING, k3s_reads=True), op=op)


def off() -> Plan:
    return plan(FileChange(DROP_IN, PLAIN, k3s_reads=True), *start_wait.removal())


def link_of(bed: Bed) -> Path:
    return bed.layout.at(START_LINK)


def lease(bed: Bed) -> OwnResolvConf:
    """Let the plugin put its copy there, as it does while kubelet is away; a plugin that is killed leaves it."""
    file = OwnResolvConf(link_of(bed))
    os.close(file.lease())
    assert not link_of(bed).is_symlink()
    return file


def test_a_failure_while_kubelet_is_away_leaves_nothing_of_the_copy(bed: Bed) -> None:
    bed.run(plan(FileChange(DROP_IN, PLAIN, k3s_reads=True)))
    old = bed.tree()
    held: list[OwnResolvConf] = []

    def fail(_: Deadline) -> None:
        held.append(lease(bed))
        raise InstallError("k3s does not come up")

    assert bed.run(on(), verify=fail).state is TransactionState.ROLLED_BACK
    held[0].restore()  # as a plugin does that is stopped then
    assert bed.tree() == old


def test_a_power_cut_while_kubelet_is_away_leaves_nothing_of_the_copy(bed: Bed) -> None:
    bed.run(plan(FileChange(DROP_IN, PLAIN, k3s_reads=True)))
    old = bed.tree()
    bed.die_at("after-VERIFYING", on(), deadline_s=OVER)
    lease(bed)
    bed.reboot()
    assert bed.tree() == old


def test_an_off_that_fails_brings_line_and_link_back(bed: Bed) -> None:
    bed.run(on())
    old = bed.tree()

    def fail(_: Deadline) -> None:
        assert not link_of(bed).is_symlink()
        raise InstallError("k3s does not come up")

    assert bed.run(off(), verify=fail).state is TransactionState.ROLLED_BACK
    assert bed.tree() == old


def test_k3s_never_has_a_line_for_a_file_that_is_not_there(bed: Bed) -> None:
    """At no step of on, off or uninstall, and after none of their ends."""

    def look(_: str) -> None:
        drop_in = bed.layout.at(DROP_IN)
        if drop_in.exists() and drop_in.read_bytes() == NAMING:
            assert link_of(bed).is_symlink()

    bed.run(plan(FileChange(DROP_IN, PLAIN, k3s_reads=True)), at_step=look)
    bed.run(on(), at_step=look)
    bed.run(off(), at_step=look)
    bed.run(on(), at_step=look)
    files = start_wait.restored(baseline.restore_plan(bed.layout))
    bed.run(Plan(TransactionKind.UNINSTALL, files, restart="k3s"), at_step=look)
    assert not link_of(bed).is_symlink()
    assert not bed.layout.at(DROP_IN).exists()


def test_an_uninstall_while_k3s_is_down_leaves_no_link(bed: Bed) -> None:
    old = bed.tree()
    bed.run(on(TransactionKind.INSTALL))
    held = lease(bed)
    files = start_wait.restored(baseline.restore_plan(bed.layout))
    bed.run(Plan(TransactionKind.UNINSTALL, files, restart="k3s"), verify=lambda _: held.restore())
    assert bed.tree() == old


def test_a_guard_takes_the_line_out_and_leaves_the_link(bed: Bed) -> None:
    bed.run(on(TransactionKind.INSTALL))
    for start in range(4):
        bed.set_unit("k3s", "activating", start=f"s{start}", restarts=start)
        bed.recover("check", "k3s")
    assert not bed.layout.at(DROP_IN).exists()
    assert link_of(bed).is_symlink()


@pytest.mark.parametrize(("asked", "restarts"), [(True, True), (None, False), (False, False)])
def test_a_dry_run_names_the_link_and_the_restart(tmp_path: Path, *, asked: bool | None, restarts: bool) -> None:
    """On a machine whose k3s reads our two files already, the option is what restarts it."""
    box = server_box(tmp_path / "box")
    box.write("/etc/resolv.conf", "nameserver 10.0.0.1\n")
    present = report_of(box, InstallOptions()).plan
    report = report_of(box, InstallOptions(wait_at_start=asked))
    for change in present.files:
        if change.k3s_reads:
            box.write(change.path, (change.content or b"").decode()).chmod(change.mode)
    changes = {change.path: change for change in report.plan.files}
    assert (START_LINK in changes and not changes[START_LINK].absent) is bool(asked)
    machine = replace(machine_of(box), recovery=Recovery.of_version(ROOT))
    other = tuple(change for change in report.plan.files if "scheduler" not in change.path)  # it has a key, a new one
    assert prepare(replace(report.plan, files=other), machine).restarts is restarts


def test_an_uninstall_takes_the_line_out_first_where_the_option_came_later(tmp_path: Path) -> None:
    box = server_box(tmp_path / "box")
    box.write("/var/lib/edgegpu/baseline/000001.a/index", f"1 k - {DROP_IN}\n")
    box.write("/var/lib/edgegpu/baseline/000002.b/index", f"1 - - {START_LINK}\n")
    made = Uninstallation(site=site_of(box.facts()), release=release(), machine=machine_of(box), verifier=never)
    paths = [change.path for change in made.preview().plan.files]
    assert paths.index(DROP_IN) < paths.index(START_LINK)
