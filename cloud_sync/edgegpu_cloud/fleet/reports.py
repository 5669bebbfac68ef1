"""The last reports of a box, read from the store's records; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgegpu_cloud.store.records import Latest
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.readers import READERS
from edgegpu_sync.messages.telemetry import Alloc, Inventory, PendingPods, PodAlloc
from edgegpu_sync.topics import TopicKind

LatestMessages = Mapping[TopicKind, Latest]
"""The last message of each kind from one box."""


def by_box(
    latest: Mapping[tuple[DeviceId, TopicKind], Latest], devices: Iterable[DeviceId]
) -> Mapping[DeviceId, LatestMessages]:
    """Return the last messages of boxes, as the store gives them, for each of these boxes."""
    found: dict[DeviceId, dict[TopicKind, Latest]] = {device: {} for device in devices}
    for (device, kind), one in latest.items():
        found[device][kind] = one
    return found


@dataclass(frozen=True, slots=True)
class CardReports:
    """A box's last reports of its cards, and of the pods that hold shares of them, by uid.

    `cards_at_s` and `pods_at_s`: when each was heard, seconds since 1970; None: it has reported no pods yet. Where
    nothing changed among the pods, its report of cards says so too.
    `capabilities`: of its last birth; None where it has said goodbye since, or was lost.
    """

    inventory: Inventory
    pods: Mapping[str, PodAlloc]
    cards_at_s: float
    pods_at_s: float | None
    capabilities: frozenset[str] | None = None

    @property
    def as_of_s(self) -> float:
        """Since when both are known to be so: a box reports its cards every ten minutes, its pods when they change."""
        return self.cards_at_s

    @property
    def pods_as_of_s(self) -> float:
        """Since when its pods are known to be so."""
        return max(self.cards_at_s, self.pods_at_s or 0.0)


def read_latest(latest: LatestMessages, kind: TopicKind) -> Any:  # noqa: ANN401  (the model of the kind)
    """Return the last message of a kind from a box; None where there is none."""
    one = latest.get(kind)
    return None if one is None else READERS[kind].validate_python(one.body, strict=False)


def pods_of(latest: LatestMessages) -> Mapping[str, PodAlloc]:
    """Return the pods that hold shares on a box, by uid; none before its first report."""
    alloc: Alloc | None = read_latest(latest, TopicKind.ALLOC)
    return alloc.pods if alloc is not None else {}


def card_reports(latest: LatestMessages) -> CardReports | None:
    """Return a box's last reports of its cards; None before it has reported them."""
    inventory: Inventory | None = read_latest(latest, TopicKind.INVENTORY)
    if inventory is None:
        return None
    pods_at_s = latest[TopicKind.ALLOC].at_s if TopicKind.ALLOC in latest else None
    cards_at_s = latest[TopicKind.INVENTORY].at_s
    return CardReports(inventory, pods_of(latest), cards_at_s, pods_at_s, capabilities_of(latest))


def capabilities_of(latest: LatestMessages) -> frozenset[str] | None:
    """Return the capabilities in a box's last birth; None where its last status is no birth."""
    status = latest.get(TopicKind.STATUS)
    if status is None or status.body.get("state") != "birth":
        return None
    return frozenset(status.body.get("capabilities", ()))


@dataclass(frozen=True, slots=True)
class BoxPending:
    """The pods without a card, as a box has reported them; `listed` is None where its agent does not report them.

    `as_of_s`: since when that is known to be so, seconds since 1970. A report of cards says that it is so still, while
    GPU sharing is on: the plugin has both.
    """

    listed: PendingPods | None
    as_of_s: float


def pending_of(latest: LatestMessages) -> BoxPending | None:
    """Return the pods without a card on a box; None before its first report of pods."""
    alloc: Alloc | None = read_latest(latest, TopicKind.ALLOC)
    if alloc is None:
        return None
    reports = card_reports(latest)
    at_s = latest[TopicKind.ALLOC].at_s
    confirmed_s = reports.cards_at_s if reports is not None and reports.inventory.sharing else at_s
    return BoxPending(alloc.pending, max(at_s, confirmed_s))
