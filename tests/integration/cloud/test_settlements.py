"""Settlements at the controller: when and how boxes settle what is requested of them, on both databases."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import run
from kits.controller import Bed, Killer, NewBed

from edgegpu_cloud.fleet.history.settlements import record_settlements
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.limits.outcomes import OutcomeState
from edgegpu_cloud.fleet.specs import ContainerLimits, SharingSettings
from edgegpu_cloud.layout import CloudConfig, dump
from edgegpu_cloud.store.settlements.tables import KEPT_SETTLEMENTS
from edgegpu_sync.messages.uplink import ItemReport, ItemState
from edgegpu_sync.rules.settle import Settlement

if TYPE_CHECKING:
    from pathlib import Path

    from kits.modelbox import ModelBox

LIMITS = ContainerLimits(namespace="default", app="asr", container="main", memory_units=4, core=1)
ASR = ContainerKey("default", "asr", "main")


@pytest.fixture
def bed(new_bed: NewBed) -> Bed:
    made = new_bed()
    made.world.now_s = time.time() + 60  # after the migration, from when on settlements are kept
    made.connect_all()
    made.settle(2)
    return made


def told(bed: Bed) -> list[tuple[int, OutcomeState, str]]:
    """The history of the app: units, what came of them, the box's code."""
    found = bed.fleet.limits_history("box-1", ASR)
    return [
        (one.after.memory_units, one.outcome.state, one.outcome.code)
        for one in found
        if one.after is not None and one.outcome is not None
    ]


def settled_at(bed: Bed, name: str) -> float | None:
    """When the present request of an item was settled."""
    return next(one.settled_at_s for one in bed.fleet.requests("box-1") if one.name == name)


def refuse(box: ModelBox, code: str = "NEVER_FITS", text: str = "4 of 29 units are free") -> None:
    """Let a box refuse what is requested from now on."""
    box.verdict = lambda _: Settlement.rejected(code, text)


class TestTime:
    def test_a_request_has_the_time_at_which_the_box_had_applied_it(self, bed: Bed) -> None:
        asked_s = bed.world.clock()
        bed.fleet.set_limits("box-1", LIMITS)
        assert settled_at(bed, ASR.item) is None
        bed.settle(4)
        found = settled_at(bed, ASR.item)
        assert found is not None
        assert asked_s < found <= bed.world.clock()
        bed.settle(1_300, step_s=100)
        assert settled_at(bed, ASR.item) == found, "a report of the same again is no settlement"

    def test_each_setting_of_sharing_has_its_own(self, bed: Bed) -> None:
        bed.fleet.set_settings("box-1", SharingSettings(policy="spread"))
        bed.settle(4)
        first = settled_at(bed, "policy")
        bed.fleet.set_settings("box-1", SharingSettings(unit_mib=512))
        bed.settle(4)
        assert first is not None
        assert settled_at(bed, "policy") == first
        assert (settled_at(bed, "unit_size") or 0.0) > first

    def test_what_was_settled_while_the_box_was_away_has_the_time_of_its_report(self, bed: Bed) -> None:
        bed.network.cut_off(bed.devices[0])
        bed.fleet.set_limits("box-1", LIMITS)
        bed.settle(60, step_s=10)
        assert settled_at(bed, ASR.item) is None
        back_s = bed.world.clock()
        bed.network.connect(bed.box())
        bed.settle(4)
        assert (settled_at(bed, ASR.item) or 0.0) >= back_s

    def test_a_request_that_is_tried_again_is_settled_anew(self, bed: Bed) -> None:
        refuse(bed.box())
        bed.fleet.set_limits("box-1", LIMITS)
        bed.settle(4)
        first = settled_at(bed, ASR.item)
        bed.box().verdict = lambda _: Settlement.applied()
        bed.fleet.set_limits("box-1", LIMITS)
        assert settled_at(bed, ASR.item) is None
        bed.settle(4)
        assert (settled_at(bed, ASR.item) or 0.0) > (first or 0.0) > 0.0
        assert told(bed) == [(4, OutcomeState.APPLIED, ""), (4, OutcomeState.REJECTED, "NEVER_FITS")]

    def test_a_box_that_is_enrolled_anew_settles_the_same_request_once_more(self, bed: Bed) -> None:
        bed.fleet.set_limits("box-1", LIMITS)
        bed.settle(4)
        first = settled_at(bed, ASR.item)
        bed.settle(60, step_s=10)
        bed.enrol(bed.devices[0], "box-1", enrolment=2)
        bed.connect_all()
        bed.settle(4)
        assert (settled_at(bed, ASR.item) or 0.0) > (first or 0.0) > 0.0


