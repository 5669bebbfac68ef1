"""The list of a command's steps through the agent, at which tests of faults trace and pause it."""

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
"""Variables for tests of faults: the step at which the agent waits (`STEP`, `STEP OP` for one op, `STEP item` for
items); a file that gets the name of each step."""

TOKEN, ACT, VERIFY, SETTLE, SEND = "token", "act", "verify", "settle", "send"
BEGUN, NOTED, SETTLED, ENDED, RECEIPTED = "BEGUN", "NOTED", "SETTLED", "ENDED", "RECEIPTED"

STEPS = (
    *(state.value for state in CommandState if not state.terminal),
    *(TOKEN, ACT, VERIFY),
    *(BEGUN, NOTED, SETTLE, SETTLED),
    *(ENDED, SEND, RECEIPTED),
)
"""Each step has a `before-NAME` and an `after-NAME`. Capitals: one write to the journal, on the disk or not at all.
Small letters: a call that takes time, on its own thread; `send` is that of a result, on the worker's thread."""

AtStep = Callable[[str, str], None]
"""Called with `before-NAME` or `after-NAME`, and its subject: `OP ID` of a command, or `item NAME`."""


def written(before: JournalContents, after: JournalContents, notes: Mapping[str, Json | None]) -> list[tuple[str, str]]:
    """Return the steps that a write to the journal is, each with its subject; most writes are none.

    Args:
        before: the contents before the write.
        after: the contents that are written.
        notes: the notes of items that are written too.
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
    """Return the function for the tests' variables; None where they are not set, as on every box in the field."""
    trace, pause = env.get(TRACE, ""), env.get(PAUSE, "")
    return partial(_at_step, trace, pause) if trace or pause else None


def _at_step(trace: str, pause: str, name: str, about: str) -> None:
    if trace:
        with Path(trace).open("a", encoding="ascii") as file:
            file.write(f"{name} {about}\n")
    if pause in {name, f"{name} {about.partition(' ')[0]}"}:
        sys.stderr.write(f"waiting at {name}, process {os.getpid()}\n")
        sys.stderr.flush()
        threading.Event().wait()  # wait for a kill of the process or the machine
