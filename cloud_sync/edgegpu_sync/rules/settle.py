"""A desired revision settled item by item: each tried once, superseded by newer revisions; refusals stay."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from edgegpu_core.sentences import sentence
from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.ids import OpName, op_name
from edgegpu_sync.messages.spec import (
    AnyItem,
    AppLimits,
    AskedItem,
    Exclusions,
    Isolation,
    OfSharing,
    PolicyItem,
    Sharing,
    TryKey,
    UnitSize,
)
from edgegpu_sync.messages.uplink import Condition, ItemReport, ItemState, Numbers
from edgegpu_sync.rules.replay_guard import SeenRevision
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.wire import clipped

MOST_TRIES = 3
"""How often an item is begun that takes the agent down with it."""

NOTHING_SEEN = SeenRevision()
INSTALL, UNINSTALL = op_name("sharing.install"), op_name("sharing.uninstall")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The outcome of one item; numbers and texts are for people. `restored`: the earlier state is in place again."""

    state: ItemState
    code: str = ""
    text: str = ""
    numbers: Numbers | None = None
    restored: bool = False

    @classmethod
    def applied(cls, text: str = "") -> "Settlement":
        """Return the settlement of an item that is in place as asked, verified."""
        return cls(state=ItemState.APPLIED, text=text)

    @classmethod
    def rejected(cls, code: str, text: str, numbers: Numbers | None = None) -> "Settlement":
        """Return the settlement of an item that was not begun, with the numbers that say why."""
        return cls(state=ItemState.REJECTED, code=code, text=text, numbers=numbers)

    @classmethod
    def unsupported(cls, text: str) -> "Settlement":
        """Return the settlement of an item that this agent, or this box, cannot do."""
        return cls(state=ItemState.UNSUPPORTED, code=ResultCode.UNSUPPORTED, text=text)

    @classmethod
    def failed(cls, code: str, text: str, *, restored: bool) -> "Settlement":
        """Return the settlement of an item that was begun and could not be put in place as asked."""
        return cls(state=ItemState.FAILED, code=code, text=text, restored=restored)


