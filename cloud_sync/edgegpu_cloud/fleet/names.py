"""The search for boxes by id, name or the beginning of either, and for commands by the beginning of their id."""

import re

from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.access import ALL_BOXES
from edgegpu_cloud.fleet.limits.clusters import check_claim, check_rivals
from edgegpu_cloud.fleet.reports import LatestMessages
from edgegpu_cloud.fleet.selectors import BoxSelector
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import BoxRecord, Latest, StoredCommand
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import BoxQuery
from edgegpu_cloud.store.summaries.tables import BoxSummary
from edgegpu_sync.errors import SyncError
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.states import ResultCode
from edgegpu_sync.topics import TopicKind

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def check_name(name: str) -> None:
    """Refuse a name that a box cannot have.

    Raises:
        CloudError: a shell, a table or a person would stumble over it.
    """
    if not _NAME.fullmatch(name):
        remedy = phrase("a name has 1 to 63 letters, digits, `.`, `-` and `_`, a letter or digit at both ends")
        raise CloudError(phrase("cannot call a box %(name)r", name=name), remedy=remedy)


def find_box(tx: Transaction, name_or_id: str, scope: BoxSelector = ALL_BOXES) -> BoxRecord:
    """Return a box by id, name, or the beginning of either; those that are not in the scope do not exist.

    Raises:
        NotFoundError: none, or more than one.
    """
    found = _candidates(tx, name_or_id, scope) if name_or_id and "\0" not in name_or_id else []
    boxes = tx.boxes.get(found[:_NAMED]) if found else {}
    if len(found) == 1 and (box := boxes.get(found[0])) is not None and scope.matches(box.labels):
        return box
    if len(found) <= 1:
        raise NotFoundError(
            phrase("cannot find a box %(name)r", name=name_or_id),
            remedy=phrase("`edgegpu-cloud boxes` lists them"),
        )
    names = ", ".join(sorted(box.name for box in boxes.values()))
    raise NotFoundError(
        phrase(
            "cannot tell which box %(name)r is: %(num)s begin so (%(names)s)",
            name=name_or_id,
            num=len(found),
            names=names,
        ),
        remedy=phrase("give more letters"),
    )


def device_named(tx: Transaction, text: str, scope: BoxSelector = ALL_BOXES) -> str:
    """Return the device id of a box, or the whole id of one that is forgotten.

    Raises:
        NotFoundError: neither.
    """
    try:
        return find_box(tx, text, scope).device
    except NotFoundError as error:
        try:
            return device_id(text)
        except SyncError:
            raise error from None


_NAMED, _MOST = 5, 10_000


def _candidates(tx: Transaction, name_or_id: str, scope: BoxSelector) -> list[DeviceId]:
    """Return the box with this id or name, else those whose id or name begins with it."""
    if not scope.terms:
        return tx.boxes.with_name_prefix(name_or_id)
    query = BoxQuery(present_since_s=0.0, scope=scope.terms, names=name_or_id)
    found = tx.list.devices(query, limit=_MOST)
    exact = [device for name, device in found if name_or_id in {name, device}]
    return exact or [device for _, device in found]


def find_command(tx: Transaction, id_: str, scope: BoxSelector = ALL_BOXES) -> StoredCommand:
    """Return a command by its id, or the beginning of it; those to boxes that are not in the scope do not exist.

    Raises:
        NotFoundError: none, or more than one.
    """
    ids = tx.commands.beginning(id_, scope.terms) if id_ and "\0" not in id_ else []
    found = tx.commands.get([one for one in ids if one == id_] or ids)
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise NotFoundError(
            phrase("cannot find a command %(id)r", id=id_), remedy=phrase("`edgegpu-cloud commands` lists them")
        )
    raise NotFoundError(
        phrase("cannot tell which command %(id)r is: several begin so", id=id_),
        remedy=phrase("give more letters of its id"),
    )


def cluster_of(tx: Transaction, box: BoxRecord) -> str:
    """Return the cluster that a box has reported last.

    Raises:
        CloudError: it has reported none yet, or one that does not count.
    """
    return cluster_in(box, _latest(tx, box), tx.summaries.get([box.device])[box.device])


def check_settles(tx: Transaction, box: BoxRecord, cluster: str, scope: BoxSelector = ALL_BOXES) -> None:
    """Refuse a box where another box settles the app limits of this cluster: one agent of a cluster does.

    Raises:
        CloudError: another one does, by the last reports of both; or several say that they do.
    """
    holders = tx.list.holders([cluster]).get(cluster, [])
    check_rivals(box.name, len(holders))
    if not holders:
        return
    [device] = holders
    holder = tx.boxes.get([device])[device]
    if scope.matches(holder.labels):
        check_holder(
            box,
            _latest(tx, box),
            phrase("%(name)s settles the app limits of their cluster", name=holder.name),
            holder.name,
        )
    else:
        check_holder(box, _latest(tx, box), phrase("a box out of your scope settles the app limits of its cluster"))


def refused_names(tx: Transaction, box: BoxRecord) -> frozenset[str]:
    """Return the items that a box has refused before it changed anything, because they name what does not exist."""
    return refused_in(_latest(tx, box))


def _latest(tx: Transaction, box: BoxRecord) -> dict[TopicKind, Latest]:
    return {kind: one for (_, kind), one in tx.boxes.latest([box.device], CLUSTER_KINDS).items()}


CLUSTER_KINDS = (TopicKind.REPORTED, TopicKind.INVENTORY)
"""The kinds of messages that name a box's cluster."""


def cluster_in(box: BoxRecord, latest: LatestMessages, summary: BoxSummary) -> str:
    """Return the cluster that a box's messages name.

    Raises:
        CloudError: none of them does, or it does not count.
    """
    reports = sorted((latest[kind] for kind in CLUSTER_KINDS if kind in latest), key=lambda one: -one.at_s)
    cluster = next((str(found) for one in reports if (found := one.body.get("cluster", ""))), "")
    if not cluster:
        remedy = phrase("wait until it is connected and its k3s runs")
        raise CloudError(
            phrase("cannot set limits on %(box)s: it has not reported its cluster", box=box.name), remedy=remedy
        )
    check_claim(box.name, cluster, summary)
    return cluster


def check_holder(box: BoxRecord, latest: LatestMessages, settles: str, name: str = "") -> None:
    """Refuse a box that has reported that it does not settle the app limits of its cluster.

    Args:
        box: the box.
        latest: its last messages.
        settles: that another one does, in words.
        name: of that one, where the person sees it.

    Raises:
        CloudError: it does not.
    """
    mine = latest.get(TopicKind.REPORTED)
    if mine is not None and not mine.body.get("holder"):
        remedy = (
            phrase("set them on %(name)s", name=name)
            if name
            else phrase("ask somebody who sees all boxes of the cluster")
        )
        raise CloudError(
            phrase("cannot set limits on %(box)s: %(settles)s", box=box.name, settles=settles), remedy=remedy
        )


def refused_in(latest: LatestMessages) -> frozenset[str]:
    """Return the items that a box's reported state has as refused, because they name what does not exist."""
    reported = latest.get(TopicKind.REPORTED)
    items = reported.body.get("items", {}) if reported is not None else {}
    return frozenset(
        name
        for name, one in items.items()
        if (one.get("state"), one.get("code")) == (ItemState.REJECTED, ResultCode.PRECHECK)
    )
