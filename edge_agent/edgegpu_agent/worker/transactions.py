"""The reports of the installer's transactions that have ended: one event for each, whoever began it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic import ValidationError

from edgegpu_agent.actions.settlers import item_of_transaction
from edgegpu_agent.journal.contents import JournalContents
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.messages import UplinkMessages
from edgegpu_installer.changes import TransactionKind
from edgegpu_installer.transaction.ended import EndedTransaction
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_sync.errors import SyncError
from edgegpu_sync.ids import command_id
from edgegpu_sync.messages.telemetry import CLOUD, PERSON, RECOVERY, TRANSACTION, TransactionReport
from edgegpu_sync.rules.outbox import KeptMessage
from edgegpu_sync.wire import clipped

_LOG = logging.getLogger(__name__)

_LOOK_S = 2.0

MOST_AT_ONCE = 30
"""So many are reported after a time without the agent; of those before them the number alone."""

_REMEMBERED = 400
"""Ids of reported transactions that are kept: the installer's history has 300 lines, and each has a line at least."""


class TransactionReporter:
    """The reporter of transactions; event and id are one write to the journal, so a kill loses and repeats none."""

    def __init__(self, core: Core, messages: UplinkMessages, ended: Callable[[], Sequence[EndedTransaction]]) -> None:
        """Build the reporter.

        Args:
            core: the journal and the stamps.
            messages: makes the events.
            ended: returns the transactions that have ended, oldest first; the same object while nothing has changed.
        """
        self._core, self._messages, self._ended = core, messages, ended
        self._seen: Sequence[EndedTransaction] | None = None
        self._look_at_s = 0.0

    def pump(self) -> None:
        """Keep an event of each transaction that was not reported yet.

        Raises:
            JournalFullError: there is no room for one; it is tried again.
        """
        if self._core.now_s < self._look_at_s:
            return
        self._look_at_s = self._core.now_s + _LOOK_S
        ended = self._ended()
        if ended is self._seen:
            return
        told = set(self._core.held.transactions)
        new = [one for one in ended if one.id not in told]
        if others := [one for one in new if self._is_of_another_enrolment(one.id)]:
            self._core.save(self._with(others), spare=True)
            new = [one for one in new if one not in others]
        left, reported = new[:-MOST_AT_ONCE], new[-MOST_AT_ONCE:]
        for one in reported:
            self._report(one, left)
            left = []
        self._seen = ended

    def _is_of_another_enrolment(self, id_: str) -> bool:
        """Whether a revision that this journal has never seen asked for it: its cloud knows it, or is another one."""
        found = item_of_transaction(id_)
        return found is not None and found[1] > self._core.held.desired_state.seen.rev

    def _with(self, told: Sequence[EndedTransaction]) -> JournalContents:
        """Return the journal's contents with these as reported."""
        ids = (*self._core.held.transactions, *(one.id for one in told))
        return replace(self._core.held, transactions=ids[-_REMEMBERED:])

    def _report(self, one: EndedTransaction, left: Sequence[EndedTransaction]) -> None:
        core, stamp = self._core, self._core.stamp()
        held = self._with([*left, one])
        try:
            body = self._messages.event(stamp, self._fields(one, skipped=len(left)))
        except ValidationError as error:
            _LOG.error("cannot report the transaction %r: %s", one.id, error)
            core.save(held, spare=True)
            return
        outbox = held.outbox.add_event(KeptMessage(stamp, len(body)))
        core.save(replace(held, outbox=outbox), bodies={stamp: body}, spare=True)

    def _fields(self, one: EndedTransaction, *, skipped: int) -> dict[str, object]:
        item, rev = item_of_transaction(one.id) or ("", 0)
        if one.op == TransactionKind.GUARD:
            author, by = RECOVERY, "by edgegpu-recover"
        elif item or self._is_command(one.id):
            author, by = CLOUD, "by the cloud"
        else:
            author, by = PERSON, f"on the box, by {one.user}" if one.user else "on the box"
        report = TransactionReport(
            id=one.id,
            op=one.op,
            author=author,
            user=clipped(one.user, 253) if author == PERSON else "",
            item=item,
            rev=rev,
            result=one.state.value,
            why=clipped(one.why),
            began=one.began_s,
            ended=one.ended_s,
            version=clipped(one.version, 253),
            before=clipped(one.before, 253),
            recovered=one.recovered,
            skipped=skipped,
        )
        undone = one.state is not TransactionState.COMMITTED
        return {
            "kind": TRANSACTION,
            "level": "warning" if undone else "info",
            "text": clipped(f"{one.op} {by}: {one.state}{f': {one.why}' if one.why else ''}"),
            "about": one.id,
            "at": max(0, int(self._core.clock.wall_s())),
            "transaction": report,
        }

    def _is_command(self, id_: str) -> bool:
        """Whether a command of the cloud has this id, also one that has ended."""
        try:
            known = command_id(id_)
        except SyncError:
            return False
        return known in self._core.held.records or self._core.journal.recall(known) is not None