OPEN = Settlement(state=ItemState.OPEN)
NO_SHARING = Settlement.rejected(ResultCode.NOT_INSTALLED, sentence("GPU sharing is not installed on this box"))
"""The settlement of items that need sharing. Its code opens them again when sharing is installed."""
TAKEN_OFF = Settlement.rejected(
    ResultCode.NOT_INSTALLED,
    sentence("GPU sharing was taken off on the box itself; `edgegpu-cloud install` brings it back"),
)
PUT_ON = Settlement.rejected(
    ResultCode.INSTALLED,
    sentence("GPU sharing was installed on the box itself; `edgegpu-cloud uninstall` takes it off"),
)
"""The settlements of `sharing` where somebody else has changed it against the document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingFound:
    """GPU sharing as found on a box now, whoever set it; None and empty: not known."""

    installed: bool
    policy: str = ""
    excluded: Collection[str] | None = None
    unit_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTry:
    """The journal's record of an item: which key was begun, how often, and how it ended. Open: it has not ended."""

    key: TryKey
    settlement: Settlement = OPEN
    tries: int = 1
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """A box's desired state: what was observed, its items in order, and the last try of each.

    All of it is in the journal. `applied_rev` is the last revision of which all items were settled.
    """

    seen: SeenRevision = NOTHING_SEEN
    asked: tuple[AskedItem, ...] = ()
    tries: Mapping[str, ItemTry] = field(default_factory=dict)
    applied_rev: int = 0

    def observe(self, seen: SeenRevision, asked: tuple[AskedItem, ...]) -> "DesiredState":
        """Return the state with a newer revision; what was tried under the same key stays as it is.

        Items that this version cannot do are settled at once. Those that are not asked for any more are forgotten.

        Raises:
            MessageRefusedError: OldRev.
        """
        if seen.rev <= self.seen.rev:
            raise MessageRefusedError(RefusalReason.OLD_REV, f"{seen.rev}, observed is {self.seen.rev}")
        tries = {one.name: self.tries[one.name] for one in asked if one.name in self.tries}
        for one in asked:
            if one.item is None:
                settlement = Settlement.unsupported(one.unsupported)
                tries[one.name] = ItemTry(key=one.key, settlement=settlement)
        return _counted(replace(self, seen=seen, asked=asked, tries=tries))

    def settlement(self, one: AskedItem) -> Settlement:
        """Return the settlement of an item; Open also when another revision of it was tried."""
        tried = self.tries.get(one.name)
        return tried.settlement if tried is not None and tried.key == one.key else OPEN

    def next(self) -> AskedItem | None:
        """Return the item to try now; None when all are settled. Call it again after each settlement: one at a time."""
        return next((one for one in self.asked if self.settlement(one).state is ItemState.OPEN), None)

    def begin(self, one: AskedItem) -> "DesiredState":
        """Return the state with the item begun, to be written before anything is done.

        After a crash in the middle the key is the same, and the journal of the one who applies the item tells how far
        it came. After `MOST_TRIES` begins the item is settled as Failed instead: check `settlement` after this.
        """
        before = self.tries.get(one.name)
        again = before is not None and before.key == one.key
        tries = before.tries + 1 if before is not None and again else 1
        if tries > MOST_TRIES:
            text = f"begun {MOST_TRIES} times, and the agent ended in the middle of each"
            return self.settle(one.name, one.key, Settlement.failed(ResultCode.ATTEMPTS, text, restored=False))
        return self._with(one.name, ItemTry(key=one.key, tries=tries))

    def settle(
        self, name: str, key: TryKey, settlement: Settlement, found: SharingFound | None = None
    ) -> "DesiredState":
        """Return the state with an item settled; unchanged when the item is not asked for any more.

        If a newer revision has come meanwhile, the settlement is that of the old key, and the item is open.

        Args:
            name: of the item.
            key: under which it was begun.
            settlement: its outcome.
            found: GPU sharing as it is now: what was done under an old key has changed the box too. See `follow`.

        Raises:
            ValueError: for Open, which settles nothing.
        """
        if settlement.state is ItemState.OPEN:
            raise ValueError(f"cannot settle {name} as Open")
        before = self.tries.get(name)
        if before is None or before.key != key or before.settlement.state is not ItemState.OPEN:
            return self.follow(found)
        return _counted(self._with(name, replace(before, settlement=settlement)).follow(found))

    def follow(self, found: SharingFound | None) -> "DesiredState":
        """Return the state adjusted to the sharing that was found; itself where nothing differs or `found` is None.

        Applied means what is in place now, not what was done once: sharing may be gone by an older revision's
        uninstall, by an installer that was undone, or by a person on the box. Without sharing its settings are
        NOT_INSTALLED, as are those that come then. When sharing is there, what was refused for its absence is open
        again: the same document asks for it.
        """
        if found is None:
            return self
        tries = dict(self.tries)
        for one in self.asked:
            tried = tries.get(one.name)
            if tried is None or tried.key != one.key or one.item is None:
                continue
            if _may_stand_now(tried.settlement, found):
                del tries[one.name]
            elif tried.settlement.state is ItemState.APPLIED:
                tries[one.name] = _as_found(one.item, tried, found)
        return self if tries == self.tries else replace(self, tries=tries)

    def landed(self, name: str, key: TryKey, settlement: Settlement) -> "DesiredState":
        """Return the state after a Pending item has ended: its pod got a card, or was given up."""
        before = self.tries.get(name)
        if before is None or before.key != key or before.settlement.state is not ItemState.PENDING:
            return self
        return self._with(name, replace(before, settlement=settlement))

    def noticed(self, name: str, conditions: tuple[Condition, ...]) -> "DesiredState":
        """Return the state with the present conditions of an item, such as `Drifted`; its settlement stays."""
        before = self.tries.get(name)
        return self if before is None else self._with(name, replace(before, conditions=conditions))

    def _with(self, name: str, tried: ItemTry) -> "DesiredState":
        return replace(self, tries={**self.tries, name: tried})

    def report(self) -> dict[str, ItemReport]:
        """Return a report of each item, as `Reported.items` holds it."""
        return {one.name: self._reported(one) for one in self.asked}

    def _reported(self, one: AskedItem) -> ItemReport:
        settlement, tried = self.settlement(one), self.tries.get(one.name)
        return ItemReport(
            state=settlement.state,
            rev=one.key.rev,
            hash=one.key.digest,
            retry=one.key.retry,
            code=settlement.code or None,
            text=clipped(settlement.text) or None,
            numbers=settlement.numbers,
            restored=settlement.restored if settlement.state is ItemState.FAILED else None,
            conditions=(tried.conditions or None) if tried is not None else None,
        )


