"""What the journal tells of transactions that have ended: who began them, when, how, and who ended them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from integration.transactionkit import OVER, Bed, install, nothing

from edgegpu_installer.changes import TransactionKind
from edgegpu_installer.errors import InstallError
from edgegpu_installer.transaction.ended import EndedTransaction, begin_note, ended_transactions
from edgegpu_installer.transaction.journal import TransactionJournal, TransactionRecord
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_installer.transaction.transaction import resume, run

if TYPE_CHECKING:
    from pathlib import Path

    from edgegpu_installer.changes import Deadline

COMMITTED, ROLLED_BACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK
BEGUN = "2026-11-23T12:00:00Z one install PREPARED by=alice version=0.3.0 from=0.2.0"
BEGUN_S = 1_795_435_200


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "root")


def ended(bed: Bed) -> tuple[EndedTransaction, ...]:
    journal = TransactionJournal(bed.layout.tx)
    record = journal.read()
    return ended_transactions(journal.history(), record)


def refuse(_: Deadline) -> None:
    raise InstallError("cannot reach the extender: no answer", "look at its log")


def test_it_says_who_began_it_when_and_from_which_version_to_which(bed: Bed) -> None:
    began_s = int(time.time())
    machine = replace(bed.machine(), user="a person", version="2.0", transaction_id="policy-9-abcdefgh")
    run(install(), machine, verify=nothing)
    (one,) = ended(bed)
    assert (one.id, one.op, one.state, one.why) == ("policy-9-abcdefgh", "install", COMMITTED, "")
    assert (one.user, one.version, one.before, one.recovered) == ("a_person", "2.0", "1.0", False)
    assert began_s <= one.began_s <= one.ended_s <= time.time()


def test_one_that_its_installer_undid_says_why_and_comes_after_those_before_it(bed: Bed) -> None:
    bed.run(install())
    bed.run(install(b"other\n", op=TransactionKind.CHANGE), verify=refuse)
    first, second = ended(bed)
    assert (first.state, second.state, second.op) == (COMMITTED, ROLLED_BACK, "change")
    assert (second.why, second.recovered) == ("cannot reach the extender: no answer: look at its log", False)


def test_one_that_edgegpu_recover_put_back_after_a_power_cut_says_so(bed: Bed) -> None:
    bed.die_at("before-reload", install())
    assert ended(bed) == ()
    bed.reboot()
    (one,) = ended(bed)
    assert (one.state, one.recovered) == (ROLLED_BACK, True)
    assert one.why == "its author died while files were being replaced"


def test_one_that_was_resumed_says_so(bed: Bed) -> None:
    bed.die_at("before-verify", install())
    assert resume(bed.machine(), verify=nothing) is not None
    (one,) = ended(bed)
    assert (one.state, one.recovered) == (COMMITTED, True)


def test_the_guard_of_k3s_is_nobodys(bed: Bed) -> None:
    bed.run(install())
    for restarts in range(5):
        bed.set_unit("k3s.service", "activating", start=f"loop{restarts}", restarts=restarts)
        bed.recover("check", "k3s.service")
    guard = ended(bed)[-1]
    assert (guard.op, guard.state, guard.user, guard.recovered) == ("guard", ROLLED_BACK, "", True)
    assert "k3s did not come up" in guard.why


def test_a_dead_mans_end_is_not_the_installers(bed: Bed) -> None:
    bed.die_at("before-verify", install(), deadline_s=OVER)
    bed.recover("deadline")
    (one,) = ended(bed)
    assert (one.state, one.why, one.recovered) == (ROLLED_BACK, "nobody had verified it when its time was over", True)


def test_the_record_decides_for_the_last_one_and_the_history_for_those_before() -> None:
    lines = [
        BEGUN,
        "2026-11-23T12:00:40Z one install COMMITTED",
        "2026-11-23T12:05:00Z two change PREPARED by=bob",
        "2026-11-23T12:05:09Z two change COMMITTED",
    ]
    (one,) = ended_transactions(lines, TransactionRecord("two", TransactionKind.CHANGE, TransactionState.VERIFYING))
    assert (one.began_s, one.ended_s) == (BEGUN_S, BEGUN_S + 40)
    record = TransactionRecord("three", TransactionKind.CHANGE, COMMITTED, version="0.3.0", why="")
    found = ended_transactions(lines, record)
    assert [(one.id, one.user, one.ended_s) for one in found][1:] == [("two", "bob", BEGUN_S + 309), ("three", "", 0)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "what",
        "2026-11-23T12:00:00Z one",
        "2026-11-23T12:00:00Z one install BEGUN",
        "yesterday one install COMMITTED",
        "2026-11-23T12:00:00Z  install",
    ],
)
def test_what_is_no_line_of_a_transaction_is_left_out(line: str) -> None:
    assert ended_transactions([line], None) == ()


def test_one_whose_beginning_the_history_has_lost_is_told_with_what_is_left() -> None:
    (one,) = ended_transactions(["2026-11-23T12:00:00Z one install ROLLED_BACK by=the installer: it hung"], None)
    assert (one.user, one.version, one.why, one.recovered) == ("", "", "installer: it hung", False)


def test_a_note_leaves_out_what_is_not_known() -> None:
    assert begin_note(user="", version="0.3.0", before="0.3.0") == "version=0.3.0"
    assert begin_note(user="DOM\\a b", version="", before="") == "by=DOM\\a_b"
