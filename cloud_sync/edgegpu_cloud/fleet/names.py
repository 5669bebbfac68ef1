"""The search for boxes by id, name or the beginning of either, and for commands by the beginning of their id."""

import re

from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.store.records import BoxRecord, BoxState, StoredCommand
from edgegpu_cloud.store.store import Transaction
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
        remedy = "a name has 1 to 63 letters, digits, `.`, `-` and `_`, a letter or digit at both ends"
        raise CloudError(f"cannot call a box {name!r}", remedy=remedy)


def find_box(tx: Transaction, name_or_id: str) -> BoxRecord:
    """Return a box by id, name, or the beginning of either.

    Raises:
        NotFoundError: none, or more than one.
    """
    found = tx.boxes.with_name_prefix(name_or_id) if name_or_id else []
    if len(found) == 1:
        return tx.boxes.get(found)[found[0]]
    if not found:
        raise NotFoundError(f"cannot find a box {name_or_id!r}", remedy="`edgegpu-cloud boxes` lists them")
    names = ", ".join(sorted(box.name for box in tx.boxes.get(found[:5]).values()))
    raise NotFoundError(
        f"cannot tell which box {name_or_id!r} is: {len(found)} begin so ({names})", remedy="give more letters"
    )


def find_command(tx: Transaction, id_: str) -> StoredCommand:
    """Return a command by its id, or the beginning of it.

    Raises:
        NotFoundError: none, or more than one.
    """
    ids = tx.commands.beginning(id_) if id_ else []
    found = tx.commands.get([one for one in ids if one == id_] or ids)
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise NotFoundError(f"cannot find a command {id_!r}", remedy="`edgegpu-cloud commands` lists them")
    raise NotFoundError(f"cannot tell which command {id_!r} is: several begin so", remedy="give more letters of its id")


def cluster_of(tx: Transaction, box: BoxRecord) -> str:
    """Return the cluster that a box has reported last.

    Raises:
        CloudError: it has reported none yet.
    """
    latest = tx.boxes.latest([box.device], [TopicKind.REPORTED, TopicKind.INVENTORY])
    told = [one.body.get("cluster", "") for _, one in sorted(latest.items(), key=lambda each: -each[1].at_s)]
    cluster = next((one for one in told if one), "")
    if not cluster:
        remedy = "wait until it is connected and its k3s runs"
        raise CloudError(f"cannot set limits on {box.name}: it has not reported its cluster", remedy=remedy)
    return str(cluster)


def check_settles(tx: Transaction, box: BoxRecord, cluster: str) -> None:
    """Refuse a box where another box settles the app limits of this cluster: one agent of a cluster does.

    Raises:
        CloudError: another one does, by the last reports of both.
    """
    mine = tx.boxes.latest([box.device], [TopicKind.REPORTED]).get((box.device, TopicKind.REPORTED))
    if mine is None or mine.body.get("holder"):
        return
    others = {one.device: one for one in tx.boxes.all() if one.state is BoxState.ENROLLED and one.online}
    for (device, _), latest in tx.boxes.latest([*others], [TopicKind.REPORTED]).items():
        if latest.body.get("holder") and latest.body.get("cluster") == cluster:
            name = others[device].name
            text = f"cannot set limits on {box.name}: {name} settles the app limits of their cluster"
            raise CloudError(text, remedy=f"set them on {name}")


def refused_names(tx: Transaction, box: BoxRecord) -> frozenset[str]:
    """Return the items that a box has refused before it changed anything, because they name what does not exist."""
    latest = tx.boxes.latest([box.device], [TopicKind.REPORTED]).get((box.device, TopicKind.REPORTED))
    items = latest.body.get("items", {}) if latest is not None else {}
    return frozenset(
        name
        for name, one in items.items()
        if (one.get("state"), one.get("code")) == (ItemState.REJECTED, ResultCode.PRECHECK)
    )
