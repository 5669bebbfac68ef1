"""The settling of the desired revision, one item at a time; its beginning and its settlement are journalled."""

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
    """The notes of one item, which a settler reads and writes through the worker's thread."""

    def __init__(self, core: Core, name: str) -> None:
        """Use the item's name as the key: an item begun under one key is finished before another one begins."""
        self._core, self._name = core, name

    def read(self) -> Json | None:
        """Return the last note; None when there is none."""
        return self._core.ask(lambda: self._core.journal.note(self._name))

    def write(self, note: Json) -> None:
        """Write the note; it is on the disk when this returns."""
        self._core.ask(lambda: self._core.save(self._core.held, notes={self._name: note}))

    def beside(self) -> list[tuple[AskedItem, Settlement]]:
        """Return the items of the present document, each with its settlement."""

        def look() -> list[tuple[AskedItem, Settlement]]:
            desired_state = self._core.held.desired_state
            return [(one, desired_state.settlement(one)) for one in desired_state.asked]

        return self._core.ask(look)


class _LookNotes:
    """The notes of an item's drift checks; they are valid for one request, and a new request begins without notes."""

    def __init__(self, core: Core, one: AskedItem) -> None:
        self._notes, self._key = ItemNotes(core, f"look/{one.name}"), list(astuple(one.key))

    def read(self) -> Json | None:
        kept = self._notes.read() or {}
        note = kept.get("note")
        return note if isinstance(note, dict) and kept.get("key") == self._key else None

    def write(self, note: Json) -> None:
        self._notes.write({"key": self._key, "note": note})


