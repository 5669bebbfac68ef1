"""Rollouts with the real controller's loop: waves, gates, the return, offline boxes, pause, abort."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kits.rolloutbed import QUICK, SPREAD, RolloutBed

from edgegpu_cloud.errors import ConflictError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.access import Access, read_scope
from edgegpu_cloud.fleet.specs import ContainerLimits, LimitsPatch, SharingSettings
from edgegpu_cloud.rollouts.rollouts import RolloutRequest, Rollouts
from edgegpu_cloud.rollouts.strategy import FailurePolicy, Gate, OfflinePolicy
from edgegpu_cloud.store.people.records import Role
from edgegpu_cloud.store.records import AuditEntry
from edgegpu_cloud.store.rollouts.records import RolloutBoxState, RolloutState
from edgegpu_sync.rules.settle import NO_SHARING

B, R = RolloutBoxState, RolloutState


@pytest.fixture
def bed(tmp_path: Path, todays_url: str) -> Iterator[RolloutBed]:
    bed = RolloutBed(tmp_path, url=todays_url)
    bed.connect_all()
    yield bed
    bed.store.close()


def test_all_waves_of_twenty_boxes_are_done(bed: RolloutBed) -> None:
    number = bed.start()

    bed.to_the_end(number)

    view = bed.rollouts.show(number)
    assert (view.state, view.boxes, view.states) == (R.DONE, 20, {B.APPLIED: 20})
    assert [wave.boxes for wave in view.waves] == [1, 5, 5, 5, 4]
    assert all(values["policy"] == "spread" for values in bed.settings().values())


def test_one_box_fails_and_all_that_were_changed_get_back_what_they_had(bed: RolloutBed) -> None:
    for name in ("box-1", "box-10", "box-11"):
        bed.fleet.set_settings(name, SharingSettings(policy="best-fit"))
    bed.fleet.set_settings("box-12", SharingSettings(exclude=("none",)))
    bed.book(12).values["exclusions"] = ()
    bed.until(lambda: bed.fleet.box("box-11").applied_rev == 1)
    had, documents = bed.settings(), bed.documents()
    bed.book(14).fails = True  # in the second wave

    number = bed.start(first=["box-2"])
    bed.to_the_end(number)

    view = bed.rollouts.show(number)
    assert view.state is R.RETURNED
    assert "wave 2: 1 of 5 boxes failed" in view.reason or "wave 1: 1 of 5 boxes failed" in view.reason
    assert bed.settings() == had
    assert bed.documents() == documents
    states = Counter(bed.states(number).values())
    assert states[B.RETURNED] >= 6
    assert states[B.CANCELLED] >= 9
    assert sum(states.values()) == 20
    touched = [book for book in bed.books.values() if ("policy", "spread") in book.log]
    assert len(touched) <= 10  # canary and two waves, less the one that failed: never one beyond the gate
    assert [alarm.kind for alarm in bed.fleet.alarms()] == [f"rollout.STOPPED/{number}"]
    assert {entry.what for entry in _audits(bed)} >= {"rollout.started", "box.spec"}


def _audits(bed: RolloutBed) -> list[AuditEntry]:
    with bed.store.read() as tx:
        return list(tx.notes.audits(limit=200))


def test_a_change_by_somebody_else_is_not_overwritten_by_the_return(bed: RolloutBed) -> None:
    bed.book(14).fails = True
    strategy = replace(QUICK, canary=2, gate=Gate(soak_s=60))
    number = bed.start(strategy, first=["box-1", "box-10"])
    bed.until(lambda: bed.states(number)["box-1"] is B.APPLIED)
    bed.fleet.set_settings("box-1", SharingSettings(policy="best-fit"))
    bed.fleet.set_settings("box-10", SharingSettings(exclude=("none",)))

    bed.to_the_end(number)

    assert bed.rollouts.show(number).state is R.RETURNED
    one = next(box for box in bed.rollouts.boxes(number) if box.name == "box-1")
    assert one.state is B.SKIPPED
    assert "somebody else has changed it" in one.message
    assert bed.book(1).values["policy"] == "best-fit"
    assert bed.fleet.spec("box-10").exclusions is not None  # another item of the same document stays


def test_an_operator_who_changes_a_box_before_the_return_keeps_the_change(bed: RolloutBed) -> None:
    number = bed.start(first=["box-1"])
    bed.until(lambda: bed.states(number)["box-1"] is B.APPLIED)
    bed.rollouts.pause(number)
    bed.settle(5)
    bed.fleet.set_settings("box-1", SharingSettings(policy="best-fit"))
    bed.rollouts.abort(number, returns=True)

    bed.to_the_end(number)

    one = next(box for box in bed.rollouts.boxes(number) if box.name == "box-1")
    assert (one.state, bed.book(1).values["policy"]) == (B.NOT_RETURNED, "best-fit")
    assert "somebody else has changed it" in one.message


ASR = "app_limits/default/asr/main"


def test_a_rollout_of_memory_keeps_the_core_of_each_box(bed: RolloutBed) -> None:
    names = ("box-1", "box-10", "box-11", "box-12")
    for name, amounts in zip(names, ((12, 10), (12, 10), (4, 20)), strict=False):
        bed.fleet.set_limits(name, asr(*amounts))
    bed.until(lambda: bed.fleet.box("box-11").applied_rev == 1)
    change = LimitsPatch(namespace="default", app="asr", container="main", memory_units=10)
    steps = bed.rollouts.preview(RolloutRequest(change=change, boxes=names)).steps
    assert steps is not None
    assert steps.lines() == [
        "12/10 -> 10/10 on 2 boxes",
        "4/20 -> 10/20 on 1 box",
        "?/? -> refused, for want of what it has on 1 box",
    ]

    strategy = replace(QUICK, canary=4, gate=Gate(success_percent=50), on_failure=FailurePolicy.STOP)
    number = bed.start(strategy, change, boxes=names)
    bed.to_the_end(number)

    books = {name: bed.books[bed.fleet.box(name).device].values.get(ASR) for name in names}
    assert books == {"box-1": (10, 10), "box-10": (10, 10), "box-11": (10, 20), "box-12": None}
    states = bed.states(number)
    assert states == {"box-1": B.APPLIED, "box-10": B.APPLIED, "box-11": B.APPLIED, "box-12": B.REJECTED}
    message = next(one.message for one in bed.rollouts.boxes(number) if one.name == "box-12")
    assert "no core is given, and what it has there is not known" in message
    assert bed.rollouts.show(number).words == "limits default/asr main: 10 units, core as it is"
    back = bed.rollouts.way_back(number)
    assert [step.words() for step in back.steps] == [
        "memory_units 10, core 10 -> memory_units 12, core 10 on 2 boxes",
        "memory_units 10, core 20 -> memory_units 4, core 20 on 1 box",
    ]
    assert (back.left, back.more_boxes) == ([], 0)


def test_another_try_of_a_rollout_keeps_the_core_that_the_first_has_kept(bed: RolloutBed) -> None:
    bed.fleet.set_limits("box-1", asr(12, 10))
    device = bed.fleet.box("box-1").device
    bed.until(lambda: bed.fleet.box("box-1").applied_rev == 1)
    bed.books[device].fails = True
    change = LimitsPatch(namespace="default", app="asr", container="main", memory_units=10)
    number = bed.start(replace(QUICK, retries=2, retry_after_s=1), change, boxes=["box-1"])
    bed.until(lambda: bed.rollouts.boxes(number)[0].attempts > 1)
    bed.books[device].fails = False

    bed.to_the_end(number)

    assert (bed.states(number)["box-1"], bed.books[device].values[ASR]) == (B.APPLIED, (10, 10))


def asr(units: int, core: int) -> ContainerLimits:
    return ContainerLimits(namespace="default", app="asr", container="main", memory_units=units, core=core)


def test_an_offline_box_joins_when_it_is_back(bed: RolloutBed) -> None:
    away = bed.devices[4]
    bed.network.cut_off(away)
    bed.settle(3)
    number = bed.start()
    bed.until(lambda: bed.rollouts.show(number).states.get(B.APPLIED) == 19)
    bed.settle(30)
    assert bed.rollouts.show(number).state is R.RUNNING
    assert bed.states(number)["box-5"] is B.AWAY

    bed.back(away)
    bed.to_the_end(number)

    assert bed.rollouts.show(number).states == {B.APPLIED: 20}
    assert bed.book(5).values["policy"] == "spread"


def test_an_offline_box_is_skipped_when_the_time_to_join_is_over(bed: RolloutBed) -> None:
    bed.network.cut_off(bed.devices[4])
    bed.settle(3)
    number = bed.start(replace(QUICK, join_within_s=600))
    bed.to_the_end(number)
    assert bed.states(number)["box-5"] is B.SKIPPED


def test_an_offline_box_is_left_by_policy(bed: RolloutBed) -> None:
    bed.network.cut_off(bed.devices[4])
    bed.settle(3)
    number = bed.start(replace(QUICK, offline=OfflinePolicy.SKIP))
    bed.to_the_end(number)
    bed.back(bed.devices[4])
    bed.settle(30)

    assert bed.rollouts.show(number).states == {B.APPLIED: 19, B.SKIPPED: 1}
    assert bed.book(5).values["policy"] == "first-fit"


def test_a_pause_lasts_over_a_restart_and_the_rollout_goes_on_after_it(bed: RolloutBed) -> None:
    number = bed.start()
    bed.until(lambda: bed.rollouts.show(number).states.get(B.APPLIED, 0) >= 6)
    bed.rollouts.pause(number)
    bed.settle(10)
    before = bed.states(number)
    bed.restart()
    bed.settle(60)
    assert bed.states(number) == before
    assert bed.rollouts.show(number).state is R.PAUSED

    bed.rollouts.resume(number)
    bed.to_the_end(number)
    assert bed.rollouts.show(number).states == {B.APPLIED: 20}


def test_an_abort_cancels_what_is_queued_and_lets_end_what_is_begun(bed: RolloutBed) -> None:
    slow = bed.devices[2]
    number = bed.start(replace(QUICK, canary=0))
    bed.until(lambda: bed.rollouts.show(number).states.get(B.CHANGING, 0) == 5)
    begun = {name for name, state in bed.states(number).items() if state is not B.QUEUED}
    bed.network.cut_off(slow)

    bed.rollouts.abort(number)
    bed.to_the_end(number)

    states = bed.states(number)
    assert bed.rollouts.show(number).state is R.ABORTED
    assert {name for name, state in states.items() if state is not B.CANCELLED} == begun
    assert len(begun) == 5
    assert sum("spread" in str(book.log) for book in bed.books.values()) <= 5
    with pytest.raises(ConflictError, match="ABORTED"):
        bed.rollouts.abort(number)


def test_a_failed_box_is_tried_again_and_says_when(bed: RolloutBed) -> None:
    bed.book(1).fails = True
    number = bed.start(replace(QUICK, retries=2, retry_after_s=100), first=["box-1"])
    bed.until(lambda: bed.states(number)["box-1"] is B.RETRYING)
    one = bed.rollouts.boxes(number, [B.RETRYING])[0]
    assert (one.attempts, one.next_try_at_s) == (1, one.since_s + 100)
    assert "the plugin does not come up with it" in one.message
    bed.book(1).fails = False

    bed.to_the_end(number)
    assert bed.rollouts.show(number).states == {B.APPLIED: 20}
    assert bed.rollouts.boxes(number)[0].attempts == 2


def test_a_box_that_loses_the_change_in_the_soak_fails_the_gate(bed: RolloutBed) -> None:
    number = bed.start(replace(QUICK, gate=Gate(soak_s=600), on_failure=FailurePolicy.STOP), first=["box-1"])
    bed.until(lambda: bed.states(number)["box-1"] is B.APPLIED)
    assert bed.rollouts.show(number).soaks_until_s is not None
    state = bed.box(bed.devices[0])
    one = state.desired_state.asked[0]
    tried = replace(state.desired_state.tries[one.name], settlement=NO_SHARING)
    state.desired_state = replace(state.desired_state, tries={one.name: tried})
    state.say_reported()

    bed.to_the_end(number)
    assert bed.rollouts.show(number).state is R.STOPPED
    assert Counter(bed.states(number).values()) == {B.REJECTED: 1, B.CANCELLED: 19}


def test_limits_are_rolled_out_to_one_box_of_each_cluster_and_come_back(bed: RolloutBed) -> None:
    bed.box(bed.devices[1]).cluster = bed.box(bed.devices[0]).cluster
    bed.box(bed.devices[1]).say_reported()
    bed.settle(1)
    bed.fleet.set_cluster(bed.devices[1], accept=True)
    small = ContainerLimits(namespace="default", app="asr", container="main", memory_units=4, core=1)
    other = ContainerLimits(namespace="default", app="tts", container="main", memory_units=2, core=1)
    for device in bed.devices:
        if device != bed.devices[1]:
            bed.fleet.set_limits(device, small)
            bed.fleet.set_limits(device, other)
    bed.settle(20)
    had, documents = bed.settings(), bed.documents()
    bed.book(9).fails = True

    number = bed.start(change=replace(small, memory_units=10))
    bed.to_the_end(number)

    assert bed.rollouts.show(number).boxes == 19
    assert bed.rollouts.show(number).state is R.RETURNED
    assert (bed.settings(), bed.documents()) == (had, documents)


def test_two_rollouts_of_the_same_thing_do_not_meet(bed: RolloutBed) -> None:
    number = bed.start()
    with pytest.raises(ConflictError, match=f"rollout {number} changes the same"):
        bed.start(boxes=["box-3"])
    bed.to_the_end(number)
    again = bed.start(boxes=["box-3"])
    bed.to_the_end(again)
    one = bed.rollouts.boxes(again)[0]
    assert (one.state, one.changed, one.message) == (B.APPLIED, False, "it stood so already")
    assert bed.book(3).log == [("policy", "spread")]


def test_a_rollout_is_not_taken_back_beside_one_that_changes_the_same(bed: RolloutBed) -> None:
    number = bed.start()
    bed.to_the_end(number)
    other = bed.start(replace(QUICK, offline=OfflinePolicy.SKIP))
    with pytest.raises(ConflictError, match=f"rollout {other} changes the same"):
        bed.rollouts.abort(number, returns=True)
    bed.to_the_end(other)
    bed.rollouts.abort(number, returns=True)
    bed.to_the_end(number)


def test_a_gate_without_enough_successes_is_held_until_a_person_goes_on(bed: RolloutBed) -> None:
    bed.network.cut_off(bed.devices[0])
    bed.settle(3)
    number = bed.start(replace(QUICK, offline=OfflinePolicy.SKIP), first=["box-1"])
    bed.until(lambda: bed.rollouts.show(number).state is R.PAUSED)
    assert "0 of 1 boxes succeeded" in bed.rollouts.show(number).reason
    bed.rollouts.resume(number)
    bed.to_the_end(number)
    assert bed.rollouts.show(number).states == {B.APPLIED: 19, B.SKIPPED: 1}


def test_the_waves_are_seen_before(bed: RolloutBed) -> None:
    plan = bed.rollouts.preview(RolloutRequest(change=SPREAD, strategy=QUICK, first=["box-7"]))
    assert [(wave.name, len(wave.boxes)) for wave in plan.waves] == [
        ("canary", 1),
        ("wave 1", 5),
        ("wave 2", 5),
        ("wave 3", 5),
        ("wave 4", 4),
    ]
    assert plan.waves[0].boxes[0].name == "box-7"
    assert not bed.rollouts.all()


def test_a_person_sees_and_starts_rollouts_of_their_own_boxes_alone(bed: RolloutBed) -> None:
    for number in (1, 2, 3):
        bed.fleet.label(f"box-{number}", {"site": "hall"})
    scope = read_scope("site=hall")
    hall = Rollouts(bed.store, clock=bed.world.clock, access=Access("bert", Role.OPERATOR, scope))
    viewer = Rollouts(bed.store, clock=bed.world.clock, access=Access("carl", Role.VIEWER))

    mine = hall.start(RolloutRequest(change=SPREAD, strategy=QUICK))
    assert {box.name for box in hall.boxes(mine)} == {"box-1", "box-2", "box-3"}
    bed.to_the_end(mine)
    everyones = bed.start(change=SharingSettings(policy="best-fit"))

    assert [one.number for one in hall.all()] == [mine]
    assert [one.number for one in viewer.all()] == [everyones, mine]
    with pytest.raises(NotFoundError, match=f"cannot find rollout {everyones}"):
        hall.abort(everyones)
    with pytest.raises(NotFoundError):
        hall.start(RolloutRequest(change=SPREAD, strategy=QUICK, boxes=["box-9"]))
    with pytest.raises(ForbiddenError):
        viewer.pause(everyones)
