"""Many boxes with the clusters, apps and containers that they report, put into a store together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kits.details import box, card, pod, reported

from edgegpu_cloud.fleet.audit.entries import Author
from edgegpu_cloud.fleet.changes import add_box
from edgegpu_cloud.fleet.summaries import refresh
from edgegpu_cloud.store.records import EnrolledBox, Latest
from edgegpu_sync.ids import DeviceId, device_id

if TYPE_CHECKING:
    from edgegpu_cloud.store.store import ControllerStore
    from edgegpu_sync.topics import TopicKind

_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class ClusterBox:
    """A box as a test wants it; `containers` of the app hold shares there. An empty cluster: it has reported none."""

    number: int
    name: str
    cluster: str = ""
    holder: bool = False
    online: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    app: str = "asr"
    ending: str = "5d98c8c9f7-zfpmp"
    """What Kubernetes has put behind the app's name for its pod."""
    containers: Sequence[str] = ()
    units: int = 29
    silent: bool = False
    """Whether it has said nothing yet."""

    @property
    def device(self) -> DeviceId:
        """The id of the box."""
        return device_id(f"{self.number:016d}")


def put_boxes(store: ControllerStore, boxes: Sequence[ClusterBox], *, now_s: float) -> None:
    """Enrol boxes, and store their last messages as heard now."""
    for at in range(0, len(boxes), _AT_ONCE):
        _put(store, boxes[at : at + _AT_ONCE], now_s=now_s)


def report_again(store: ControllerStore, boxes: Sequence[ClusterBox], *, now_s: float) -> None:
    """Store what boxes say later: they are enrolled, and `put_boxes` has put them."""
    heard = {one.device: _heard(one, now_s) for one in boxes}
    with store.write() as tx:
        tx.boxes.put_latest([latest for messages in heard.values() for latest in messages.values()])
        records = tx.boxes.get(list(heard))
        now = [replace(records[one.device], online=one.online, seen_at_s=now_s) for one in boxes]
        tx.boxes.put(now)
        refresh(tx, now, heard=heard)


def _put(store: ControllerStore, boxes: Sequence[ClusterBox], *, now_s: float) -> None:
    heard = {one.device: _heard(one, now_s) for one in boxes}
    with store.write() as tx:
        for one in boxes:
            new = EnrolledBox(
                device=one.device,
                enrolment=1,
                public="A" * 43,
                instance=f"{one.number:064d}",
                name=one.name,
                labels=one.labels,
            )
            add_box(tx, new, Author("setup", now_s))
        tx.boxes.add_latest([latest for messages in heard.values() for latest in messages.values()])
        records = tx.boxes.get(list(heard))
        now = [replace(records[one.device], online=one.online, seen_at_s=now_s) for one in boxes]
        tx.boxes.put(now)
        refresh(tx, now, heard=heard)


def _heard(one: ClusterBox, now_s: float) -> Mapping[TopicKind, Latest]:
    if one.silent:
        return {}
    pieces = [(name, "0", 2, 1) for name in one.containers]
    pods = {"u1": pod(f"{one.app}-{one.ending}", *pieces)} if pieces else {}
    details = box(one.name, (card("0", units=one.units),), pods)
    if one.cluster:
        details = reported(details, cluster=one.cluster, holder=one.holder)
    return {kind: replace(latest, device=one.device, at_s=now_s) for kind, latest in details.latest.items()}
