"""The steps that are told to who looks on: which write is which, and nobody is told where nobody asks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edgegpu_agent.journal.contents import JournalContents
from edgegpu_agent.worker.steps import PAUSE, STEPS, TRACE, from_environment, written
from edgegpu_sync.ids import CommandId, op_name
from edgegpu_sync.messages.spec import AskedItem, Isolation, IsolationMode, TryKey
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.outbox import OutboxSizes
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    from pathlib import Path

ID = CommandId("01j9zq4v7m2c8x5n")
EMPTY = JournalContents.fresh(enrolment=1, root="k" * 43, limits=OutboxSizes())
ITEM = AskedItem(name="isolation", key=TryKey(1, "00", 0), item=Isolation(rev=1, mode=IsolationMode.NONE))


def at(state: CommandState) -> JournalContents:
    record = CommandRecord(
        id=ID, op=op_name("doctor.run"), seq=1, args={}, until_s=9.0, left_s=9.0, boot="b", state=state
    )
    return replace(EMPTY, records={ID: record})


@pytest.mark.parametrize("state", CommandState)
def test_each_state_of_a_command_is_a_step_when_it_is_written(state: CommandState) -> None:
    name = "ENDED" if state.terminal else state.value
    assert written(EMPTY, at(state), {}) == [(name, f"doctor.run {ID}")]
    assert written(at(state), at(state), {}) == []
    assert name in STEPS


def test_a_receipt_is_one_and_so_is_what_is_written_of_an_item() -> None:
    settling = replace(EMPTY, settling=ITEM)
    assert written(at(CommandState.SUCCEEDED), EMPTY, {}) == [("RECEIPTED", f"doctor.run {ID}")]
    assert written(EMPTY, settling, {}) == [("BEGUN", "item isolation")]
    assert written(settling, settling, {"isolation": {"transaction": "x"}}) == [("NOTED", "item isolation")]
    assert written(settling, EMPTY, {"isolation": None}) == [("SETTLED", "item isolation")]


def test_without_the_variables_nobody_looks_on(tmp_path: Path) -> None:
    assert from_environment({}) is None
    assert from_environment({TRACE: "", PAUSE: ""}) is None
    told = from_environment({TRACE: str(tmp_path / "steps"), PAUSE: "after-RUNNING doctor.run"})
    assert told is not None
    told("after-RUNNING", f"plugin.restart {ID}")
    told("before-RUNNING", f"doctor.run {ID}")
    assert (tmp_path / "steps").read_text().splitlines() == [
        f"after-RUNNING plugin.restart {ID}",
        f"before-RUNNING doctor.run {ID}",
    ]
