from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from chaos.load import Asked
from chaos.verdict import JUDGED_FROM, OF_CONTROLLERS, OURS, Done, Start, Told, Verdict, judge, judge_faults

if TYPE_CHECKING:
    from collections.abc import Mapping

PLUGIN, K3S = "edgegpu-plugin.service", "k3s.service"
BEFORE = Start(f"{1:032x}", "before")


def asked(id_: str, op: str = "plugin.restart") -> Asked:
    return Asked(id_, op, "box", 0.0)


def start(number: int, by: str) -> Start:
    return Start(f"{number:032x}", by)


def by_start(number: int) -> Told:
    return replace(ended("SUCCEEDED"), data={"unit": PLUGIN, "invocation": f"{number:032x}"})


def ended(state: str) -> Told:
    return Told(state=state, history=["ACCEPTED", "RUNNING", state])


def box(starts: int, **more: str) -> Done:
    """Return a box whose plugin was restarted so often, and whose journal holds these ends."""
    of_plugin = [BEFORE, *(start(number, OURS) for number in range(2, starts + 2))]
    return Done(
        starts={PLUGIN: of_plugin, K3S: [BEFORE]},
        changes={},
        stands={"sharing": "on"},
        doctor=0,
        journal=more,
        rev=1,
        applied_rev=1,
    )


def judged(done: Done, told: Mapping[str, Told], *more: Asked, uploads: int = 0) -> Verdict:
    ids = [*more] or [asked(id_) for id_ in told]
    return judge(ids, told, {"box": done}, dict.fromkeys(told, uploads), booted=())


def test_each_start_that_one_command_names_is_right() -> None:
    verdict = judged(box(2, a="SUCCEEDED", b="SUCCEEDED"), {"a": by_start(2), "b": by_start(3)})
    assert verdict.clean
    assert verdict.ends == {"SUCCEEDED": 2}


def test_a_start_that_no_command_names_was_done_twice() -> None:
    verdict = judged(box(2, a="SUCCEEDED"), {"a": by_start(3)})
    assert verdict.twice == [f"box {PLUGIN}: starts {2:032x} are no command's (0 may have been of those that failed)"]


def test_a_command_that_says_that_it_was_not_done_and_was() -> None:
    assert judged(box(1, a="EXPIRED"), {"a": ended("EXPIRED")}).twice


def test_a_start_may_be_that_of_a_command_that_failed() -> None:
    assert judged(box(1, a="FAILED"), {"a": ended("FAILED")}).clean


def test_a_start_that_two_commands_name_was_done_once_for_both() -> None:
    verdict = judged(box(1, a="SUCCEEDED", b="SUCCEEDED"), {"a": by_start(2), "b": by_start(2)})
    assert verdict.lost == [f"box {PLUGIN}: start {2:032x} is named by a, b"]


def test_a_start_that_is_not_in_the_ledger() -> None:
    assert len(judged(box(0, a="SUCCEEDED"), {"a": by_start(2)}).lost) == 1


def test_a_start_of_the_installer_is_nobodys() -> None:
    done = box(0, a="SUCCEEDED")
    done = replace(done, starts={PLUGIN: [BEFORE, start(2, "installer t"), start(3, OURS)], K3S: [BEFORE]})
    assert judged(done, {"a": by_start(3)}).clean
    assert judged(done, {"a": by_start(2)}).lost
    assert judged(done, {"a": by_start(2)}).twice


def test_what_one_side_does_not_know_is_lost() -> None:
    assert judged(box(0), {"a": ended("EXPIRED")}).lost
    assert judged(box(0), {}, asked("a")).lost


def test_what_a_box_has_forgotten_by_rule_is_not_lost() -> None:
    told = {"a": replace(ended("EXPIRED"), seq=7)}
    assert judged(replace(box(0), forgotten=7), told).clean
    assert judged(replace(box(0), forgotten=6), told).lost


def test_what_nobody_asked_for() -> None:
    assert judged(replace(box(0), unasked=["a"]), {}).twice


def test_a_box_that_is_ahead_of_its_controller() -> None:
    assert judged(replace(box(0), restored=True), {}).stuck


def test_what_has_not_ended_is_stuck() -> None:
    assert judged(box(0, a="RUNNING"), {"a": Told(state="RUNNING")}).stuck
    assert judged(box(0), {"a": Told(state=None)}).stuck


def test_two_ends() -> None:
    assert judged(box(0, a="EXPIRED"), {"a": ended("REJECTED")}).two_ends
    both = replace(ended("EXPIRED"), history=["FAILED", "EXPIRED"])
    assert judged(box(0, a="EXPIRED"), {"a": both}).two_ends