def test_a_command_keeps_the_time_at_which_it_was_sent_first(bed: Bed) -> None:
    bed.network.cut_off(bed.devices[0])
    id_ = bed.fleet.command("box-1", "inventory.refresh", {})
    bed.settle(4)
    assert bed.fleet.one_command(id_).sent_at_s is None
    back_s = bed.world.clock()
    bed.network.connect(bed.box())
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    sent_s = bed.fleet.one_command(id_).sent_at_s
    assert sent_s is not None
    assert back_s <= sent_s <= bed.fleet.one_command(id_).history[0].at_s


class TestHistory:
    def test_each_change_has_what_came_of_it(self, bed: Bed) -> None:
        bed.fleet.set_limits("box-1", LIMITS)
        bed.settle(4)
        refuse(bed.box())
        bed.fleet.set_limits("box-1", replace(LIMITS, memory_units=10))
        bed.settle(4)
        bed.network.cut_off(bed.devices[0])
        bed.fleet.set_limits("box-1", replace(LIMITS, memory_units=7))
        bed.settle(4)
        replaced_s = bed.world.clock()
        bed.fleet.set_limits("box-1", replace(LIMITS, memory_units=6))
        assert told(bed) == [
            (6, OutcomeState.WAITING, ""),
            (7, OutcomeState.REPLACED, ""),
            (10, OutcomeState.REJECTED, "NEVER_FITS"),
            (4, OutcomeState.APPLIED, ""),
        ]
        outcome = bed.fleet.limits_history("box-1", ASR)[1].outcome
        assert outcome is not None
        assert outcome.at_s == replaced_s

    def test_a_request_that_was_taken_back_has_no_outcome_and_the_one_before_keeps_its_own(self, bed: Bed) -> None:
        bed.fleet.set_limits("box-1", LIMITS)
        bed.settle(4)
        bed.fleet.forget_limits("box-1", "default", "asr")
        bed.settle(4)
        found = bed.fleet.limits_history("box-1", ASR)
        assert [one.after is None for one in found] == [True, False]
        assert found[0].outcome is None
        assert told(bed) == [(4, OutcomeState.APPLIED, "")]


