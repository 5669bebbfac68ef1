"""What was done on a box, page by page: commands with their steps, changes of its machine, events, requests."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.access import Access
from edgegpu_cloud.fleet.limits.changes import requests_of
from edgegpu_cloud.fleet.limits.outcomes import RequestOutcome, outcome_of_settlement
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.fleet.names import find_box
from edgegpu_cloud.fleet.views import CommandTimeline, CommandView, command_view
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import BoxEvent, BoxRecord, Json, Revision
from edgegpu_cloud.store.settlements.records import StoredSettlement
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.spec import SINGLE_ITEMS
from edgegpu_sync.messages.telemetry import CLOUD, TransactionReport

_OF_PROTOCOL = {"rev", "retry"}

CHANGES = 10
"""Changes of a machine on a page, unless somebody asks for another number."""
_TRANSACTIONS = 100
"""Reports that are read at once: those of requests that are shown as settled are left out."""
_READS = 10
"""So often more than a page needs they are read for it: a box that reports what is left out again and again costs no
more."""
_PLACE = re.compile("([0-9]{1,6})-([0-9]{1,16})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChange:
    """A change of a box's machine by its installer: a requested setting with its outcome, or a transaction.

    `item`, `rev`: the setting and the revision that asked for it, or empty and 0. `by`: who has requested it here;
    empty for a change that began on the box, and where the request is not kept any more. `at_s`: when the controller
    heard how it ended. `outcome`: of a setting; `transaction`: of any other change, as the box has reported it.
    `setting`: what was requested of the item, as {"installed": false}; None where the request is not kept any more.
    """

    item: str
    rev: int
    by: str
    at_s: float
    setting: Json | None = None
    outcome: RequestOutcome | None = None
    transaction: TransactionReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxHistory:
    """A page of a box's commands, newest first, and what was found on it last.

    `older`: the id before which the next page begins; empty on the last one. `doctor`: the last run of the doctor that
    has ended well.
    """

    commands: Sequence[CommandTimeline]
    older: str
    doctor: CommandView | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePage:
    """Changes of a box's machine, newest first; each once, also where the box has reported it in two ways.

    `next`: where the next page begins; empty where there is none.
    """

    changes: Sequence[MachineChange]
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events of a box, newest first. `next`: the number before which the next page begins; 0 where there is none."""

    events: Sequence[BoxEvent]
    next: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPage:
    """What is requested of a box, in the order of settlement. `next`: how many come before the next page; 0: none."""

    requests: Sequence[RequestedItem]
    next: int


class BoxHistories:
    """What was done on boxes, as one person sees it. Every method raises NotFoundError as `Fleet.box` does."""

    def __init__(self, store: ControllerStore, *, clock: Callable[[], float], access: Access) -> None:
        """Take a store; `clock` returns seconds since 1970."""
        self._store, self._clock, self._access = store, clock, access

    def _find(self, tx: Transaction, device: str) -> BoxRecord:
        return find_box(tx, device, self._access.scope)

    def commands(self, device: str, *, limit: int = 20, before: str = "") -> BoxHistory:
        """Return the commands to a box before the one with the id `before`, and what was found on it last."""
        with self._store.read() as tx:
            return box_history(tx, self._find(tx, device), before=before, limit=limit, now_s=self._clock())

    def changes(self, device: str, *, limit: int = CHANGES, after: str = "") -> ChangePage:
        """Return changes of a box's machine, whether requested here or made on the box; `after`: a page's `next`.

        Raises:
            CloudError: `after` is none.
        """
        place = _read_place(after)
        with self._store.read() as tx:
            return change_page(tx, self._find(tx, device), place, limit=limit)

    def events(self, device: str, *, limit: int = 50, before: int = 0, transactions: bool | None = None) -> EventPage:
        """Return events of a box; `transactions`: those that report a transaction alone, or all others alone."""
        with self._store.read() as tx:
            box = self._find(tx, device).device
            found = tx.notes.events_before(box, before=before, limit=limit + 1, transactions=transactions)
        more = found[limit - 1].number if len(found) > limit else 0
        return EventPage(events=[one.event for one in found[:limit]], next=more)

    def requests(self, device: str, *, limit: int = 50, offset: int = 0) -> RequestPage:
        """Return what is requested of a box now, after the first `offset` items: when, by whom, what came of it."""
        with self._store.read() as tx:
            found = requests_of(tx, self._find(tx, device), now_s=self._clock())
        end = offset + limit
        return RequestPage(requests=found[offset:end], next=end if len(found) > end else 0)


