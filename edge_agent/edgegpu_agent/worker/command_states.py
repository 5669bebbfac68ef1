"""Writes a command's states to the journal, each with its line of history and its place in the outbox."""

import re
from collections.abc import Callable
from dataclasses import replace

from edgegpu_agent.actions.action import ActionOutcome
from edgegpu_agent.journal.contents import HistoryEntry
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.messages import data_bytes
from edgegpu_agent.worker.sender import UplinkSender
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.outbox import Outbox
from edgegpu_sync.states import FOLLOWERS, Codes, CommandState
from edgegpu_sync.wire import clipped

_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,39}")


class States:
    """What the parts that bring a command on write with."""

    def __init__(self, core: Core, sender: UplinkSender, *, ended: Callable[[CommandRecord], None]) -> None:
        """Prepare it.

        Args:
            core: the journal.
            sender: told of each change.
            ended: told of each command that has ended, before its result is sent.
        """
        self.core, self._sender, self._ended = core, sender, ended

    def put(self, record: CommandRecord, *, outbox: Outbox | None = None, data: bytes | None = None) -> None:
        """Write a state; one that ends takes the place in the outbox that was reserved for it.

        Raises:
            JournalFullError: nothing has changed.
        """
        held = self.core.held
        outbox = outbox or held.outbox
        if record.state.terminal:
            outbox = outbox.ended(record.id)
        held = replace(held, records={**held.records, record.id: record}, outbox=outbox)
        text = " ".join(part for part in (record.op, record.code, record.text) if part)
        told = HistoryEntry(kind="command", about=record.id, state=record.state, text=text)
        self.core.save(held, bodies=None if data is None else {record.id: data}, told=(told,))
        if record.state.terminal:
            self._ended(record)
        self._sender.changed(record.id)

    def end(self, record: CommandRecord, outcome: ActionOutcome) -> None:
        """Write how it ended; what cannot follow its state, or cannot be sent, is made FAILED, ERROR."""
        state, code = outcome.state, outcome.code
        if state not in FOLLOWERS[record.state] or not state.terminal:
            state, code = CommandState.FAILED, Codes.ERROR
        if code and not _CODE.fullmatch(code):
            code = Codes.ERROR
        self.put(record.ended(state, code, clipped(outcome.text)), data=data_bytes(outcome.data))
