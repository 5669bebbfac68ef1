from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from edgegpu_installer.changes import Deadline
from edgegpu_installer.errors import InstallError
from edgegpu_installer.verify.verify import (
    SETTLE_S,
    ExtenderCaller,
    MachineSample,
    Node,
    RunningPod,
    SchedulerStatus,
    WantedMachine,
    lacks,
    lost_pods,
    wait_until_well,
)

OURS = ExtenderCaller("https://127.0.0.1:8787", "cert")
NAMES = ("baidu.com/vcuda-memory", "baidu.com/vcuda-core")
POD = RunningPod("default/a", "u1", "Running", "", frozenset({("main", "c1")}))
OLD_NODE = Node(ready=True, heartbeat="2026-01-01T00:00:00Z", offers=frozenset(NAMES))
BEFORE = MachineSample(invocation="i1", active=True, restarts=0, node=OLD_NODE, pods=(POD,))
WANTED = WantedMachine(unit="k3s", node="n", has_scheduler=True, caller=OURS, resources=NAMES)
WELL = MachineSample(
    invocation="i2",
    active=True,
    restarts=0,
    scheduler=SchedulerStatus("", (OURS,), elects=False),
    node=Node(ready=True, heartbeat="2026-01-01T00:01:00Z", offers=frozenset(NAMES)),
    pods=(POD,),
)


class World:
    """A clock that only a pause moves, and what is seen at each look; the last one stays."""

    def __init__(self, *looks: MachineSample) -> None:
        self.now_s = 0.0
        self.looks: Iterator[MachineSample] = iter(looks)
        self.seen = looks[0]
        self.said: list[str] = []

    def look(self) -> MachineSample:
        self.seen = next(self.looks, self.seen)
        return self.seen

    def pause(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.01)

    def wait(self, *, wanted: WantedMachine = WANTED, before: MachineSample = BEFORE, limit_s: float = 60.0) -> float:
        deadline = Deadline(limit_s, lambda: self.now_s)
        wait_until_well(
            wanted,
            before,
            look=self.look,
            last_words=lambda: "bad file",
            deadline=deadline,
            pause=self.pause,
            say=self.said.append,
        )
        return self.now_s


def test_what_is_waited_for_is_said_once_with_the_time() -> None:
    down, unseen = replace(WELL, active=False), replace(WELL, unseen="the API server is not ready")
    world = World(down, down, down, unseen, unseen, WELL)
    world.wait()
    assert world.said == [
        "after 0 s: k3s is not up",
        "after 2 s: the API server is not ready",
        f"after 2 s: all is well, but has not been for {SETTLE_S:g} s yet",
    ]


def test_all_is_well_only_after_a_while() -> None:
    assert SETTLE_S <= World(WELL).wait() < SETTLE_S + 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"active": False}, "k3s is not up"),
        ({"unseen": "the API server is not ready"}, "the API server is not ready"),
        ({"scheduler": None}, "scheduler has not been seen"),
        ({"scheduler": SchedulerStatus("refused", (), elects=False)}, "the scheduler is not well: refused"),
        ({"scheduler": SchedulerStatus("", (), elects=False)}, "without our extender yet"),
        (
            {"scheduler": SchedulerStatus("", (ExtenderCaller(OURS.url, "old"),), elects=False)},
            "without our extender yet",
        ),
        ({"extender": "Connection refused"}, "the extender does not answer: Connection refused"),
        ({"node": None}, "has not been seen"),
        ({"node": replace(OLD_NODE, ready=False)}, "not Ready"),
        ({"node": OLD_NODE}, "has not said anything"),
        ({"node": replace(OLD_NODE, heartbeat="2027", offers=frozenset(NAMES[:1]))}, "offers no baidu.com/vcuda-core"),
    ],
)
def test_what_lacks_is_said_until_the_deadline(change: dict[str, Any], words: str) -> None:
    bad = replace(WELL, **change)
    assert words in lacks(WANTED, BEFORE, bad)
    world = World(bad)
    with pytest.raises(InstallError, match=words):
        world.wait(limit_s=30)
    assert world.now_s == pytest.approx(30, abs=1)


def test_a_failure_names_the_log_and_does_not_tell_how_the_undo_will_end() -> None:
    with pytest.raises(InstallError) as raised:
        World(replace(WELL, active=False)).wait(limit_s=30)
    assert str(raised.value) == "cannot verify the change: k3s is not up: journalctl -u k3s -e"


def test_an_old_heartbeat_is_good_enough_without_a_restart() -> None:
    assert lacks(WANTED, BEFORE, replace(WELL, invocation="i1", node=OLD_NODE)) == ""


def test_an_agent_needs_no_scheduler_and_a_bare_server_no_node() -> None:
    agent = replace(WANTED, has_scheduler=False, caller=None)
    assert lacks(agent, BEFORE, replace(WELL, scheduler=None)) == ""
    bare = replace(WANTED, node="", resources=())
    assert lacks(bare, BEFORE, replace(WELL, node=None)) == ""


def test_after_an_uninstall_the_scheduler_must_not_have_our_extender() -> None:
    wanted = replace(WANTED, caller=None, resources=())
    assert lacks(wanted, BEFORE, WELL) == "the scheduler still has our extender"
    other = SchedulerStatus("", (ExtenderCaller("http://127.0.0.1:9", ""),), elects=False)
    assert lacks(wanted, BEFORE, replace(WELL, scheduler=other)) == ""


def test_a_moment_of_health_in_a_crash_loop_is_not_believed() -> None:
    down = replace(WELL, active=False)
    looks = [
        down,
        WELL,
        replace(down, restarts=1),
        replace(WELL, restarts=1),
        replace(WELL, restarts=2, invocation="x"),
    ]
    world = World(*looks, replace(down, restarts=3))
    with pytest.raises(InstallError, match="k3s ends again and again: bad file"):
        world.wait()
    assert world.now_s < 10


def test_a_restart_by_hand_begins_to_count_anew() -> None:
    world = World(replace(WELL, restarts=7, active=False), replace(WELL, restarts=0), replace(WELL, restarts=1))
    assert world.wait() > SETTLE_S


def test_a_new_invocation_begins_the_while_anew() -> None:
    world = World(*[WELL] * 15, replace(WELL, invocation="i3"))
    assert world.wait() == pytest.approx(7.5 + SETTLE_S, abs=1)


def test_where_a_leader_is_elected_its_lease_must_be_renewed() -> None:
    elected = SchedulerStatus("", (OURS,), elects=True, renewed="1")
    with pytest.raises(InstallError, match="renews the lease"):
        World(replace(WELL, scheduler=elected)).wait(limit_s=20)
    later = replace(WELL, scheduler=replace(elected, renewed="2"))
    World(replace(WELL, scheduler=elected), later).wait(limit_s=20)


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (replace(POD, phase="Failed", reason="UnexpectedAdmissionError"), "Failed UnexpectedAdmissionError"),
        (replace(POD, containers=frozenset({("main", "c2")})), "were started anew"),
    ],
)
def test_a_pod_that_the_change_cost_undoes_it(pod: RunningPod, words: str) -> None:
    with pytest.raises(InstallError, match=words):
        World(replace(WELL, pods=(pod,))).wait()


def test_a_pod_that_was_deleted_or_had_ended_before_is_not_lost() -> None:
    assert lost_pods(BEFORE, replace(WELL, pods=())) == ""
    ended = replace(POD, phase="Succeeded")
    assert lost_pods(replace(BEFORE, pods=(ended,)), replace(WELL, pods=(ended,))) == ""