def test_unknown_is_no_end_of_what_can_be_done_again_or_verified() -> None:
    assert judged(box(0, a="UNKNOWN"), {"a": ended("UNKNOWN")}).unknown


def test_the_start_of_a_boot_ends_a_restart_that_the_power_was_cut_in() -> None:
    done = replace(box(0, a="SUCCEEDED"), starts={PLUGIN: [BEFORE, start(2, "boot")], K3S: [BEFORE]})
    assert judged(done, {"a": by_start(2)}).clean
    assert judged(replace(done, journal={"a": "EXPIRED"}), {"a": ended("EXPIRED")}).clean
    assert judged(done, {"a": by_start(1)}).lost
    cut = replace(done, starts={PLUGIN: [BEFORE, start(3, OURS), start(2, "boot")], K3S: [BEFORE]})
    assert judged(cut, {"a": by_start(2)}).clean
    assert judged(replace(cut, journal={"a": "EXPIRED"}), {"a": ended("EXPIRED")}).twice


def test_a_revision_is_applied_once_and_stands() -> None:
    items = {"policy": {"state": "Applied", "wanted": "spread"}}
    stands = {"sharing": "on", "policy": "spread"}
    done = replace(box(0), changes={"policy-3": ["policy-3-aaaaaaaa"]}, stands=stands, items=items)
    assert judged(done, {}).clean
    assert judged(replace(done, changes={"policy-3": ["policy-3-aaaaaaaa", "policy-3-bbbbbbbb"]}), {}).twice
    assert judged(replace(done, stands={"sharing": "on"}), {}).lost
    assert judged(replace(done, rev=2), {}).stuck


def test_what_a_ledger_of_its_own_has_found_twice() -> None:
    assert judged(replace(box(0), repeated=["asr got limits again"]), {}).twice == ["box: asr got limits again"]


def test_an_archive_that_has_not_come() -> None:
    told, logs = {"a": ended("SUCCEEDED")}, asked("a", "logs.collect")
    assert judged(box(0, a="SUCCEEDED"), told, logs).lost
    assert judged(box(0, a="SUCCEEDED"), told, logs, uploads=1).clean
    assert judged(box(0, a="SUCCEEDED"), told, logs, uploads=99).twice


def test_the_doctor_ran_as_often_as_it_is_said() -> None:
    told, doctor = {"a": ended("SUCCEEDED")}, asked("a", "doctor.run")
    assert judged(box(0, a="SUCCEEDED"), told, doctor).lost
    assert judged(replace(box(0, a="SUCCEEDED"), doctor=2), told, doctor).clean
    assert judged(replace(box(0, a="SUCCEEDED"), doctor=None), told, doctor).clean


@pytest.mark.parametrize(
    ("booted", "others", "short"),
    [(0, 200, True), (59, 141, True), (60, 140, False), (67, 133, False), (2_999, 7_001, True), (3_333, 6_667, False)],
)
def test_booted_boxes_had_a_third(booted: int, others: int, *, short: bool) -> None:
    verdict = shared(booted, others)
    assert verdict.unshown == (
        [f"booted boxes had {booted} of {booted + others}: 30% at least is meant"] if short else []
    )
    assert verdict.words == verdict.unshown
    assert verdict.clean is not short


def test_the_share_of_few_commands_says_nothing() -> None:
    assert shared(0, 199).clean


def test_without_a_booted_box_there_is_no_share() -> None:
    assert shared(0, 10_000, there=()).clean


def shared(booted: int, others: int, *, there: tuple[str, ...] = ("booted-1", "booted-2")) -> Verdict:
    """Judge a run in which so much was asked of two booted boxes, and of another one."""
    asked_of = [*(f"booted-{number % 2 + 1}" for number in range(booted)), *["box-1"] * others]
    return judge([Asked("", "desired", name, 0.0, rev=1) for name in asked_of], {}, {}, {}, booted=there)


def test_a_run_of_several_controllers_without_one_of_its_faults_shows_nothing() -> None:
    every = dict.fromkeys(OF_CONTROLLERS, 1)
    whole = Verdict()
    judge_faults(whole, every, asked=JUDGED_FROM, partitions_taken=1)
    assert whole.clean
    for kind in OF_CONTROLLERS:
        lacking = Verdict()
        judge_faults(lacking, every | {kind: 0}, asked=JUDGED_FROM, partitions_taken=1)
        assert lacking.words == [f"never happened: {kind}"]
    unmoved, short = Verdict(), Verdict()
    judge_faults(unmoved, every, asked=JUDGED_FROM, partitions_taken=0)
    assert unmoved.words == ["never happened: others took the partitions of a controller that was away"]
    judge_faults(short, {}, asked=JUDGED_FROM - 1, partitions_taken=0)
    assert short.clean
