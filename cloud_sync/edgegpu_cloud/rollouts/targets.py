"""The boxes of a rollout that is planned, in the order in which they are changed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.listing import BoxFilter, query_of
from edgegpu_cloud.fleet.names import find_box
from edgegpu_cloud.fleet.selectors import BoxSelector
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.phrases import phrase, phrase_n
from edgegpu_cloud.rollouts.changes import RolloutChange
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxOrder, BoxPlace, BoxQuery, ListedBox
from edgegpu_sync.ids import DeviceId

_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBox:
    """A box of a planned rollout; `others` are the devices of the same cluster, for app limits."""

    device: DeviceId
    name: str
    present: bool
    others: Sequence[DeviceId] = ()


class BoxSelection(Protocol):
    """The part of a request that says which boxes are meant."""

    @property
    def change(self) -> RolloutChange:
        """What is changed."""
        ...

    @property
    def boxes(self) -> Sequence[str]:
        """Names or ids of boxes; empty: those of the selector."""
        ...

    @property
    def selector(self) -> str:
        """A selector over labels; empty: all boxes."""
        ...

    @property
    def first(self) -> Sequence[str]:
        """Names or ids of boxes that come first."""
        ...


def planned_boxes(
    tx: Transaction, wanted: BoxSelection, scope: BoxSelector, *, now_s: float
) -> tuple[list[PlannedBox], list[str]]:
    """Return the boxes of a rollout in their order, and notes for people.

    First those that were named to be first, then those that are online, then the others; each by name. App limits are
    applied once in a cluster: of its boxes the one that applies them is taken, else an online one.

    Raises:
        NotFoundError: a box is not there for this person, or none is meant.
        CloudError: no selector, none of the boxes can be asked, or a first box is not among them.
    """
    query = _query(tx, wanted, scope, now_s=now_s)
    found, all_of_them = _listed(tx, replace(query, askable=True)), tx.list.number(query)
    if not found:
        _none(all_of_them, wanted)
    notes: list[str] = []
    if left := all_of_them - len(found):
        notes.append(
            phrase_n(
                "%(num)d box revoked, set aside or uninstalled: left out",
                "%(num)d boxes revoked, set aside or uninstalled: left out",
                left,
            )
        )
    first = [find_box(tx, name).device for name in wanted.first]
    planned = [PlannedBox(device=box.device, name=box.name, present=box.connected) for box in found]
    if isinstance(wanted.change, ContainerLimits):
        planned, more = _one_of_each_cluster(tx, found, first, now_s=now_s)
        notes += more
    devices = {box.device for box in planned}
    if strange := [name for name, device in zip(wanted.first, first, strict=True) if device not in devices]:
        text = phrase("cannot begin with %(boxes)s: not among the boxes of this rollout", boxes=", ".join(strange))
        raise CloudError(
            text, remedy=phrase("name boxes that it concerns; app limits are applied by one box of a cluster")
        )
    if away := sum(not box.present for box in planned):
        notes.append(phrase_n("%(num)d box offline now", "%(num)d boxes offline now", away))
    place = {device: at for at, device in enumerate(first)}
    planned.sort(key=lambda box: (place.get(box.device, len(place)), not box.present, box.name))
    return planned, notes


def _query(tx: Transaction, wanted: BoxSelection, scope: BoxSelector, *, now_s: float) -> BoxQuery:
    if wanted.boxes and wanted.selector:
        raise CloudError(
            phrase("cannot select boxes by names and by labels at once"), remedy=phrase("give one of the two")
        )
    devices = frozenset(find_box(tx, name).device for name in wanted.boxes) if wanted.boxes else None
    query = query_of(BoxFilter(selector=wanted.selector, devices=devices), now_s=now_s)
    return replace(query, scope=scope.terms)


def _listed(tx: Transaction, query: BoxQuery) -> list[ListedBox]:
    found: list[ListedBox] = []
    order = BoxOrder(limit=_AT_ONCE)
    while part := tx.list.page(query, order):
        found += part
        order = replace(order, after=BoxPlace(part[-1].name, part[-1].name))
    return found


def _none(all_of_them: int, wanted: BoxSelection) -> NoReturn:
    if all_of_them:
        text = phrase(
            "cannot start a rollout: %(boxes)s, all revoked, set aside or uninstalled",
            boxes=phrase_n("%(num)d box", "%(num)d boxes", all_of_them),
        )
        raise CloudError(text, remedy=phrase("`edgegpu-cloud boxes` shows their states"))
    text = phrase("cannot find such boxes")
    if wanted.selector:
        text = phrase("cannot find a box by %(selector)r: none has these labels", selector=wanted.selector)
    raise NotFoundError(text, remedy=phrase("`edgegpu-cloud boxes -o wide` shows labels"))


def _one_of_each_cluster(
    tx: Transaction, found: Sequence[ListedBox], first: Sequence[DeviceId], *, now_s: float
) -> tuple[list[PlannedBox], list[str]]:
    clusters: dict[str, list[ListedBox]] = {}
    for box in found:
        clusters.setdefault(box.summary.cluster or box.device, []).append(box)
    members = _members(tx, [box.summary.cluster for box in found if box.summary.cluster], now_s=now_s)
    best = [_settler(boxes, first) for boxes in clusters.values()]
    planned = [
        PlannedBox(
            device=box.device,
            name=box.name,
            present=box.connected,
            others=[one for one in members.get(box.summary.cluster, ()) if one != box.device],
        )
        for box in best
    ]
    notes: list[str] = []
    if left := len(found) - len(best):
        notes.append(
            phrase_n(
                "%(num)d box left out: another box of the cluster applies its app limits",
                "%(num)d boxes left out: another box of the cluster applies its app limits",
                left,
            )
        )
    if unknown := sum(not box.summary.cluster for box in best):
        notes.append(
            phrase_n(
                "%(num)d box without a reported cluster: app limits are refused there",
                "%(num)d boxes without a reported cluster: app limits are refused there",
                unknown,
            )
        )
    return planned, notes


def _members(tx: Transaction, clusters: Sequence[str], *, now_s: float) -> dict[str, list[DeviceId]]:
    """Return the enrolled boxes of clusters, those too that the rollout does not name: pods of an app may be there."""
    found: dict[str, list[DeviceId]] = {}
    names = sorted(set(clusters))
    for at in range(0, len(names), _AT_ONCE):
        where = BoxFilter(clusters=frozenset(names[at : at + _AT_ONCE]), askable=True)
        for box in _listed(tx, query_of(where, now_s=now_s)):
            found.setdefault(box.summary.cluster, []).append(box.device)
    return found


def _settler(boxes: Sequence[ListedBox], first: Sequence[DeviceId]) -> ListedBox:
    def rank(box: ListedBox) -> tuple[bool, bool, bool, str]:
        return not (box.summary.holder and box.connected), not box.connected, box.device not in first, box.name

    return min(boxes, key=rank)
