"""A transaction on a machine in a folder: it goes through as a whole, or nothing of it stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.transactionkit import DROP_IN, EDITED, LINK, SCHEDULER, Bed, install

from edgegpu_installer.changes import FileChange, Plan, TransactionKind
from edgegpu_installer.errors import BusyError, InstallError
from edgegpu_installer.transaction import baseline
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_installer.transaction.states import TransactionState

if TYPE_CHECKING:
    from edgegpu_installer.changes import Deadline


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "root")


def uninstall(bed: Bed) -> Plan:
    files = baseline.restore_plan(bed.layout)
    return Plan(TransactionKind.UNINSTALL, files, reload=True, stop=("edgegpu-plugin",), restart="k3s")


def refuse(_: Deadline) -> None:
    raise InstallError("cannot reach the extender: no answer", "look at its log")


def test_everything_is_in_place_and_said(bed: Bed) -> None:
    outcome = bed.run(install())
    assert (outcome.state, outcome.changed) == (TransactionState.COMMITTED, True)
    assert (bed.root / SCHEDULER[1:]).read_text() == "good\n"
    assert (bed.root / SCHEDULER[1:]).stat().st_mode & 0o7777 == 0o600
    assert (bed.root / LINK[1:]).readlink() == Path("2.0")
    assert not (bed.root / "etc/removed").exists()
    assert not list((bed.root / "etc").rglob(".*edgegpu*"))
    assert (bed.unit("edgegpu-plugin"), bed.unit("old-plugin")) == ("active", "inactive")
    assert bed.calls("restart --no-block -- k3s")
    assert bed.unit("edgegpu-deadman.timer") == "inactive"
    record = TransactionJournal(bed.layout.tx).read()
    assert record is not None
    assert record.state is TransactionState.COMMITTED
    closed = {bed.layout.tx.parent: 0o027, bed.layout.tx: 0o077}
    assert {folder: folder.stat().st_mode & mask for folder, mask in closed.items()} == dict.fromkeys(closed, 0)
    assert [line.split()[3] for line in TransactionJournal(bed.layout.tx).history()] == [
        *("PREPARED", "STAGED", "SWAPPED", "RESTARTING", "VERIFYING", "COMMITTED")
    ]


def test_the_second_time_changes_and_restarts_nothing(bed: Bed) -> None:
    bed.run(install())
    before, calls = bed.tree(), len(bed.calls("start"))
    outcome = bed.run(install())
    assert (outcome.state, outcome.changed) == (TransactionState.COMMITTED, False)
    assert bed.tree() == before
    assert len(bed.calls("start")) == calls


def test_an_upgrade_that_needs_a_restart_of_k3s_says_so_before(bed: Bed) -> None:
    bed.run(install())
    start = bed.start_of_k3s()
    files = (FileChange(SCHEDULER, content=b"good, with a new verb\n", mode=0o600, k3s_reads=True),)

    def not_yet(_step: str) -> None:
        assert bed.said, "a step came before the notice"

    bed.said.clear()
    bed.run(Plan(TransactionKind.UPGRADE, files, restart="k3s"), at_step=not_yet)
    assert f"this upgrade needs one restart of k3s, which comes now: it changes {SCHEDULER}" in bed.said[0]
    assert bed.start_of_k3s() != start
    bed.said.clear()
    bed.run(Plan(TransactionKind.UPGRADE, (FileChange(EDITED, content=b"newer\n"),), restart="k3s"))
    assert not [line for line in bed.said if "restart" in line]


def test_k3s_restarts_only_when_something_that_it_reads_changes(bed: Bed) -> None:
    bed.run(install())
    start = bed.start_of_k3s()
    plan = Plan(
        TransactionKind.CHANGE, (FileChange(EDITED, content=b"newer\n"),), start=("edgegpu-plugin",), restart="k3s"
    )
    assert bed.run(plan).changed
    assert bed.start_of_k3s() == start


def test_device_links_exist_before_every_reload(bed: Bed) -> None:
    bed.run(install(b"bad\n"), verify=refuse)
    reloads = [bed.calls()[number + 1] for number, call in enumerate(bed.calls()) if call == "daemon-reload"]
    assert reloads == ["  with link 1:3"] * len(reloads)
    assert len(reloads) >= 2


def test_the_steps_are_those_that_are_announced(bed: Bed) -> None:
    announced, came = bed.steps(install()), list[str]()
    bed.run(install(), at_step=came.append)
    assert came == announced
    plan = uninstall(bed)
    announced, came = bed.steps(plan), []
    bed.run(plan, at_step=came.append)
    assert came == announced


@pytest.mark.parametrize("content", [b"good\n", b"bad\n"])
def test_what_verify_refuses_is_undone_and_leaves_nothing(bed: Bed, content: bytes) -> None:
    before = bed.tree()
    outcome = bed.run(install(content), verify=refuse)
    assert (outcome.state, outcome.changed) == (TransactionState.ROLLED_BACK, False)
    assert "no answer" in outcome.why
    assert bed.tree() == before
    assert not bed.layout.state.exists()
    assert (bed.unit("k3s"), bed.unit("old-plugin"), bed.unit("edgegpu-plugin")) == ("active", "active", "inactive")
    assert bed.unit("edgegpu-deadman.timer") == "inactive"


def test_what_a_plugin_wrote_that_ran_for_a_moment_goes_too(bed: Bed) -> None:
    before = bed.tree()

    def write_and_refuse(deadline: Deadline) -> None:
        for name in ("inventory.json", "kubelet-version", "selftest.json", "live-limits.json", "unknown-cluster"):
            (bed.layout.state / name).write_text("x")
        (bed.layout.state / "card-faults.json").write_text("x")
        (bed.layout.state / "limiter").mkdir()
        (bed.layout.state / "limiter/libcuda.so.1").write_text("x")
        refuse(deadline)

    assert bed.run(install(), verify=write_and_refuse).state is TransactionState.ROLLED_BACK
    assert bed.tree() == before
    assert not bed.layout.state.exists()


def test_undoing_does_not_touch_a_k3s_that_never_saw_the_new_files(bed: Bed) -> None:
    bed.fail("edgegpu-plugin")
    outcome = bed.run(install())
    assert outcome.state is TransactionState.ROLLED_BACK
    assert bed.start_of_k3s() == "first"


def test_uninstall_leaves_the_machine_as_it_was(bed: Bed) -> None:
    before = bed.tree()
    bed.run(install())
    bed.run(
        Plan(
            TransactionKind.CHANGE, (FileChange(EDITED, content=b"newer\n"), FileChange("/etc/edgegpu/x", content=b"x"))
        )
    )
    assert bed.run(uninstall(bed)).state is TransactionState.COMMITTED
    assert bed.tree() == before
    assert not bed.layout.state.exists()
    assert not list((bed.root / "run").iterdir())


def test_an_uninstall_that_is_refused_is_undone(bed: Bed) -> None:
    bed.run(install())
    before = bed.tree()
    assert bed.run(uninstall(bed), verify=refuse).state is TransactionState.ROLLED_BACK
    assert bed.tree() == before
    assert bed.unit("edgegpu-plugin") == "active"


@pytest.mark.parametrize("ends", ["COMMITTED", "ROLLED_BACK"])
def test_an_empty_folder_in_the_place_of_a_file_that_a_container_mounted_goes(bed: Bed, ends: str) -> None:
    """A scheduler that restarted while its file went: the runtime made a folder, and its parent stayed for ever."""
    before = bed.tree()
    bed.run(install())
    installed = bed.tree()

    def mounted(deadline: Deadline) -> None:
        for path in (SCHEDULER, DROP_IN):
            bed.layout.at(path).mkdir()
        if ends == "ROLLED_BACK":
            refuse(deadline)

    assert bed.run(uninstall(bed), verify=mounted).state.value == ends
    assert bed.tree() == (before if ends == "COMMITTED" else installed)


def test_a_second_author_is_refused_with_the_pid_of_the_first(bed: Bed) -> None:
    def second(step: str) -> None:
        if step == "before-stage":
            with pytest.raises(BusyError) as refused:
                bed.run(install(b"other\n"))
            assert refused.value.pid == os.getpid()

    assert bed.run(install(), at_step=second).state is TransactionState.COMMITTED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_undoes(bed: Bed, number: signal.Signals) -> None:
    before = bed.tree()

    def strike(step: str) -> None:
        if step == "after-swap-6":
            os.kill(os.getpid(), number)

    outcome = bed.run(install(), at_step=strike)
    assert (outcome.state, outcome.why) == (TransactionState.ROLLED_BACK, f"interrupted by {number.name}")
    assert bed.tree() == before


@pytest.mark.parametrize("step", ["before-baseline", "after-COMMITTED", "before-tidy"])
def test_an_error_at_any_late_step_ends_in_a_state_that_is_true(bed: Bed, step: str) -> None:
    before = bed.tree()

    def strike(now: str) -> None:
        if now == step:
            raise InstallError("cannot go on")

    outcome = bed.run(install(), at_step=strike)
    if outcome.state is TransactionState.COMMITTED:
        assert (bed.root / DROP_IN[1:]).exists()
    else:
        assert bed.tree() == before
    assert not list((bed.root / "etc").rglob(".*edgegpu*"))


def test_the_deadman_comes_again_where_the_leftovers_cannot_be_removed(bed: Bed) -> None:
    table = bed.layout.tx / "files"

    def strike(now: str) -> None:
        if now == "before-tidy":
            kept = table.read_bytes()
            table.unlink()
            (table / "in").mkdir(parents=True)
            (table / "in/table").write_bytes(kept)

    assert bed.run(install(), at_step=strike).state is TransactionState.COMMITTED
    assert "--on-active=30s" in bed.calls("run ")[-1]
    kept = (table / "in/table").read_bytes()
    (table / "in/table").unlink()
    (table / "in").rmdir()
    table.rmdir()
    table.write_bytes(kept)
    bed.recover("deadline")
    assert not table.exists()


def test_files_that_someone_else_changed_meanwhile_are_left_and_named(bed: Bed) -> None:
    def meddle(_: Deadline) -> None:
        (bed.root / EDITED[1:]).write_text("by hand\n")
        raise InstallError("cannot go on")

    outcome = bed.run(install(), verify=meddle)
    assert outcome.state is TransactionState.ROLLED_BACK
    assert "left as others changed them meanwhile: /etc/edited" in outcome.why
    assert (bed.root / EDITED[1:]).read_text() == "by hand\n"


def test_systemd_takes_no_timer_so_nothing_begins(bed: Bed) -> None:
    before = bed.tree()
    bed.fail("systemd-run")
    outcome = bed.run(install())
    assert outcome.state is TransactionState.ROLLED_BACK
    assert "transient timer" in outcome.why
    assert bed.tree() == before
    assert not bed.layout.state.exists()


def test_k3s_that_does_not_come_back_is_inconsistent_and_said(bed: Bed) -> None:
    (bed.fake / "k3s").write_text("#!/bin/sh\nexit 1\n")
    outcome = bed.run(install(), verify=refuse)
    assert outcome.state is TransactionState.INCONSISTENT
    assert "every file is as before, but k3s is not up" in outcome.why
    (bed.fake / "k3s").write_text("#!/bin/sh\nexit 0\n")
    assert "ROLLED_BACK" in bed.recover("deadline")


def test_drift_is_told(bed: Bed) -> None:
    bed.run(install())
    assert baseline.drifted(bed.layout) == ()
    (bed.root / EDITED[1:]).write_text("by hand\n")
    assert baseline.drifted(bed.layout) == (EDITED,)