def _may_stand_now(settlement: Settlement, found: SharingFound) -> bool:
    in_the_way = ResultCode.NOT_INSTALLED if found.installed else ResultCode.INSTALLED
    return settlement.state is ItemState.REJECTED and settlement.code == in_the_way


def _as_found(item: AnyItem, tried: ItemTry, found: SharingFound) -> ItemTry:
    if isinstance(item, Sharing):
        contrary = TAKEN_OFF if item.installed else PUT_ON
        return tried if item.installed is found.installed else replace(tried, settlement=contrary)
    if isinstance(item, AppLimits):
        return tried
    if not found.installed:
        return replace(tried, settlement=NO_SHARING, conditions=())
    text = _otherwise(item, found)
    return replace(tried, conditions=(Condition(type="Drifted", text=f"on the box it is {text}"),) if text else ())


def _otherwise(item: OfSharing, found: SharingFound) -> str:
    """Return in words how a setting on the box differs from the item; empty where it does not, or is not known."""
    match item:
        case PolicyItem(policy=policy):
            return found.policy if found.policy != policy else ""
        case Exclusions(cards=cards):
            if found.excluded is None or set(found.excluded) == set(cards):
                return ""
            return ", ".join(sorted(found.excluded)) or "none"
        case UnitSize(mib=mib):
            return f"{found.unit_mib} MiB" if found.unit_mib not in {None, mib} else ""
        case Isolation():
            return ""
        case _:
            assert_never(item)


def _counted(desired_state: DesiredState) -> DesiredState:
    return desired_state if desired_state.next() else replace(desired_state, applied_rev=desired_state.seen.rev)


@dataclass(frozen=True, slots=True)
class ItemEnd:
    """The end of a command."""

    state: CommandState
    code: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class CommandWait:
    """A command that goes on when the desired state changes: `for_rev` is not observed, or its item not settled."""

    for_rev: int


_ENDS = {
    ItemState.APPLIED: CommandState.SUCCEEDED,
    ItemState.REJECTED: CommandState.REJECTED,
    ItemState.UNSUPPORTED: CommandState.REJECTED,
    ItemState.ELSEWHERE: CommandState.REJECTED,
    ItemState.PENDING: CommandState.SUCCEEDED,
}


def sharing_command(op: OpName, min_rev: int, desired_state: DesiredState) -> ItemEnd | CommandWait:
    """Return the end of `sharing.install` or `sharing.uninstall`, or a wait for the settlement of the item `sharing`.

    Args:
        op: one of the two.
        min_rev: the revision in which sharing is as the op says.
        desired_state: the desired state as it is now.
    """
    if desired_state.seen.rev < min_rev:
        return CommandWait(min_rev)
    one = next((one for one in desired_state.asked if one.name == "sharing"), None)
    if one is None:
        return ItemEnd(
            CommandState.REJECTED, ResultCode.SUPERSEDED, f"revision {desired_state.seen.rev} does not speak of sharing"
        )
    if isinstance(one.item, Sharing) and one.item.installed is not (op == INSTALL):
        stands = "installed" if one.item.installed else "not installed"
        return ItemEnd(
            CommandState.REJECTED,
            ResultCode.SUPERSEDED,
            f"by revision {desired_state.seen.rev} sharing is to be {stands}",
        )
    settlement = desired_state.settlement(one)
    if settlement.state is ItemState.OPEN:
        return CommandWait(desired_state.seen.rev)
    if settlement.state is ItemState.FAILED:
        state = CommandState.ROLLED_BACK if settlement.restored else CommandState.FAILED
    else:
        state = _ENDS[settlement.state]
    return ItemEnd(state, settlement.code, settlement.text)