def box_history(tx: Transaction, box: BoxRecord, *, before: str, limit: int, now_s: float) -> BoxHistory:
    """Return a page of a box's commands, of `limit` at most, and its last findings."""
    found = tx.commands.of(box.device, limit=limit + 1, before=before)
    shown = found[:limit]
    lines = tx.commands.histories([one.id for one in shown])
    commands = [
        CommandTimeline(
            command_view(one, box=box.name, now_s=now_s, history=lines.get(one.id, ())),
            None if one.tracked.ended else one.next_at_s,
        )
        for one in shown
    ]
    return BoxHistory(
        commands=commands,
        older=shown[-1].id if len(found) > limit else "",
        doctor=_doctor(tx, box, now_s),
    )


def _doctor(tx: Transaction, box: BoxRecord, now_s: float) -> CommandView | None:
    found = tx.commands.last_with_data(box.device, "doctor.run")
    return None if found is None else command_view(found, box=box.name, now_s=now_s)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page begins: so many settlements are older, and before this number of an event; 0: at the newest."""

    settled: int
    before: int


def _read_place(text: str) -> _Place | None:
    found = _PLACE.fullmatch(text)
    if found is None and text:
        raise CloudError(phrase("cannot go on from this place of the list: it is none"), remedy=phrase("begin anew"))
    return _Place(int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class _Placed:
    """A change, with the number of the event that has reported it; 0: a settlement."""

    change: MachineChange
    number: int = 0


def change_page(tx: Transaction, box: BoxRecord, place: _Place | None, *, limit: int) -> ChangePage:
    """Return changes of a machine, newest first, from a place on."""
    revisions = {one.rev: one for one in tx.boxes.revisions(box.device)}
    authors = {rev: one.by for rev, one in revisions.items()}
    settled = [one for one in tx.settlements.of(box.device).by_key.values() if one.key.item in SINGLE_ITEMS]
    newest = sorted(settled, key=lambda one: (one.at_s, one.key), reverse=True)
    left = newest[max(0, len(newest) - place.settled) :] if place is not None else newest
    before = place.before if place is not None else 0
    shown = {(one.key.item, one.key.rev) for one in settled}
    reads = _Reads(most=_READS + limit // _TRANSACTIONS)
    reported = _reported(tx, box, authors, shown=shown, before=before, reads=reads)
    settings = (_Placed(_settled(one, revisions.get(one.key.rev))) for one in left)
    found = list(islice(merge(reported, settings, key=lambda one: one.change.at_s, reverse=True), limit + 1))
    page = found[:limit]
    older = len(left) - sum(not one.number for one in page)
    more = len(found) > limit
    number = min((one.number for one in page if one.number), default=before) if more else reads.left_at
    return ChangePage(changes=[one.change for one in page], next=f"{older}-{number}" if more or number else "")


@dataclass(slots=True)
class _Reads:
    """How the reports of a page are read: `most` times; before `left_at` are those that were not, 0: all or enough."""

    most: int
    left_at: int = 0


def _settled(one: StoredSettlement, revision: Revision | None) -> MachineChange:
    asked = revision.spec.get(one.key.item) if revision is not None else None
    return MachineChange(
        item=one.key.item,
        rev=one.key.rev,
        by=revision.by if revision is not None else "",
        at_s=one.at_s,
        setting={name: value for name, value in asked.items() if name not in _OF_PROTOCOL} if asked else None,
        outcome=outcome_of_settlement(one),
    )


def _reported(
    tx: Transaction,
    box: BoxRecord,
    authors: Mapping[int, str],
    *,
    shown: Collection[tuple[str, int]],
    before: int,
    reads: _Reads,
) -> Iterator[_Placed]:
    """Yield the transactions that the box has reported, newest first, less those of settlements that are `shown`."""
    for _ in range(reads.most):
        events = tx.notes.events_before(box.device, before=before, limit=_TRANSACTIONS, transactions=True)
        told = [
            (one, TransactionReport.model_validate(one.event.transaction)) for one in events if one.event.transaction
        ]
        ids = {CommandId(report.id) for _, report in told}
        commands = {id_: one.by for id_, one in tx.commands.get(ids).items() if one.device == box.device} if ids else {}
        for one, report in told:
            if report.item and (report.item, report.rev) in shown:
                continue
            by = authors.get(report.rev, "") if report.item else commands.get(CommandId(report.id), "")
            # a box that has lost its journal does not know its commands any more
            known = report.model_copy(update={"author": CLOUD}) if by else report
            yield _Placed(
                MachineChange(item=report.item, rev=report.rev, by=by, at_s=one.event.at_s, transaction=known),
                one.number,
            )
        if len(events) < _TRANSACTIONS:
            return
        before = events[-1].number
    reads.left_at = before
