"""Each transaction of the installer is reported once: over kills, without the link, in order, whoever began it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kits.worker import ROOM, Box, Wire, fast_folder, wired
from kits.workercontroller import REFRESH

from edgegpu_agent.worker.transactions import MOST_AT_ONCE
from edgegpu_installer.transaction.ended import EndedTransaction
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.messages.telemetry import TransactionReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COMMITTED, ROLLED_BACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK
ONE = EndedTransaction(id="5f2e9c1b7a30", op="change", state=COMMITTED, began_s=10, ended_s=40, user="root")


class Killed(BaseException):
    """The agent is killed in a write to its journal."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as made:
        yield made


def changes(number: int, *, first: int = 0) -> tuple[EndedTransaction, ...]:
    return tuple(replace(ONE, id=f"change-{at:04}") for at in range(first, first + number))


def reports(wire: Wire) -> list[TransactionReport]:
    """Return what the controller has stored of it."""
    return [event.transaction for event in wire.controller.stored if event.transaction is not None]


def test_one_is_reported_once_and_not_again_after_a_restart(folder: Path) -> None:
    wire = wired(folder)
    wire.box.ended = (ONE,)
    wire.pass_time(20)
    wire.box.crash()
    wire.box.start()
    wire.connect()
    wire.pass_time(20)
    (told,) = reports(wire)
    assert (told.id, told.author, told.user, told.result) == (ONE.id, "person", "root", "COMMITTED")
    assert (told.began, told.ended, told.skipped) == (10, 40, 0)
    (event,) = wire.controller.stored
    assert (event.kind, event.level, event.about) == ("machine.transaction", "info", ONE.id)
    assert event.text == "change on the box, by root: COMMITTED"
    wire.box.crash()


def test_what_ended_without_the_agent_or_the_link_comes_later_in_order(folder: Path) -> None:
    box = Box(folder, ended=changes(3)).start()
    box.settle()
    box.ended = (*changes(3), replace(ONE, id="change-last", state=ROLLED_BACK, why="it hung"))
    box.wait(5)
    box.crash()
    wire = wired(box)
    wire.pass_time(20)
    assert [one.id for one in reports(wire)] == ["change-0000", "change-0001", "change-0002", "change-last"]
    last = wire.controller.stored[-1]
    assert (last.level, last.text) == ("warning", "change on the box, by root: ROLLED_BACK: it hung")
    box.crash()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_each_write_loses_none_and_repeats_none(folder: Path, when: str) -> None:
    left = [0]

    def hook(now: str, _change: object) -> None:
        if now == when and left[0]:
            left[0] -= 1
            if not left[0]:
                raise Killed

    for at in range(1, 12):
        place = folder / f"{at}"
        place.mkdir()
        left[0] = 0
        wire = wired(place, hook=hook)
        wire.box.ended = changes(4)
        left[0] = at
        try:
            wire.pass_time(10)
        except Killed:
            wire.box.crash()
            wire.box.link.sent.clear()
            wire.box.start()
            wire.connect()
        left[0] = 0
        wire.pass_time(60)
        assert [one.id for one in reports(wire)] == [one.id for one in changes(4)], at
        wire.box.crash()


def test_of_too_many_the_oldest_are_counted(folder: Path) -> None:
    wire = wired(folder)
    wire.box.ended = changes(MOST_AT_ONCE + 7)
    wire.pass_time(120)
    told = reports(wire)
    assert [one.id for one in told] == [one.id for one in changes(MOST_AT_ONCE, first=7)]
    assert [one.skipped for one in told] == [7, *[0] * (MOST_AT_ONCE - 1)]
    wire.box.ended = changes(MOST_AT_ONCE + 8)
    wire.pass_time(20)
    assert [one.id for one in reports(wire)][MOST_AT_ONCE:] == [f"change-{MOST_AT_ONCE + 7:04}"]
    wire.box.crash()


def by_command(wire: Wire) -> str:
    id_ = wire.controller.command(REFRESH)
    wire.pass_time(30)
    return str(id_)


@pytest.mark.parametrize(
    ("id_of", "op", "told"),
    [
        (lambda _: "policy-12-0a1b2c3d", "change", ("cloud", "", "policy", 12)),
        (lambda _: "unit-size-3-abcdefgh", "change", ("cloud", "", "unit_size", 3)),
        (by_command, "upgrade", ("cloud", "", "", 0)),
        (lambda _: "app-limits-3-abcdefgh", "change", ("person", "root", "", 0)),
        (lambda _: "by-ansible-1", "install", ("person", "root", "", 0)),
        (lambda _: "guard-1790000000", "guard", ("recovery", "", "", 0)),
    ],
)
def test_who_began_it_is_told(
    folder: Path, id_of: Callable[[Wire], str], op: str, told: tuple[str, str, str, int]
) -> None:
    wire = wired(folder)
    for _ in range(12):
        wire.controller.desire(Spec())
    wire.down += wire.controller.desired_message()
    wire.exchange()
    wire.box.ended = (replace(ONE, id=id_of(wire), op=op),)
    wire.pass_time(20)
    (one,) = reports(wire)
    assert (one.author, one.user, one.item, one.rev) == told
    wire.box.crash()


def test_texts_that_nobody_could_send_are_cut_and_an_id_that_is_none_is_left_out(folder: Path) -> None:
    wire = wired(folder)
    wire.box.ended = (
        replace(ONE, id="no id", op="what"),
        replace(ONE, user="\x1b[31m" + "r" * 999, why="w\x00" * 9_000, version="v" * 999, state=ROLLED_BACK),
    )
    wire.pass_time(20)
    (one,) = reports(wire)
    assert (len(one.user), len(one.version), len(one.why)) == (253, 253, 1_000)
    assert "\x1b" not in one.user
    assert "\0" not in one.why
    wire.box.crash()


def test_one_waits_while_the_journal_is_full(folder: Path) -> None:
    wire = wired(folder)
    journal, held, names = wire.box.journal, wire.box.journal.held, list[str]()
    assert held is not None
    while journal.free_pages >= ROOM.spare_from(0):
        names.append(f"ballast {len(names)}")
        journal.save(held, notes={names[-1]: {"x": "y" * 60_000}})
    wire.box.ended = (ONE,)
    wire.pass_time(20)
    assert reports(wire) == []
    journal.save(held, notes=dict.fromkeys(names))
    wire.pass_time(20)
    assert [one.id for one in reports(wire)] == [ONE.id]
    wire.box.crash()


def test_what_another_cloud_has_requested_is_not_told_to_this_one(folder: Path) -> None:
    box = Box(folder, ended=(replace(ONE, id="policy-12-0a1b2c3d"), ONE)).start()
    wire = wired_anew(box)
    for _ in range(12):
        wire.controller.desire(Spec())
    wire.down += wire.controller.desired_message()
    wire.pass_time(20)
    box.ended = (*box.ended, replace(ONE, id="policy-12-99999999"))
    wire.pass_time(20)
    assert [one.id for one in reports(wire)] == [ONE.id, "policy-12-99999999"]
    box.crash()


def wired_anew(box: Box) -> Wire:
    """Return the box after a restart, connected."""
    box.crash()
    return wired(box)
