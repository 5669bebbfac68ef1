"""Sharing is taken off and the agent stays; an id that was given is a transaction's name, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from integration.transactionkit import DROP_IN, SCHEDULER, Bed

from edgegpu_agent.cli.common import CliError
from edgegpu_agent.cli.setup.enrolment import EnrolmentRun
from edgegpu_installer.changes import FileChange, Plan, TransactionKind
from edgegpu_installer.errors import InstallError, KnownError
from edgegpu_installer.layout import AGENT_UNIT, AGENT_YAML, CLOUD_TOKEN, CURRENT, PLUGIN_UNIT, RUN_UNITS, UNITS
from edgegpu_installer.machine.systemd import DEADMAN, Systemd
from edgegpu_installer.plan.release import LIBRARY
from edgegpu_installer.transaction import baseline, farewell
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_installer.transaction.prepare import TransactionMachine
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.transaction.transaction import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from edgegpu_installer.changes import Deadline

STAYS = {CURRENT, f"{UNITS}/{AGENT_UNIT}"}


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "root")


def install(op: TransactionKind = TransactionKind.INSTALL) -> Plan:
    return Plan(
        op,
        files=(
            FileChange(CURRENT, link_to="2.0"),
            FileChange(f"{UNITS}/{PLUGIN_UNIT}", content=b"[Service]\n"),
            FileChange(f"{UNITS}/{AGENT_UNIT}", content=b"[Service]\n"),
            FileChange(SCHEDULER, content=b"good\n", mode=0o600, k3s_reads=True),
            FileChange(DROP_IN, content=b"names it\n", k3s_reads=True),
        ),
        folders=("/etc/rancher/k3s/config.yaml.d", "/etc/edgegpu"),
        reload=True,
        start=(PLUGIN_UNIT, AGENT_UNIT),
        restart="k3s",
    )


def withdraw(bed: Bed) -> Plan:
    back = [one for one in baseline.restore_plan(bed.layout) if not one.early and one.path not in STAYS]
    left = (FileChange(farewell.UNIT_FILE, content=b"[Service]\n"),)
    files = (*left, *back)
    return Plan(
        TransactionKind.WITHDRAW, files, reload=True, stop=(PLUGIN_UNIT,), start=(farewell.UNIT,), restart="k3s"
    )


def uninstall(bed: Bed) -> Plan:
    files = baseline.restore_plan(bed.layout)
    return Plan(TransactionKind.UNINSTALL, files, reload=True, stop=(PLUGIN_UNIT, AGENT_UNIT), restart="k3s")


def named(bed: Bed, id_: str) -> TransactionMachine:
    machine = bed.machine()
    return TransactionMachine(
        **{name: getattr(machine, name) for name in TransactionMachine.__slots__} | {"transaction_id": id_}
    )


def nothing(_: Deadline) -> None:
    return


def refuse(_: Deadline) -> None:
    raise InstallError("cannot verify: k3s is not well")


def there(bed: Bed, path: str) -> bool:
    return os.path.lexists(bed.layout.at(path))


def test_sharing_goes_and_the_agent_stays_with_what_undoes_a_change(bed: Bed) -> None:
    bed.run(install())
    assert bed.run(withdraw(bed)).state is TransactionState.COMMITTED
    assert not any(there(bed, path) for path in (SCHEDULER, DROP_IN, f"{UNITS}/{PLUGIN_UNIT}"))
    assert all(there(bed, path) for path in (*STAYS, LIBRARY, farewell.UNIT_FILE))
    assert (bed.unit(PLUGIN_UNIT), bed.unit(AGENT_UNIT), bed.unit("k3s")) == ("inactive", "active", "active")
    assert baseline.withdrawn(bed.layout)
    bed.layout.at(farewell.UNIT_FILE).unlink()  # it removes itself
    assert baseline.drifted(bed.layout) == ()


def test_the_plugin_stops_after_k3s_was_restarted(bed: Bed) -> None:
    bed.run(install())
    calls = len(bed.calls())
    bed.run(withdraw(bed))
    words = [call for call in bed.calls()[calls:] if call.startswith(("restart", "stop"))]
    assert words.index("restart --no-block -- k3s") < words.index(f"stop -- {PLUGIN_UNIT}")
    assert f"stop -- {AGENT_UNIT}" not in words


@pytest.mark.parametrize(("plan_of", "units"), [(withdraw, {PLUGIN_UNIT}), (uninstall, {PLUGIN_UNIT, AGENT_UNIT})])
@pytest.mark.parametrize("verify", [nothing, refuse])
def test_what_is_stopped_last_keeps_its_unit_until_then(
    bed: Bed, plan_of: Callable[[Bed], Plan], units: set[str], verify: Callable[[Deadline], None]
) -> None:
    """Without it systemd refuses the watchdog's pings, ends the unit after 30 s and starts it no more."""
    bed.run(install())
    copies, seen = bed.layout.at(RUN_UNITS), dict[str, set[str]]()
    wanted = (bed.layout.units / PLUGIN_UNIT).read_bytes()

    def look(step: str) -> None:
        found = [path for path in copies.glob("*.service") if path.read_bytes() == wanted]
        seen[step] = {path.name for path in found}

    calls = len(bed.calls())
    bed.run(plan_of(bed), verify=verify, at_step=look)
    assert seen["before-reload"] == seen["before-verify"] == units
    assert verify is refuse or seen["after-stop"] == units
    assert not list(copies.iterdir())
    told = [call for call in bed.calls()[calls:] if call.startswith(("stop", "daemon-reload")) and DEADMAN not in call]
    assert told[-1] == "daemon-reload" or verify is refuse, "systemd forgets the copies"


