"""What containers see of their cards: the last evidence of a box, and a request to check it again."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.access import Access, Permission
from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_command, check_enrolled
from edgegpu_cloud.fleet.names import find_box
from edgegpu_cloud.fleet.reports import capabilities_of, pods_of, read_latest
from edgegpu_cloud.fleet.views import is_present
from edgegpu_cloud.phrases import Phrase, phrase
from edgegpu_cloud.store.records import UNINSTALLED, BoxRecord, BoxState, Latest
from edgegpu_cloud.store.store import ControllerStore, Transaction
from edgegpu_cloud.store.telemetry.records import StoredEvidence
from edgegpu_sync.ids import CommandId, DeviceId
from edgegpu_sync.messages.evidence import SeenCards
from edgegpu_sync.messages.telemetry import Inventory, PodAlloc
from edgegpu_sync.rules.evidence import MOST_PODS
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

OP = "evidence.check"
WAIT_S = 120
"""How long a check may wait for its box: a person looks at the page meanwhile."""

_KINDS = (TopicKind.STATUS, TopicKind.INVENTORY, TopicKind.ALLOC)


class CannotCheck(StrEnum):
    """Why a box cannot be asked for evidence now."""

    NOT_ENROLLED = phrase("the box is not enrolled")
    BLOCKED = phrase("the box is blocked")
    UNINSTALLED = phrase("edgegpu was taken off the box")
    OFFLINE = phrase("the box is offline")
    OLD_AGENT = phrase("this agent cannot check")
    NO_CONTAINER = phrase("no container on the box holds a card")

    @property
    def why(self) -> Phrase:
        """The reason as a phrase: a member keeps the text alone."""
        return Phrase(self.value, one=self.value, many="", fields={})

    def remedy(self, box: str) -> Phrase:
        """Return what to do about it on a box of this name."""
        match self:
            case CannotCheck.NOT_ENROLLED:
                return phrase("enrol it anew: edgegpu-cloud enrol")
            case CannotCheck.BLOCKED:
                return phrase("look at it, then `edgegpu-cloud boxes unblock %(box)s`", box=box)
            case CannotCheck.UNINSTALLED:
                return phrase("install edgegpu on it again: edgegpu-cloud enrol prints the line")
            case CannotCheck.OFFLINE:
                return phrase("check again when it is online: edgegpu-cloud boxes")
            case CannotCheck.OLD_AGENT:
                return phrase("upgrade it: edgegpu-cloud command %(box)s agent.upgrade", box=box)
            case CannotCheck.NO_CONTAINER:
                return phrase("deploy a pod that asks for a share of a card")
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedContainer:
    """A container that holds cards, and what it saw.

    `cards` are those that it holds, as its box numbers them. `checked` is None before the first check. `stale`:
    it holds other cards now than when it was checked.
    """

    uid: str
    namespace: str
    pod: str
    container: str
    cards: Sequence[str]
    checked: StoredEvidence | None
    stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxEvidence:
    """The evidence of a box: each container that holds cards now, by its last reports.

    `checking` are the checks under way. `cannot`: why the box cannot be asked now; None where it can. `failed`: the
    text of the last check where that has not succeeded.
    """

    device: DeviceId
    box: str
    containers: Sequence[CheckedContainer]
    checking: Sequence[CommandId]
    cannot: CannotCheck | None
    failed: str = ""

    @property
    def wrong(self) -> int:
        """How many containers see other cards than their own."""
        bad = {SeenCards.MORE, SeenCards.OTHER, SeenCards.NONE}
        return sum(one.checked is not None and not one.stale and one.checked.verdict in bad for one in self.containers)


class EvidenceService:
    """One person's way to the evidence; a box is named by its id, its name, or the beginning of either.

    Boxes that are not in the person's scope do not exist for them. Every method may raise StoreError, and NotFoundError
    where there is no such box.
    """

    def __init__(self, store: ControllerStore, *, access: Access, clock: Callable[[], float] = time.time) -> None:
        """Take a store; requests are audited under the person's name, `clock` returns seconds since 1970."""
        self._store, self._access, self._clock = store, access, clock

    def of_box(self, name_or_id: str) -> BoxEvidence:
        """Return the evidence of a box."""
        self._access.require(Permission.VIEW)
        with self._store.read() as tx:
            return evidence_of(tx, find_box(tx, name_or_id, self._access.scope), now_s=self._clock())

    def check(self, name_or_id: str) -> Sequence[CommandId]:
        """Ask a box what its containers see; return the commands, those under way where it is asked already.

        Raises:
            CloudError: the box cannot be asked.
            ForbiddenError: the person may not send commands.
        """
        self._access.require(Permission.CHANGE)
        with self._store.write() as tx:
            box = find_box(tx, name_or_id, self._access.scope)
            who = Author(self._access.by, self._clock())
            check_enrolled(box)
            found = evidence_of(tx, box, now_s=who.now_s)
            if found.cannot is not None:
                text = phrase(
                    "cannot check the containers of %(box)s: %(cannot)s", box=box.name, cannot=found.cannot.why
                )
                raise CloudError(text, remedy=found.cannot.remedy(box.name))
            if found.checking:
                return found.checking
            uids = list(dict.fromkeys(one.uid for one in found.containers))
            parts = [uids[at : at + MOST_PODS] for at in range(0, len(uids), MOST_PODS)]
            return [add_command(tx, box, who, op=OP, args={"pods": [*part]}, wait_s=WAIT_S) for part in parts]


