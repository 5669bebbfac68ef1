"""Summaries of boxes for lists, kept in step with what boxes say and what people ask."""

from collections.abc import Collection, Iterable, Mapping

from edgegpu_base.records import replace
from edgegpu_cloud.fleet.limits.apps import app_name
from edgegpu_cloud.fleet.limits.clusters import bound
from edgegpu_cloud.fleet.preview.capacity import capacity_of
from edgegpu_cloud.fleet.reports import LatestMessages, pods_of
from edgegpu_cloud.fleet.views import items_of, left_of, waiting_of
from edgegpu_cloud.store.records import BoxRecord, Latest
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.tables import BoxSummary
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import Spec
from edgegpu_sync.topics import TopicKind

_OF_CARDS = (TopicKind.INVENTORY, TopicKind.ALLOC)
KINDS_OF_SUMMARY = frozenset({TopicKind.STATUS, TopicKind.REPORTED, TopicKind.HEALTH, *_OF_CARDS})
"""The kinds of messages by which a summary changes."""

Heard = Mapping[DeviceId, Mapping[TopicKind, Latest]]
"""The messages of boxes that a transaction has stored, the last of each kind."""


def refresh(
    tx: Transaction, boxes: Iterable[BoxRecord], *, heard: Heard | None = None, counted: Collection[DeviceId] = ()
) -> None:
    """Bring the summaries of boxes in step; call it when all else of the transaction is written.

    Args:
        tx: the transaction.
        boxes: as they are now.
        heard: what was stored of them.
        counted: those of them to which a command was queued, or one has ended.
    """
    now = {box.device: box for box in boxes}
    said = _with_both_card_reports(tx, heard or {})
    before = tx.summaries.get(now)
    open_ = tx.commands.open_count(counted) if counted else {}
    after = [
        summary_after(
            replace(one, open_commands=open_.get(device, 0)) if device in counted else one,
            now[device],
            said.get(device, {}),
        )
        for device, one in before.items()
    ]
    tx.summaries.put(one for one in after if one != before[one.device])
    apps = {device: apps_on(latest) for device, latest in said.items() if TopicKind.ALLOC in latest}
    if apps:
        tx.summaries.put_apps(apps, requested=False)


def _with_both_card_reports(tx: Transaction, heard: Heard) -> dict[DeviceId, dict[TopicKind, Latest]]:
    """Return what was heard; where one of the two reports of cards is among it, the stored other one too."""
    said = {device: dict(of) for device, of in heard.items()}
    lacking = {kind: [device for device, of in said.items() if _lacks(of, kind)] for kind in _OF_CARDS}
    for kind, devices in lacking.items():
        if devices:
            for (device, _), one in tx.boxes.latest(devices, [kind]).items():
                said[device].setdefault(kind, one)
    return said


def _lacks(latest: LatestMessages, kind: TopicKind) -> bool:
    return kind not in latest and any(one in latest for one in _OF_CARDS)


def summary_after(before: BoxSummary, box: BoxRecord, latest: LatestMessages) -> BoxSummary:
    """Return a box's summary after messages; both reports of its cards are there, or none."""
    after = before
    if one := latest.get(TopicKind.STATUS):
        versions = one.body.get("versions", {})
        names = ("agent", "plugin", "k3s", "driver")
        after = replace(after, **{name: versions.get(name, "") for name in names}, left=left_of(one.body))
    if one := latest.get(TopicKind.REPORTED):
        items = items_of(one.body)
        after = bound(replace(after, open_items=items.open, problems=items.problems), one.body)
    if one := latest.get(TopicKind.HEALTH):
        after = replace(after, health=str(one.body.get("state", "")))
    if cards := capacity_of(latest):
        numbers = {name: getattr(cards, name) for name in ("cards", "shared_cards", "units", "free_units", "sharing")}
        after = replace(after, **numbers)
    waiting = waiting_of(box, open_items=after.open_items, open_commands=after.open_commands)
    return replace(after, waiting=waiting)


def apps_on(latest: LatestMessages) -> frozenset[str]:
    """Return the apps whose pods hold shares on a box: NAMESPACE/APP."""
    return frozenset(f"{pod.namespace}/{app_name(pod.name)}" for pod in pods_of(latest).values())


def apps_in(spec: Spec) -> frozenset[str]:
    """Return the apps whose limits a desired document has: NAMESPACE/APP."""
    return frozenset(f"{item.namespace}/{item.app}" for item in spec.app_limits)


def is_listed_differently(before: BoxRecord, after: BoxRecord) -> bool:
    """Whether lists show a box differently now, beside its summary; the time when it was heard does not count."""
    return _listed(before) != _listed(after)


def _listed(box: BoxRecord) -> tuple[object, ...]:
    sequence = box.sequence
    numbers = (sequence.rev, sequence.restored, box.observed_rev, box.applied_rev)
    return (box.name, box.host, box.labels, box.state, box.online, *numbers)
