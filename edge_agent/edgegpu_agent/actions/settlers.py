"""Settlers of the items that the installer carries out (sharing, the plugin's settings), and the probe of sharing."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar, assert_never, cast

from edgegpu_agent.actions.plugin_client import PluginUnreachableError, wait_for_status
from edgegpu_agent.actions.programs import ActionTimer
from edgegpu_agent.actions.transactions import (
    End,
    InstallerRunner,
    RefusedTransaction,
    TransactionBroken,
    TransactionCommitted,
    TransactionRolledBack,
    TransactionUnknown,
    is_change_under_way,
)
from edgegpu_agent.ports import DocumentNotes, SettlerNotes, Settlers
from edgegpu_base.files import stamp
from edgegpu_installer.layout import Layout
from edgegpu_plugin.config import schema
from edgegpu_plugin.errors import ConfigError
from edgegpu_sync.messages.spec import (
    SINGLE_ITEMS,
    AnyItem,
    AppLimits,
    AskedItem,
    Exclusions,
    Isolation,
    PolicyItem,
    Sharing,
    UnitSize,
)
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules.box_sentences import SHARES_HELD, SO_ALREADY
from edgegpu_sync.rules.settle import NO_SHARING, Settlement, SharingFound
from edgegpu_sync.states import ResultCode

_LOG = logging.getLogger(__name__)

_ABSENT = SharingFound(installed=False)


class SharingOfBox:
    """The probe of this box's sharing; it reads the plugin's configuration again only when the file has changed."""

    def __init__(self, layout: Layout) -> None:
        """Build the probe; nothing is read yet."""
        self._layout = layout
        self._mark: tuple[int, ...] = ()
        self._read = SharingFound(installed=True)

    def look(self) -> SharingFound:
        """See `ports.SharingProbe`."""
        if not self._layout.has_sharing:
            return _ABSENT
        try:
            mark = stamp(self._layout.plugin_yaml)
        except OSError:
            mark = ()
        if mark != self._mark:
            self._mark, self._read = mark, self._configured() if mark else SharingFound(installed=True)
        return self._read

    def changing(self) -> bool:
        """See `ports.SharingProbe`; True also where the lock cannot be read."""
        try:
            return is_change_under_way(self._layout)
        except OSError as error:
            _LOG.warning("cannot tell whether an installer is at work: %s", error)
            return True

    def _configured(self) -> SharingFound:
        try:
            found = schema.load(self._layout.plugin_yaml)
        except ConfigError:  # the plugin reports that itself, and does not start
            return SharingFound(installed=True)
        return SharingFound(
            installed=True, policy=found.policy.value, excluded=found.exclude, unit_mib=found.resources.unit_mib
        )


_TRANSACTION, _DONE = "transaction", "done"
_ID = re.compile(r"([a-z][a-z-]*)-([0-9]{1,15})-[0-9a-z]{8}")

_AGAIN_S = 10.0
_PLUGIN_S = 20.0

T = TypeVar("T", bound=AnyItem)


def item_of_transaction(id_: str) -> tuple[str, int] | None:
    """Return the item and the revision that a transaction has settled; None for one that nobody began for an item."""
    found = _ID.fullmatch(id_)
    name = found[1].replace("-", "_") if found else ""
    return (name, int(found[2])) if found and name in SINGLE_ITEMS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallerChange:
    """The change that carries an item out as one transaction, whose id is noted before the transaction begins.

    `fresh` returns a new part for an id: 8 of a-z, 0-9. `finish_s`: how long to retry what is left after a crash.
    """

    installer: InstallerRunner
    fresh: Callable[[], str]
    finish_s: float = 300.0

    def settle(self, one: AskedItem, notes: SettlerNotes, words: Sequence[str], *, finish: bool = False) -> Settlement:
        """Carry an item out, or find out how a transaction ended that was begun before a crash.

        Args:
            one: the item.
            notes: the notes of this item.
            words: the words of the installer's command line.
            finish: whether something is left to do after a transaction's end (marks in the cluster). A crash in between
                is then followed by another run, which changes nothing on the machine.

        Raises:
            ActionStopped: the agent ends.
        """
        note = notes.read() or {}
        id_, done = str(note.get(_TRANSACTION, "")), bool(note.get(_DONE))
        if not id_:
            id_ = self._begin(one, notes, done=False)
        else:
            found = self.installer.await_end(id_)
            if isinstance(found, TransactionCommitted) and finish:
                id_, done = self._begin(one, notes, done=True), True
            elif not isinstance(found, TransactionUnknown):
                return _settlement(found)
        if done:
            return self._finish(id_, words)
        end = self.installer.carry_out(id_, words)
        return _settlement(self.installer.carry_out(id_, words) if isinstance(end, TransactionUnknown) else end)

    def _begin(self, one: AskedItem, notes: SettlerNotes, *, done: bool) -> str:
        id_ = f"{one.name.replace('_', '-')}-{one.key.rev}-{self.fresh()}"
        notes.write({_TRANSACTION: id_, _DONE: done})
        return id_

    def _finish(self, id_: str, words: Sequence[str]) -> Settlement:
        """Run the installer again for what was left; retry a refusal, since k3s may be starting. Nothing is undone."""
        timer = self.installer.timer
        deadline = timer.now_s() + self.finish_s
        while (
            isinstance(end := self.installer.carry_out(id_, words), RefusedTransaction | TransactionUnknown)
            and timer.now_s() < deadline
        ):
            timer.pause(_AGAIN_S)
        match end:
            case TransactionCommitted():
                return Settlement.applied()
            case TransactionBroken():
                return _settlement(end)
            case TransactionRolledBack(why) | RefusedTransaction(why) | TransactionUnknown(why):
                return Settlement.applied(f"done, but the agent ended in the middle, and the rest was not: {why}")


def _settlement(end: End) -> Settlement:
    match end:
        case TransactionCommitted(changed):
            return Settlement.applied("" if changed else SO_ALREADY.of())
        case TransactionRolledBack(why):
            return Settlement.failed(ResultCode.ERROR, why, restored=True)
        case TransactionBroken(why):
            return Settlement.failed(ResultCode.INCONSISTENT, why, restored=False)
        case RefusedTransaction(why):
            return Settlement.rejected(ResultCode.PRECHECK, why)
        case TransactionUnknown(why):
            return Settlement.failed(ResultCode.ERROR, why, restored=True)


@dataclass(frozen=True, slots=True)
class SharingSettler:
    """The settler that installs GPU sharing, or uninstalls it and keeps the agent.

    An installation also applies the document's other items at once: waiting pods take shares as soon as there is
    sharing, and then the size of a unit cannot be changed any more, and a card to be excluded is in use.
    """

    change: InstallerChange
    layout: Layout

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        """See `Settler`."""
        item = cast("Sharing", one.item)
        words = ("install", "--yes", *self._set_up(notes)) if item.installed else ("uninstall", "--keep-agent", "--yes")
        return self.change.settle(one, notes, words, finish=True)

    def _set_up(self, notes: SettlerNotes) -> Sequence[str]:
        """Return the options; none where sharing is installed: then each item is settled by itself, with its checks."""
        if self.layout.has_sharing or not isinstance(notes, DocumentNotes):
            return ()
        items = (asked.item for asked, settled in notes.beside() if _wanted(settled))
        return [word for item in items if item is not None for word in _options(item)]


def _wanted(settled: Settlement) -> bool:
    """Return whether an item may be carried out: it is open, applied, or was rejected for missing sharing alone."""
    match settled.state:
        case ItemState.OPEN | ItemState.APPLIED:
            return True
        case ItemState.REJECTED:
            return settled.code == ResultCode.NOT_INSTALLED
        case _:
            return False


@dataclass(frozen=True, slots=True)
class SettingSettler(Generic[T]):
    """The settler that changes one setting of the plugin, which must be installed.

    `check` settles an item that needs no change, or allows none.
    """

    change: InstallerChange
    layout: Layout
    check: Callable[[T], Settlement | None] = lambda _: None

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        """See `Settler`."""
        item = cast("T", one.item)
        if notes.read() is None:
            if not self.layout.has_sharing:
                return NO_SHARING
            if (settled := self.check(item)) is not None:
                return settled
        return self.change.settle(one, notes, ("install", "--yes", *_options(item)))


def settlers(change: InstallerChange, layout: Layout) -> Settlers:
    """Return the settlers of all items that the installer settles."""
    not_while_held = partial(_not_while_held, socket=layout.plugin_socket, timer=change.installer.timer)
    return {
        Sharing: SharingSettler(change, layout),
        Isolation: SettingSettler(change, layout, partial(_isolation, layout=layout)),
        PolicyItem: SettingSettler(change, layout),
        Exclusions: SettingSettler(change, layout),
        UnitSize: SettingSettler(change, layout, not_while_held),
    }


def _options(item: AnyItem) -> Sequence[str]:
    """Return the installer's options for a setting of the plugin; none for other items."""
    match item:
        case PolicyItem():
            return ("--policy", item.policy)
        case Exclusions():
            return [word for card in item.cards or ("none",) for word in ("--exclude", card)]
        case UnitSize():
            return ("--unit-mib", str(item.mib))
        case Isolation():
            return ("--isolation", item.mode.value)
        case Sharing() | AppLimits():
            return ()
        case _:
            assert_never(item)


def _isolation(item: Isolation, layout: Layout) -> Settlement | None:
    """Settle isolation that is so already, or where nobody can say how it is."""
    path = layout.plugin_yaml
    try:
        settings = schema.load(path).isolation if path.exists() else schema.IsolationSection()
    except ConfigError as error:
        return Settlement.rejected(ResultCode.PRECHECK, f"cannot say what holds containers here: {error}")
    return Settlement.applied(SO_ALREADY.of()) if item.mode.value == settings.mode.value else None


def _not_while_held(item: UnitSize, socket: Path, timer: ActionTimer) -> Settlement | None:
    """Reject another unit size while pods hold shares: kubelet would not know their devices any more."""
    try:
        now = wait_for_status(socket, timer, within_s=_PLUGIN_S)
    except PluginUnreachableError as error:
        return Settlement.rejected(ResultCode.PRECHECK, f"cannot say whether pods hold shares: {error}")
    if now.unit_mib == item.mib:
        return Settlement.applied(SO_ALREADY.of())
    if not now.holders:
        return None
    names = ", ".join(now.holders[:10])
    return Settlement.rejected(ResultCode.PRECHECK, SHARES_HELD.of(unit=str(now.unit_mib), pods=names))