class TestStore:
    def test_they_are_stored_with_the_report_or_not_at_all(self, bed: Bed) -> None:
        def matches() -> bool:
            items = bed.fleet.details("box-1").box.items
            with bed.store.read() as tx:
                stored = tx.settlements.of(bed.devices[0]).by_key
            settled = {(name, one.rev) for name, one in items.items() if one.state is not ItemState.OPEN}
            assert settled <= {(key.item, key.rev) for key in stored}
            return settled_at(bed, ASR.item) is not None

        rng = random.Random(1)
        killer = Killer(at=lambda _: rng.random() < 0.15, off=True)
        bed.watcher = killer
        for units in range(1, 9):
            killer.off = True
            bed.fleet.set_limits("box-1", replace(LIMITS, memory_units=units))
            killer.off = False
            bed.until(matches, step_s=0.5)
        assert killer.kills > 3
        assert [state for _, state, _ in told(bed)] == [OutcomeState.APPLIED] * 8

    def test_a_request_that_is_open_again_has_no_time_until_it_is_settled(self, bed: Bed) -> None:
        refuse(bed.box(), "NOT_INSTALLED")
        bed.fleet.set_limits("box-1", LIMITS)
        bed.settle(4)
        assert told(bed) == [(4, OutcomeState.DORMANT, "NOT_INSTALLED")]
        device = bed.devices[0]
        name, report = next(iter(bed.fleet.details("box-1").box.items.items()))
        open_ = report.model_copy(update={"state": ItemState.OPEN, "code": None, "text": None})
        with bed.store.write() as tx:
            record_settlements(tx, {device: {name: open_}}, {device: 1}, now_s=bed.world.clock())
            assert not tx.settlements.of(device).by_key

    def test_a_text_that_a_long_report_leaves_out_is_kept(self, bed: Bed) -> None:
        refuse(bed.box())
        bed.fleet.set_limits("box-1", LIMITS)
        bed.settle(4)
        device = bed.devices[0]
        name, report = next(iter(bed.fleet.details("box-1").box.items.items()))
        before = settled_at(bed, ASR.item)
        short = report.model_copy(update={"text": None, "numbers": None})
        with bed.store.write() as tx:
            record_settlements(tx, {device: {name: short}}, {device: 1}, now_s=bed.world.clock() + 9)
            [kept] = tx.settlements.of(device).by_key.values()
        assert (kept.text, kept.at_s) == ("4 of 29 units are free", before)

    def test_the_oldest_of_many_are_dropped(self, bed: Bed) -> None:
        device = bed.devices[0]
        with bed.store.write() as tx:
            for turn in range(13):
                report = ItemReport(state=ItemState.APPLIED, rev=turn, hash="ab", retry=0)
                items = {f"item-{at}": report for at in range(100)}
                record_settlements(tx, {device: items}, {device: 1}, now_s=float(turn))
            found = tx.settlements.of(device)
        assert len(found.by_key) == KEPT_SETTLEMENTS
        assert {key.rev for key in found.by_key} == set(range(3, 13))
        assert found.since_s >= 3.0

    def test_a_box_that_is_forgotten_leaves_none(self, bed: Bed) -> None:
        bed.fleet.set_limits("box-1", LIMITS)
        bed.settle(4)
        bed.fleet.forget("box-1")
        with bed.store.read() as tx:
            assert not tx.settlements.of(bed.devices[0]).by_key


def test_the_command_line_shows_when_and_by_whom_and_what_came_of_it(tmp_path: Path) -> None:
    (tmp_path / "controller.yaml").write_text(dump(CloudConfig(version=1)))
    bed = Bed(tmp_path)
    bed.world.now_s = time.time() + 60
    bed.connect_all()
    bed.settle(2)
    bed.fleet.set_limits("box-1", LIMITS)
    bed.fleet.set_settings("box-1", SharingSettings(policy="spread"))
    bed.settle(4)
    settled_s = settled_at(bed, ASR.item)
    bed.network.cut_off(bed.devices[0])
    bed.fleet.set_limits("box-1", replace(LIMITS, memory_units=9))
    bed.fleet.set_limits("box-1", replace(LIMITS, memory_units=10))
    words = ("limits", "history", "box-1", "default/asr", "--container", "main")
    told = json.loads(run(*words, "--json", folder=tmp_path).out)
    assert [(one["after"]["memory_units"], one["outcome"]["state"], one["requested_by"]) for one in told] == [
        (10, "waiting", "anna"),
        (9, "replaced", "anna"),
        (4, "applied", "anna"),
    ]
    assert told[2]["outcome"]["at_s"] == settled_s
    lines = run(*words, folder=tmp_path).out.splitlines()
    assert lines[0].split() == ["REQUESTED", "AT", "BY", "FROM", "TO", "ENDED", "AT", "STATE"]
    assert lines[3].split()[-1] == "Applied"
    done = run("limits", "history", "box-1", "default/other", folder=tmp_path)
    assert (done.code, done.out) == (0, "no limits of default/other were requested on box-1\n")
    (row,) = json.loads(run("limits", "show", "box-1", "--json", folder=tmp_path).out)
    assert (row["requested_by"], row["settled_at_s"], row["report"]) == ("anna", None, None)
    shown = json.loads(run("sharing", "show", "box-1", "--json", folder=tmp_path).out)["items"]
    policy, unit = (next(one for one in shown if one["item"] == name) for name in ("policy", "unit_size"))
    assert policy["requested_at_s"] < policy["settled_at_s"]
    assert unit["requested_at_s"] is None
    bed.store.close()