def evidence_of(tx: Transaction, box: BoxRecord, *, now_s: float) -> BoxEvidence:
    """Return the evidence of a box, as its last reports and the last checks have it."""
    latest = {kind: one for (_, kind), one in tx.boxes.latest([box.device], _KINDS).items()}
    checks = [one for one in tx.commands.of(box.device, limit=_LOOKED_AT) if one.tracked.op == OP]
    checked = {(one.uid, one.container): one for one in tx.telemetry.evidence(box.device)}
    last = checks[0].tracked if checks else None
    containers = _containers(latest, checked)
    return BoxEvidence(
        device=box.device,
        box=box.name,
        containers=containers,
        checking=[one.id for one in checks if not one.tracked.ended],
        cannot=_cannot(box, latest, containers, now_s=now_s),
        failed=last.text or str(last.state) if last is not None and _has_failed(last) else "",
    )


def _has_failed(check: TrackedCommand) -> bool:
    return check.ended and check.state is not CommandState.SUCCEEDED


_LOOKED_AT = 50
"""Among so many of a box's last commands its checks are looked for."""


def _containers(
    latest: Mapping[TopicKind, Latest], checked: Mapping[tuple[str, str], StoredEvidence]
) -> list[CheckedContainer]:
    inventory: Inventory | None = read_latest(latest, TopicKind.INVENTORY)
    labels = {card.uuid: card.label for card in inventory.cards} if inventory is not None else {}
    rows = [
        _container(uid, pod, name, labels, checked.get((uid, name)))
        for uid, pod in pods_of(latest).items()
        for name in dict.fromkeys(piece.container for piece in pod.pieces)
    ]
    return sorted(rows, key=lambda one: (one.namespace, one.pod, one.container, one.uid))


def _container(
    uid: str, pod: PodAlloc, name: str, labels: Mapping[str, str], checked: StoredEvidence | None
) -> CheckedContainer:
    cards = [piece.card for piece in pod.pieces if piece.container == name]
    return CheckedContainer(
        uid=uid,
        namespace=pod.namespace,
        pod=pod.name,
        container=name,
        cards=tuple(labels.get(card, card) for card in cards),
        checked=checked,
        stale=checked is not None and set(checked.held) != set(cards),
    )


def _cannot(
    box: BoxRecord, latest: Mapping[TopicKind, Latest], containers: Sequence[CheckedContainer], *, now_s: float
) -> CannotCheck | None:
    status = latest.get(TopicKind.STATUS)
    body = status.body if status is not None else {}
    if box.state is BoxState.BLOCKED:
        return CannotCheck.BLOCKED
    if box.state is not BoxState.ENROLLED:
        return CannotCheck.NOT_ENROLLED
    if body.get("state") == "bye" and body.get("why") == UNINSTALLED:
        return CannotCheck.UNINSTALLED
    if not is_present(box, now_s=now_s):
        return CannotCheck.OFFLINE
    if OP not in (capabilities_of(latest) or ()):
        return CannotCheck.OLD_AGENT
    return None if containers else CannotCheck.NO_CONTAINER