class DesiredItems:
    """The items of the desired document; the open ones are settled in their order."""

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
            settlers: the settlers by the class of an item; other items are settled as Unsupported.
            sharing: the probe of GPU sharing, which the report follows.
            executor: runs the settlers.
        """
        self._core, self._sender, self._settlers, self._executor = core, sender, settlers, executor
        self._sharing = sharing
        self._trying: AskedItem | None = None

    @property
    def busy(self) -> bool:
        """Whether an item is being settled."""
        return self._trying is not None

    def pump(self, *, alone_busy: bool) -> None:
        """Begin the next open item, where nothing prevents it.

        Args:
            alone_busy: whether a command is running beside which nothing may be settled.

        Raises:
            JournalFullError: a state could not be written; nothing was begun without it.
        """
        self._follow()
        while self._trying is None and not alone_busy:
            one = self._left() or self._core.held.desired_state.next()
            if one is None or self.busy:
                return
            self._begin(one)

    def _follow(self) -> None:
        """Write items that differ from their settlement, unless an item or somebody else changes the machine now."""
        before = self._core.held
        if (
            self._trying is not None
            or before.settling is not None
            or before.desired_state.follow(self._sharing.look()) is before.desired_state
        ):
            return
        desired_state = before.desired_state.follow(self._found())
        if desired_state is not before.desired_state:
            self._core.save(
                replace(before, desired_state=desired_state),
                told=_told_of(before.desired_state, desired_state),
                spare=True,
            )
            self._sender.report()

    def _found(self) -> SharingFound | None:
        """Return the state of sharing; None while an installer holds its lock, which it takes long before a change."""
        return None if self._sharing.changing() else self._sharing.look()

    def _left(self) -> AskedItem | None:
        """Return the item that an earlier agent process has begun; abandon or drop one that is no longer requested."""
        held = self._core.held
        one = held.settling
        if one is None:
            return None
        tried = held.desired_state.tries.get(one.name)
        if tried is not None and tried.key == one.key and tried.settlement.state is ItemState.OPEN:
            return one
        settler: object = self._settlers.get(type(one.item)) if one.item is not None else None
        if one.name not in held.desired_state.tries and isinstance(settler, AbandoningSettler):
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
        desired_state = held.desired_state.begin(one)
        tried = desired_state.tries[one.name]
        settler = self._settlers.get(type(one.item)) if one.item is not None else None
        if tried.settlement.state is not ItemState.OPEN:
            self._write(one, desired_state, tried.settlement)
        elif settler is None:
            settlement = Settlement.unsupported("this box cannot do it")
            self._write(one, desired_state.settle(one.name, one.key, settlement), settlement)
        else:
            told = HistoryEntry(
                kind="item", about=one.name, state="BEGUN", text=f"revision {one.key.rev}, try {tried.tries}"
            )
            self._core.save(replace(held, desired_state=desired_state, settling=one), told=(told,))
            self._trying = one
            work = partial(settler.settle, one, ItemNotes(self._core, one.name))
            self._executor.start(f"settle {one.name}", work, partial(self._done, one))

    def _done(self, one: AskedItem, result: Settlement | RaisedError) -> None:
        if isinstance(result, RaisedError):
            if result.stopped:
                return
            result = Settlement.failed(ResultCode.ERROR, clipped(result.text), restored=False)
        if result.state is ItemState.OPEN:
            result = Settlement.failed(ResultCode.ERROR, "it was left open", restored=False)
        desired_state = self._core.held.desired_state.settle(one.name, one.key, result, self._found())
        self._write(one, desired_state, result)
        self._trying = None

    def _write(self, one: AskedItem, desired_state: DesiredState, settlement: Settlement) -> None:
        before = self._core.held
        told = [_told(one.name, settlement), *_told_of(before.desired_state, desired_state, but=one.name)]
        self._core.save(replace(before, desired_state=desired_state, settling=None), notes={one.name: None}, told=told)
        self._sender.report()

    def landed(self, name: str, key: TryKey, settlement: Settlement) -> None:
        """Write the new settlement of a Pending item."""
        desired_state = self._core.held.desired_state.landed(name, key, settlement)
        if desired_state is not self._core.held.desired_state:
            told = HistoryEntry(kind="item", about=name, state=settlement.state, text=settlement.text)
            self._core.save(replace(self._core.held, desired_state=desired_state), told=(told,))
            self._sender.report()

    def noticed(self, name: str, conditions: tuple[Condition, ...]) -> None:
        """Write the conditions of an item."""
        held = self._core.held
        tried = held.desired_state.tries.get(name)
        if tried is not None and tried.conditions != conditions:
            self._core.save(replace(held, desired_state=held.desired_state.noticed(name, conditions)), spare=True)
            self._sender.report()

    # --- for any thread: calls of the drift checks

    def settled(self) -> list[SettledItem]:
        """Return the settled app limits, each with the notes of its drift checks."""
        core = self._core

        def look() -> list[SettledItem]:
            desired_state = core.held.desired_state
            found = (
                (one, desired_state.settlement(one)) for one in desired_state.asked if isinstance(one.item, AppLimits)
            )
            return [
                SettledItem(asked=one, settlement=settlement, notes=_LookNotes(core, one))
                for one, settlement in found
                if settlement.state is not ItemState.OPEN
            ]

        return core.ask(look)

    def again(self, name: str) -> None:
        """Have an item that was settled as Elsewhere tried again."""
        core = self._core

        def drop() -> None:
            desired_state = core.held.desired_state
            tried = desired_state.tries.get(name)
            if tried is not None and tried.settlement.state is ItemState.ELSEWHERE:
                tries = {one: each for one, each in desired_state.tries.items() if one != name}
                core.save(replace(core.held, desired_state=replace(desired_state, tries=tries)))

        core.ask(drop)


def _told_of(before: DesiredState, after: DesiredState, *, but: str = "") -> list[HistoryEntry]:
    """Return lines of history for items whose settlement has changed."""
    changed = ((name, tried.settlement) for name, tried in after.tries.items() if name != but and name in before.tries)
    return [_told(name, now) for name, now in changed if now != before.tries[name].settlement]


def _told(name: str, settlement: Settlement) -> HistoryEntry:
    text = " ".join(part for part in (settlement.code, settlement.text) if part)
    return HistoryEntry(kind="item", about=name, state=settlement.state, text=text)