def test_a_unit_that_somebody_has_masked_until_the_next_boot_stays_so(bed: Bed) -> None:
    bed.run(install())
    mask = bed.layout.at(RUN_UNITS) / PLUGIN_UNIT
    mask.parent.mkdir(parents=True)
    mask.symlink_to("/dev/null")
    assert bed.run(uninstall(bed)).state is TransactionState.COMMITTED
    assert mask.readlink() == Path("/dev/null")


def test_sharing_comes_again_and_all_of_it_goes_after_that(bed: Bed) -> None:
    before = bed.tree()
    bed.run(install())
    installed = bed.tree()
    bed.run(withdraw(bed))
    bed.layout.at(farewell.UNIT_FILE).unlink()
    bed.run(install(TransactionKind.CHANGE))
    assert not baseline.withdrawn(bed.layout)
    now = bed.tree()
    assert {name: now[name] for name in now if "baseline" not in name} == {
        name: installed[name] for name in installed if "baseline" not in name
    }
    (bed.layout.state / "identity").mkdir()
    (bed.layout.state / "identity/tls.key").write_text("secret")
    assert bed.run(uninstall(bed)).state is TransactionState.COMMITTED
    assert bed.tree() == before
    assert not bed.layout.state.exists()


def test_a_withdrawn_machine_is_uninstalled_whole(bed: Bed) -> None:
    before = bed.tree()
    bed.run(install())
    bed.run(withdraw(bed))
    bed.layout.at(farewell.UNIT_FILE).unlink()
    assert bed.run(uninstall(bed)).state is TransactionState.COMMITTED
    assert bed.tree() == before


def test_one_that_k3s_does_not_stand_is_undone(bed: Bed) -> None:
    bed.run(install())
    before = bed.tree()
    assert bed.run(withdraw(bed), verify=refuse).state is TransactionState.ROLLED_BACK
    assert bed.tree() == before
    assert (bed.unit(PLUGIN_UNIT), bed.unit(AGENT_UNIT)) == ("active", "active")


def test_killed_at_each_step_the_dead_man_leaves_the_old_machine_or_the_new_one(tmp_path: Path) -> None:
    first = Bed(tmp_path / "first")
    first.run(install())
    ends = set()  # what comes after a step comes before the next one
    for number, step in enumerate(first.steps(withdraw(first))[::2]):
        bed = Bed(tmp_path / str(number))
        bed.run(install())
        old = bed.tree()
        bed.die_at(step, withdraw(bed), deadline_s=-60.0)
        bed.recover("deadline")
        state = TransactionJournal(bed.layout.tx).read()
        assert state is not None
        ends.add(state.state)
        if state.op is TransactionKind.WITHDRAW and state.state is TransactionState.COMMITTED:
            assert not there(bed, f"{UNITS}/{PLUGIN_UNIT}")
            assert there(bed, f"{UNITS}/{AGENT_UNIT}")
            assert (bed.layout.tx / "log").exists()
        else:
            assert bed.tree() == old, step
        assert not list((bed.root / "etc").rglob(".*edgegpu*"))
    assert ends == {TransactionState.COMMITTED, TransactionState.ROLLED_BACK}


def test_a_transaction_has_the_id_that_was_given_once(bed: Bed) -> None:
    journal = TransactionJournal(bed.layout.tx)
    assert journal.state_of("sharing-0001") is None
    run(install(), named(bed, "sharing-0001"), verify=nothing)
    assert journal.state_of("sharing-0001") is TransactionState.COMMITTED
    with pytest.raises(KnownError):
        run(withdraw(bed), named(bed, "sharing-0001"), verify=nothing)
    run(withdraw(bed), named(bed, "sharing-0002"), verify=refuse)
    assert journal.state_of("sharing-0001") is TransactionState.COMMITTED
    assert journal.state_of("sharing-0002") is TransactionState.ROLLED_BACK
    assert journal.state_of("sharing-000") is None


def test_what_died_before_its_record_was_written_has_not_been(bed: Bed) -> None:
    run(install(), named(bed, "sharing-0001"), verify=nothing)
    journal = TransactionJournal(bed.layout.tx)
    journal.log("sharing-0002 withdraw PREPARED")
    assert journal.state_of("sharing-0002") is None


def test_the_command_line_refuses_an_id_that_is_none() -> None:
    done = subprocess.run(
        [
            Path(sys.executable).parent / "edgegpu",
            "uninstall",
            "--yes",
            "--json",
            "--keep-agent",
            "--transaction-id",
            "../x",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot call a change" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize("again", [False, True], ids=["enrolled last", "changed since"])
def test_what_enrolling_by_hand_has_written_goes_with_an_uninstall(bed: Bed, *, again: bool) -> None:
    before = bed.tree()
    bed.run(install())
    hand = EnrolmentRun(root=bed.root, wait_s=0, system=Systemd(bed.environment))
    with pytest.raises(CliError):  # no agent runs here that could say how its token fared
        hand.run("https://cloud.example", "ab" * 32, "a-token")
    assert there(bed, AGENT_YAML)
    assert there(bed, CLOUD_TOKEN)
    if again:  # an installer that finds the files keeps them as how it was before
        files = tuple(FileChange(path, content=b"cloud: {}\n") for path in (AGENT_YAML, CLOUD_TOKEN))
        bed.run(Plan(TransactionKind.CHANGE, files=files))
    assert bed.run(uninstall(bed)).state is TransactionState.COMMITTED
    assert bed.tree() == before
