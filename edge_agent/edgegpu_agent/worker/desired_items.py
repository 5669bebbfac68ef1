"""Settles the desired revision, one item at a time: written as begun, done by its settler, written as settled."""

import logging
from dataclasses import astuple, replace
from functools import partial

from edgegpu_agent.journal.contents import HistoryEntry
from edgegpu_agent.ports import AbandoningSettler, SettledItem, Settlers, SharingProbe
from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.executor import Executor, RaisedError
from edgegpu_agent.worker.sender import UplinkSender
from edgegpu_sync.messages.spec import AppLimits, AskedItem, TryKey
from edgegpu_sync.messages.uplink import Condition, ItemState
from edgegpu_sync.rules.settle import DesiredState, Settlement, SharingFound
from edgegpu_sync.states import ResultCode
from edgegpu_sync.wire import Json, clipped

_LOG = logging.getLogger(__name__)


class ItemNotes:
    """What a settler keeps of one item; crosses to the worker's thread, and is on the disk when `write` returns."""

    def __init__(self, core: Core, name: str) -> None:
        """Keep it under an item's name: what was begun under one key is finished before another one begins."""
        self._core, self._name = core, name

    def read(self) -> Json | None:
        """Return what was written last; None when nothing was."""
        return self._core.ask(lambda: self._core.journal.note(self._name))

    def write(self, note: Json) -> None:
        """Write the note to the journal."""
        self._core.ask(lambda: self._core.save(self._core.held, notes={self._name: note}))

    def beside(self) -> list[tuple[AskedItem, Settlement]]:
        """Return the items of the document as it is now, each with how it stands."""

        def look() -> list[tuple[AskedItem, Settlement]]:
            board = self._core.held.board
            return [(one, board.settlement(one)) for one in board.asked]

        return self._core.ask(look)


class _LookNotes:
    """What looks keep of an item: of one asking for it, for a person who sets it anew begins from nothing."""

    def __init__(self, core: Core, one: AskedItem) -> None:
        self._notes, self._key = ItemNotes(core, f"look/{one.name}"), list(astuple(one.key))

    def read(self) -> Json | None:
        kept = self._notes.read() or {}
        note = kept.get("note")
        return note if isinstance(note, dict) and kept.get("key") == self._key else None

    def write(self, note: Json) -> None:
        self._notes.write({"key": self._key, "note": note})


