"""What the tests of settlers share: one item is settled, also by an agent that is killed meanwhile."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from edgegpu_agent.actions.registry import standard_settlers

if TYPE_CHECKING:
    from kits.acts import Bench, FileNotes

    from edgegpu_sync.messages.spec import AskedItem
    from edgegpu_sync.rules.settle import Settlement


def settle(bench: Bench, one: AskedItem, notes: FileNotes) -> Settlement:
    assert one.item is not None
    return standard_settlers(bench.box())[type(one.item)].settle(one, notes)


def id_of(notes: FileNotes) -> str:
    note = notes.read()
    assert note is not None
    return str(note["transaction"])


def die_while(bench: Bench, one: AskedItem, notes: FileNotes, hold: str) -> None:
    """Let another process settle, and kill it, not the installer, which is held."""
    bench.tell(f"hold-{hold}")
    pid = os.fork()
    if pid == 0:
        try:
            settle(bench, one, notes)
        finally:
            os._exit(3)
    bench.comes(f"at-{hold}")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
