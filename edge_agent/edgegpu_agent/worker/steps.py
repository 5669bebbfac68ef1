"""The steps of a command through the agent, in one list; told to who looks on, and where tests of faults hold it."""

import os
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from edgegpu_agent.journal.contents import JournalContents
from edgegpu_sync.states import CommandState
from edgegpu_sync.wire import Json

PAUSE, TRACE = "EDGEGPU_AGENT_PAUSE", "EDGEGPU_AGENT_TRACE"
"""For tests of faults: the step at which the agent waits (`STEP`, or `STEP OP` for those of one op, `STEP item` for
those of items); a file that gets the name of each step."""

TOKEN, ACT, VERIFY, SETTLE, SEND = "token", "act", "verify", "settle", "send"
BEGUN, NOTED, SETTLED, ENDED, RECEIPTED = "BEGUN", "NOTED", "SETTLED", "ENDED", "RECEIPTED"

STEPS = (
    *(state.value for state in CommandState if not state.terminal),
    *(TOKEN, ACT, VERIFY),
    *(BEGUN, NOTED, SETTLE, SETTLED),
    *(ENDED, SEND, RECEIPTED),
)
"""Each has a `before-NAME` and an `after-NAME`. In capitals: one write to the journal, which is or is not on the disk.
In small letters: a call that takes its time, on a thread of its own; `send` is that of an end, by the worker's own."""

AtStep = Callable[[str, str], None]
"""Called with `before-NAME` or `after-NAME`, and what it is about: `OP ID` of a command, `item NAME`."""


def written(before: JournalContents, after: JournalContents, notes: Mapping[str, Json | None]) -> list[tuple[str, str]]:
    """Return which steps a write to the journal is, each with what it is about; most writes are none.

    Args:
        before: its content.
        after: the content that is written.
        notes: the notes of items that are written with it.
    """
    found = []
    for id_, record in after.records.items():
        was = before.records.get(id_)
        if was is None or was.state is not record.state:
            found.append((ENDED if record.state.terminal else record.state.value, f"{record.op} {id_}"))
    gone = (one for id_, one in before.records.items() if id_ not in after.records)
    found += [(RECEIPTED, f"{one.op} {one.id}") for one in gone]
    if before.settling is None and after.settling is not None:
        found.append((BEGUN, f"item {after.settling.name}"))
    if before.settling is not None and after.settling is None:
        found.append((SETTLED, f"item {before.settling.name}"))
    found += [(NOTED, f"item {name}") for name, note in notes.items() if note is not None]
    return found


def from_environment(env: Mapping[str, str]) -> AtStep | None:
    """Return what obeys the tests' variables; None, which is every box in the field, where they are not set."""
    trace, pause = env.get(TRACE, ""), env.get(PAUSE, "")
    return partial(_at_step, trace, pause) if trace or pause else None


def _at_step(trace: str, pause: str, name: str, about: str) -> None:
    if trace:
        with Path(trace).open("a", encoding="ascii") as file:
            file.write(f"{name} {about}\n")
    if pause in {name, f"{name} {about.partition(' ')[0]}"}:
        sys.stderr.write(f"waiting at {name}, process {os.getpid()}\n")
        sys.stderr.flush()
        threading.Event().wait()  # until it is killed, or the machine is