class DesiredItems:
    """Tries what is open, in its order."""

    def __init__(
        self,
        core: Core,
        sender: UplinkSender,
        *,
        settlers: Settlers,
        sharing: SharingProbe,
        executor: Executor,
    ) -> None:
        """Build the desired items.

        Args:
            core: the journal.
            sender: reports each settlement.
            settlers: by the class of an item; others are settled as Unsupported.
            sharing: how GPU sharing stands: what is reported follows it.
            executor: runs them.
        """
        self._core, self._sender, self._settlers, self._executor = core, sender, settlers, executor
        self._sharing = sharing
        self._trying: AskedItem | None = None

    @property
    def busy(self) -> bool:
        """Whether an item is being settled."""
        return self._trying is not None

    def pump(self, *, alone_busy: bool) -> None:
        """Begin the next item, where one is open and nothing stands in its way.

        Args:
            alone_busy: whether a command is under way beside which nothing may be settled.

        Raises:
            JournalFullError: nothing was begun that is not written.
        """
        self._follow()
        while self._trying is None and not alone_busy:
            one = self._left() or self._core.held.board.next()
            if one is None or self.busy:
                return
            self._begin(one)

    def _follow(self) -> None:
        """Write what stands otherwise than it was settled; not while an item, or somebody else, changes the machine."""
        before = self._core.held
        if (
            self._trying is not None
            or before.settling is not None
            or before.board.follow(self._sharing.look()) is before.board
        ):
            return
        board = before.board.follow(self._found())
        if board is not before.board:
            self._core.save(replace(before, board=board), told=_told_of(before.board, board), spare=True)
            self._sender.report()

    def _found(self) -> SharingFound | None:
        """Return how sharing stands; None while it changes. An installer takes its lock long before it changes it."""
        return None if self._sharing.changing() else self._sharing.look()

    def _left(self) -> AskedItem | None:
        """Return the item that an earlier life of the agent has begun; one that nobody asks for now is dropped."""
        held = self._core.held
        one = held.settling
        if one is None:
            return None
        tried = held.board.tries.get(one.name)
        if tried is not None and tried.key == one.key and tried.settlement.state is ItemState.OPEN:
            return one
        settler: object = self._settlers.get(type(one.item)) if one.item is not None else None
        if one.name not in held.board.tries and isinstance(settler, AbandoningSettler):
            self._trying = one
            work = partial(settler.abandon, one, ItemNotes(self._core, one.name))
            self._executor.start(f"abandon {one.name}", work, partial(self._abandoned, one))
        else:
            self._drop(one)
        return None

    def _abandoned(self, one: AskedItem, result: RaisedError | None) -> None:
        if isinstance(result, RaisedError):
            if result.stopped:
                return
            _LOG.error("cannot undo what was begun of %s, which nobody asks for any more: %s", one.name, result.error)
        self._drop(one)
        self._trying = None

    def _drop(self, one: AskedItem) -> None:
        self._core.save(replace(self._core.held, settling=None), notes={one.name: None})

    def _begin(self, one: AskedItem) -> None:
        held = self._core.held
        board = held.board.begin(one)
        tried = board.tries[one.name]
        settler = self._settlers.get(type(one.item)) if one.item is not None else None
        if tried.settlement.state is not ItemState.OPEN:
            self._write(one, board, tried.settlement)
        elif settler is None:
            settlement = Settlement.unsupported("this box cannot do it")
            self._write(one, board.settle(one.name, one.key, settlement), settlement)
        else:
            told = HistoryEntry(
                kind="item", about=one.name, state="BEGUN", text=f"revision {one.key.rev}, try {tried.tries}"
            )
            self._core.save(replace(held, board=board, settling=one), told=(told,))
            self._trying = one
            work = partial(settler.settle, one, ItemNotes(self._core, one.name))
            self._executor.start(f"settle {one.name}", work, partial(self._done, one))

    def _done(self, one: AskedItem, result: Settlement | RaisedError) -> None:
        if isinstance(result, RaisedError):
            if result.stopped:
                return
            text = f"{type(result.error).__name__}: {result.error}"
            result = Settlement.failed(ResultCode.ERROR, clipped(text), restored=False)
        if result.state is ItemState.OPEN:
            result = Settlement.failed(ResultCode.ERROR, "it was left open", restored=False)
        board = self._core.held.board.settle(one.name, one.key, result, self._found())
        self._write(one, board, result)
        self._trying = None

    def _write(self, one: AskedItem, board: DesiredState, settlement: Settlement) -> None:
        before = self._core.held
        told = [_told(one.name, settlement), *_told_of(before.board, board, but=one.name)]
        self._core.save(replace(before, board=board, settling=None), notes={one.name: None}, told=told)
        self._sender.report()

    def landed(self, name: str, key: TryKey, settlement: Settlement) -> None:
        """Write what a Pending item has come to."""
        board = self._core.held.board.landed(name, key, settlement)
        if board is not self._core.held.board:
            told = HistoryEntry(kind="item", about=name, state=settlement.state, text=settlement.text)
            self._core.save(replace(self._core.held, board=board), told=(told,))
            self._sender.report()

    def noticed(self, name: str, conditions: tuple[Condition, ...]) -> None:
        """Write what is true of an item beside its settlement."""
        held = self._core.held
        tried = held.board.tries.get(name)
        if tried is not None and tried.conditions != conditions:
            self._core.save(replace(held, board=held.board.noticed(name, conditions)), spare=True)
            self._sender.report()

    # --- for any thread: what looks at app limits need

    def settled(self) -> list[SettledItem]:
        """Return the app limits that were settled, with what is kept of looking at each."""
        core = self._core

        def look() -> list[SettledItem]:
            board = core.held.board
            found = ((one, board.settlement(one)) for one in board.asked if isinstance(one.item, AppLimits))
            return [
                SettledItem(asked=one, settlement=settlement, notes=_LookNotes(core, one))
                for one, settlement in found
                if settlement.state is not ItemState.OPEN
            ]

        return core.ask(look)

    def again(self, name: str) -> None:
        """Have an item tried once more that stands as Elsewhere."""
        core = self._core

        def drop() -> None:
            board = core.held.board
            tried = board.tries.get(name)
            if tried is not None and tried.settlement.state is ItemState.ELSEWHERE:
                tries = {one: each for one, each in board.tries.items() if one != name}
                core.save(replace(core.held, board=replace(board, tries=tries)))

        core.ask(drop)


def _told_of(before: DesiredState, after: DesiredState, *, but: str = "") -> list[HistoryEntry]:
    """Return lines for the history of what stands otherwise now; what is open again has its line when it is begun."""
    changed = ((name, tried.settlement) for name, tried in after.tries.items() if name != but and name in before.tries)
    return [_told(name, now) for name, now in changed if now != before.tries[name].settlement]


def _told(name: str, settlement: Settlement) -> HistoryEntry:
    text = " ".join(part for part in (settlement.code, settlement.text) if part)
    return HistoryEntry(kind="item", about=name, state=settlement.state, text=text)
