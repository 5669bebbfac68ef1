"""The preview of other settings of a box's sharing, by its last report; pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.reports import CardReports, LatestMessages, capabilities_of, read_latest
from edgegpu_cloud.fleet.specs import SharingSettings, desired_items, with_settings
from edgegpu_cloud.fleet.views import BoxDetails, reports_to_preview
from edgegpu_cloud.phrases import joined, phrase, phrase_n
from edgegpu_sync.messages.spec import (
    LIMITER,
    MPS,
    AnyItem,
    Exclusions,
    Isolation,
    IsolationMode,
    PolicyItem,
    Spec,
    UnitSize,
)
from edgegpu_sync.messages.telemetry import CardReport, Inventory
from edgegpu_sync.topics import TopicKind

MOST_UNITS = 25_000
"""A node must have fewer units: kubelet receives each as a device, in one message."""

_MOST_NAMES = 10


class PreviewVerdict(StrEnum):
    """The verdicts of a preview: what a box would do with an item."""

    AS_IT_IS = "as_it_is"
    CHANGED = "changed"
    REJECTED = "rejected"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class ItemPreview:
    """The verdict on one item, and why, for people."""

    answer: PreviewVerdict
    text: str = ""

    @property
    def good(self) -> bool:
        """Whether the box would settle it as Applied."""
        return self.answer in {PreviewVerdict.AS_IT_IS, PreviewVerdict.CHANGED}


def preview_settings(details: BoxDetails, items: Mapping[str, AnyItem]) -> dict[str, ItemPreview]:
    """Return for each item, by its name, what the box would do with it.

    Raises:
        CloudError: it has not reported its cards yet.
    """
    reports = reports_to_preview(details)
    if not reports.inventory.sharing:
        return dict.fromkeys(items, ItemPreview(PreviewVerdict.REJECTED, phrase("GPU sharing is not installed there")))
    return {name: _of(item, reports) for name, item in items.items()}


def setting_names(settings: SharingSettings) -> list[str]:
    """Return the names of the items that settings are for."""
    given = {
        "isolation": settings.isolation,
        "policy": settings.policy,
        "exclusions": settings.exclude,
        "unit_size": settings.unit_mib,
    }
    return [name for name, value in given.items() if value is not None]


def preview_named(details: BoxDetails, settings: SharingSettings) -> dict[str, ItemPreview]:
    """Return for each item that settings are for what the box would do with it.

    Raises:
        CloudError: a setting is not valid, or the box has not reported its cards yet.
    """
    items = desired_items(with_settings(details.spec, settings))
    found = preview_settings(details, {name: items[name] for name in setting_names(settings)})
    told = reports_to_preview(details).inventory
    if told.sharing and (refused := _unknown_cards(details.box.name, details.spec, told, settings)):
        found["exclusions"] = ItemPreview(PreviewVerdict.REJECTED, joined([refused.text, refused.remedy]))
    return found


def check_settings(details: BoxDetails, settings: SharingSettings) -> None:
    """Refuse at once what a box would refuse in any case, as `check_told` does."""
    check_told(details.box.name, details.spec, details.latest, settings)


def check_told(box: str, spec: Spec, latest: LatestMessages, settings: SharingSettings) -> None:
    """Refuse what the box of this name would refuse in any case, by its last report; nothing where there is none.

    Raises:
        CloudError: a card that it does not have, or an isolation that boxes of this version do not know.
    """
    told: Inventory | None = read_latest(latest, TopicKind.INVENTORY)
    if told is None:
        return
    if refused := _unknown_cards(box, spec, told, settings):
        raise refused
    if settings.isolation not in set(IsolationMode) or not told.sharing:
        return
    mode = IsolationMode(settings.isolation)
    if why := _no_isolation(mode, capabilities_of(latest)):
        text = phrase(
            "cannot set isolation %(isolation)s on %(box)s: %(no_isolation)s", isolation=mode, box=box, no_isolation=why
        )
        raise CloudError(text, remedy=phrase("upgrade its agent, or leave it at --isolation none"))


def _unknown_cards(box: str, spec: Spec, told: Inventory, settings: SharingSettings) -> CloudError | None:
    """Return the refusal of cards that a box has not told of, and that nobody excluded before; None where all exist."""
    before = spec.exclusions.cards if spec.exclusions else ()
    asked = () if settings.exclude in {None, ("none",)} else settings.exclude or ()
    unknown = [word for word in asked if not _is_known(word, told.cards) and word not in before]
    if not unknown or not told.cards:
        return None
    there = ", ".join(f"{card.label} ({card.uuid})" for card in told.cards)
    return CloudError(
        phrase("cannot exclude %(unknown)s on %(box)s: there is no such card", unknown=", ".join(unknown), box=box),
        remedy=phrase("it has %(there)s", there=there),
    )


def _no_isolation(mode: IsolationMode, capabilities: Collection[str] | None) -> str:
    """Return why a box with these capabilities does not take an isolation; empty when it does, or may."""
    if mode is IsolationMode.NONE or capabilities is None:
        return ""
    if LIMITER not in capabilities:
        return phrase("its agent is older, and places services without holding them to anything")
    if mode is IsolationMode.MPS and MPS not in capabilities:
        return phrase("its agent is older, and has the limiter without MPS")
    return ""


def _of(item: AnyItem, reports: CardReports) -> ItemPreview:
    match item:
        case Isolation(mode=mode) if mode.value == reports.inventory.mode:
            return ItemPreview(PreviewVerdict.AS_IT_IS)
        case Isolation(mode=mode) if why := _no_isolation(mode, reports.capabilities):
            return ItemPreview(PreviewVerdict.UNSUPPORTED, why)
        case PolicyItem(policy=reports.inventory.policy):
            return ItemPreview(PreviewVerdict.AS_IT_IS)
        case Exclusions(cards=cards):
            return _excluded(cards, reports)
        case UnitSize(mib=mib):
            return _unit(mib, reports)
        case _:
            return ItemPreview(PreviewVerdict.CHANGED, phrase("new pods alone follow it"))


def _holders(reports: CardReports, cards: Iterable[str]) -> str:
    """Return the first pods that hold something of these cards, which are named by UUID: NAMESPACE/NAME."""
    wanted = set(cards)
    held = (pod for pod in reports.pods.values() if any(piece.card in wanted for piece in pod.pieces))
    return _names(sorted({f"{pod.namespace}/{pod.name}" for pod in held}))


def _excluded(words: tuple[str, ...], reports: CardReports) -> ItemPreview:
    cards = reports.inventory.cards
    after = {card.uuid for card in cards if {card.uuid, card.label, card.label.partition(":")[0]} & set(words)}
    if after == {card.uuid for card in cards if card.excluded}:
        return ItemPreview(PreviewVerdict.AS_IT_IS)
    notes = []
    if holders := _holders(reports, after):
        notes.append(phrase("these go on there, and do not start there again: %(pods)s", pods=holders))
    if unknown := [word for word in words if not _is_known(word, cards)]:
        notes.append(phrase("no card that it has told of: %(cards)s", cards=", ".join(unknown)))
    return ItemPreview(PreviewVerdict.CHANGED, joined(notes))


def _is_known(word: str, cards: tuple[CardReport, ...]) -> bool:
    return any(word in {card.uuid, card.label, card.label.partition(":")[0]} for card in cards)


def _unit(mib: int, reports: CardReports) -> ItemPreview:
    now = reports.inventory.unit_mib
    if mib == now:
        return ItemPreview(PreviewVerdict.AS_IT_IS)
    if holders := _holders(reports, (card.uuid for card in reports.inventory.cards)):
        return ItemPreview(
            PreviewVerdict.REJECTED,
            phrase("pods hold shares in units of %(mib)s MiB, stop them: %(pods)s", mib=now, pods=holders),
        )
    cards = [card for card in reports.inventory.cards if not card.excluded]
    units = sum(card.memory_mib // mib for card in cards)
    if units >= MOST_UNITS:
        return ItemPreview(
            PreviewVerdict.REJECTED,
            phrase("that makes %(units)s units, and a node has fewer than %(most)s", units=units, most=MOST_UNITS),
        )
    offered = [_most_offered_mib(card, now) for card in cards]
    if offered == [card.memory_mib for card in cards]:
        text = phrase_n("%(num)d unit in all", "%(num)d units in all", units)
    else:
        most = sum(one // mib for one in offered)
        text = phrase_n("%(num)d unit in all at most", "%(num)d units in all at most", most)
    return ItemPreview(PreviewVerdict.CHANGED, text)


def _most_offered_mib(card: CardReport, unit_mib: int) -> int:
    """Return the most MiB that a card may offer by the units that it has; a box does not report what it keeps back."""
    return min(card.memory_mib, card.units * unit_mib + unit_mib - 1) if card.units else card.memory_mib


def _names(names: Sequence[str]) -> str:
    first = ", ".join(names[:_MOST_NAMES])
    left = len(names) - _MOST_NAMES
    return phrase("%(names)s and %(left)s more", names=first, left=left) if left > 0 else first
