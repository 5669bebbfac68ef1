"""Restarts: asked of systemd once, told by the InvocationID, well when the unit stays up and its node is Ready."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest
from kits.acts import ID, NOTHING, Bench, wait_for

from edgegpu_agent.actions.registry import acts
from edgegpu_agent.actions.transactions import is_change_under_way
from edgegpu_agent.ports import Action, ActionStopped
from edgegpu_sync.ids import op_name
from edgegpu_sync.rules.ops import Evidence
from edgegpu_sync.states import CommandState, ResultCode

K3S, PLUGIN = op_name("k3s.restart"), op_name("plugin.restart")
UNITS = {K3S: "k3s.service", PLUGIN: "edgegpu-plugin.service"}
FAR = str(2**60)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(tmp_path / "box")
    for name in UNITS.values():
        found.unit(name)
    return found


def restart(bench: Bench, op: str = "k3s.restart", **more: object) -> Action:
    return acts(bench.box(**more))[op_name(op)]


@pytest.mark.parametrize("op", UNITS)
def test_it_is_asked_for_once_and_seen(bench: Bench, op: str) -> None:
    act = restart(bench, op)
    token = act.token(ID, NOTHING)
    assert act.evidence(ID, token) is Evidence.NOT_DONE
    assert act.act(ID, NOTHING, token).state is CommandState.VERIFYING
    assert act.evidence(ID, token) is Evidence.DONE
    done = act.verify(ID, NOTHING, token)
    assert done is not None
    assert (done.state, done.data) == (CommandState.SUCCEEDED, {"unit": UNITS[op_name(op)], "invocation": "new1"})
    assert bench.said("restarts") == [f"restart --no-block -- {UNITS[op_name(op)]}"]


def test_what_systemd_has_not_begun_yet_is_under_way(bench: Bench) -> None:
    act = restart(bench)
    token = act.token(ID, NOTHING)
    bench.tell("stuck")
    assert act.act(ID, NOTHING, token).state is CommandState.VERIFYING
    assert act.evidence(ID, token) is Evidence.UNDER_WAY
    assert act.verify(ID, NOTHING, token) is None
    bench.unit("k3s.service", ActiveState="deactivating")
    assert act.evidence(ID, token) is Evidence.UNDER_WAY
    bench.unit("k3s.service", "new", ActiveState="activating")
    assert act.evidence(ID, token) is Evidence.DONE
    assert act.verify(ID, NOTHING, token) is None


def test_it_names_its_own_run_also_where_an_installer_has_begun_another(bench: Bench) -> None:
    act = restart(bench, PLUGIN)
    token = act.token(ID, NOTHING)
    assert act.act(ID, NOTHING, token).state is CommandState.VERIFYING
    bench.unit(UNITS[PLUGIN], "ours", ActiveState="activating")
    assert act.verify(ID, NOTHING, token) is None
    bench.unit(UNITS[PLUGIN], "an installer's")
    done = act.verify(ID, NOTHING, token)
    assert done is not None
    assert (done.state, done.data) == (CommandState.SUCCEEDED, {"unit": UNITS[PLUGIN], "invocation": "ours"})


def test_another_boot_is_a_restart(bench: Bench) -> None:
    act = restart(bench)
    token = act.token(ID, NOTHING)
    bench.write("/proc/sys/kernel/random/boot_id", "boot-2\n")
    assert act.evidence(ID, token) is Evidence.DONE


def test_a_systemd_that_does_not_answer_tells_nothing(bench: Bench) -> None:
    act = restart(bench)
    token = act.token(ID, NOTHING)
    bench.program(bench.fake / "bin/systemctl", "#!/bin/sh\nexit 1\n")
    assert act.evidence(ID, token) is Evidence.UNREADABLE
    assert act.verify(ID, NOTHING, token) is None
    assert act.act(ID, NOTHING, token).state is CommandState.REJECTED


def test_one_that_has_come_up_just_now_is_not_believed(bench: Bench) -> None:
    act = restart(bench)
    token = act.token(ID, NOTHING)
    bench.unit("k3s.service", "new", ActiveEnterTimestampMonotonic=FAR)
    assert act.verify(ID, NOTHING, token) is None


@pytest.mark.parametrize(
    ("ready", "state"), [(True, CommandState.SUCCEEDED), (None, CommandState.SUCCEEDED), (False, None)]
)
def test_the_node_must_be_ready_where_it_can_be_asked(
    bench: Bench, *, ready: bool | None, state: CommandState | None
) -> None:
    asked: list[float] = []

    def node(since_s: float) -> bool | None:
        asked.append(since_s)
        return ready

    act = restart(bench, ready=node)
    token = act.token(ID, NOTHING)
    act.act(ID, NOTHING, token)
    found = act.verify(ID, NOTHING, token)
    assert (found.state if found else None) == state
    assert len(asked) == 1


def test_what_does_not_come_up_fails_with_the_units_words(bench: Bench) -> None:
    from edgegpu_agent.actions.restarts import Restart  # noqa: PLC0415
    from edgegpu_agent.actions.units import Units  # noqa: PLC0415

    box = bench.box()
    units = Units(layout=box.layout, timer=box.timer, env=box.env)
    act = Restart(units=units, timer=box.timer, unit=units.k3s, within_s=0)
    token = act.token(ID, NOTHING)
    bench.unit(
        "k3s.service", "new", ActiveState="activating", SubState="auto-restart", Result="exit-code", NRestarts="4"
    )
    found = act.verify(ID, NOTHING, token)
    assert found is not None
    assert (found.state, found.code) == (CommandState.FAILED, ResultCode.TIMED_OUT)
    assert "k3s.service is activating (auto-restart, exit-code, started again 4 times)" in found.text


def test_what_systemd_refuses_has_failed(bench: Bench) -> None:
    act = restart(bench)
    token = act.token(ID, NOTHING)
    bench.tell("refused")
    found = act.act(ID, NOTHING, token)
    assert (found.state, found.text) == (CommandState.FAILED, "cannot restart k3s.service: Access denied")


@pytest.mark.parametrize("op", UNITS)
def test_a_unit_that_is_not_there_is_rejected(bench: Bench, op: str) -> None:
    (bench.fake / "units" / UNITS[op_name(op)]).unlink()
    act = restart(bench, op)
    found = act.act(ID, NOTHING, act.token(ID, NOTHING))
    assert (found.state, found.code) == (CommandState.REJECTED, ResultCode.NOT_INSTALLED)
    assert bench.said("restarts") == []


def test_k3s_is_left_alone_while_the_plugin_is_down(bench: Bench) -> None:
    bench.unit("edgegpu-plugin.service", ActiveState="failed", SubState="failed")
    act = restart(bench)
    found = act.act(ID, NOTHING, act.token(ID, NOTHING))
    assert (found.state, found.code) == (CommandState.REJECTED, ResultCode.PRECHECK)
    (bench.fake / "units/edgegpu-plugin.service").unlink()
    assert act.act(ID, NOTHING, act.token(ID, NOTHING)).state is CommandState.VERIFYING


def test_the_unit_is_found_whatever_it_is_called(bench: Bench) -> None:
    (bench.fake / "units/k3s.service").unlink()
    bench.unit("k3s-agent.service")
    assert '"k3s-agent.service"' in restart(bench).token(ID, NOTHING)
    bench.unit("k3s-lab.service")
    bench.write("/etc/systemd/system/k3s-lab.service.d/50-edgegpu.conf", "")
    assert '"k3s-lab.service"' in restart(bench).token(ID, NOTHING)


@pytest.mark.parametrize(
    ("state", "under_way"),
    [("PREPARED", True), ("VERIFYING", True), ("ROLLING_BACK", True), ("COMMITTED", False), ("INCONSISTENT", False)],
)
def test_a_change_whose_author_died_is_under_way_until_it_is_finished(
    bench: Bench, state: str, *, under_way: bool
) -> None:
    bench.write("/var/lib/edgegpu/tx/state", f"id=one\nop=change\nstate={state}\n")
    assert is_change_under_way(bench.layout) is under_way


def test_an_installer_that_is_at_work_is_seen(bench: Bench) -> None:
    lock = bench.write("/run/edgegpu-tx.lock", "1\n")
    assert not is_change_under_way(bench.layout)
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert is_change_under_way(bench.layout)
    finally:
        os.close(descriptor)
    assert not is_change_under_way(bench.layout)


def test_an_installer_that_an_earlier_agent_began_is_seen_from_its_first_moment_to_its_end(bench: Bench) -> None:
    bench.tell("hold-BEFORE")
    bench.stop.set()
    with pytest.raises(ActionStopped):
        bench.box().installer.carry_out("policy-85-e5893ccf", ("install", "--policy", "spread"))
    bench.comes("at-BEFORE")
    assert is_change_under_way(bench.layout)
    assert not is_change_under_way(Bench(bench.root.parent / "another").layout), "it changes another machine's files"
    bench.untell("hold-BEFORE")
    wait_for(lambda: not is_change_under_way(bench.layout))
    assert bench.said("done") == ["install --policy spread --json --transaction-id policy-85-e5893ccf"]


def test_an_installer_that_no_agent_began_counts_from_its_lock_on(bench: Bench) -> None:
    bench.tell("hold-BEFORE")
    command = [str(bench.fake / "bin/edgegpu"), "install", "--transaction-id", "a-persons"]
    with subprocess.Popen(command, env=bench.env, stdout=subprocess.DEVNULL) as process:
        bench.comes("at-BEFORE")
        assert not is_change_under_way(bench.layout), "a person may be looking for hours"
        process.kill()
