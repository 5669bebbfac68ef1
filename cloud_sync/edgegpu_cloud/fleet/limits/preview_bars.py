"""The preview of new limits as bars: where an app's pods go, or what each card lacks; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgegpu_cloud.fleet.card_views import BoxCards, CardBar, CardPiece, cards_of
from edgegpu_cloud.fleet.preview.case import Limits, PreviewCase, preview_case
from edgegpu_cloud.fleet.preview.limits import Preview, preview_of
from edgegpu_cloud.fleet.preview.live import PodChange
from edgegpu_cloud.fleet.reports import CardReports
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_core.limits.outcome import CardShortage, PlannedPod, planned_pods, shortages
from edgegpu_core.limits.verdict import FitResult
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_sync.messages.telemetry import CardShare, PodAlloc


@dataclass(frozen=True, slots=True)
class CardPlace:
    """A card by its node and its number there."""

    node: str
    card: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarsPreview:
    """A preview with the cards of all boxes that it considers, before and after, in the same order.

    `after` is as `before` where the limits do not fit. `beside`: the cards of the new pods where the app keeps its old
    ones meanwhile (a rolling update); None where they have no room so. `after_stop`: their cards where the old ones
    have gone; None where they do not fit. `missing` is what each card lacks; empty where they fit, and where no amount
    of room helps: then `preview.text` says why. `overfull` are the cards with the new share on each that lacks
    something, beyond the card's end; empty where nothing is missing, or whole cards are asked for.
    Where the pods stay (`preview.pods`), `after` has them where they are, with the units that they keep, and `beside`
    their cards.
    """

    preview: Preview
    before: Sequence[BoxCards]
    after: Sequence[BoxCards]
    beside: Sequence[CardPlace] | None
    after_stop: Sequence[CardPlace] | None
    missing: Sequence[CardShortage]
    overfull: Sequence[BoxCards] = ()

    @property
    def places(self) -> Sequence[CardPlace]:
        """The cards that the bars show: beside the old pods if they fit so, else after these have gone."""
        return (self.beside if self.preview.answer is FitResult.FITS else None) or self.after_stop or ()


def bars_preview(box: BoxDetails, others: Iterable[BoxDetails], wanted: Limits) -> BarsPreview:
    """Return the preview of new limits with its bars.

    Raises:
        CloudError: as `preview`.
    """
    case = preview_case(box, others, wanted)
    found = preview_of(case, wanted)
    if found.pods is not PodChange.NEW:
        return _kept(case, found, wanted)
    beside = planned_pods(case.change, beside_old=True) if found.fits else None
    after_stop = planned_pods(case.change, beside_old=False) if found.fits else None
    pods = beside if found.answer is FitResult.FITS else after_stop
    before = [cards_of(one) for one in case.reports]
    missing = () if found.fits else shortages(case.change)
    return BarsPreview(
        preview=found,
        before=before,
        after=before if pods is None else _after(case, wanted, pods),
        beside=_places(case, beside),
        after_stop=_places(case, after_stop),
        missing=missing,
        overfull=_overfull(case, wanted, missing) if wanted.core < CORE_PER_CARD else (),
    )


def _kept(case: PreviewCase, found: Preview, wanted: Limits) -> BarsPreview:
    """Return the bars where the app's pods stay: on their cards, with their units, perhaps held to fewer."""
    before = [cards_of(one) for one in case.reports]
    shares = [(node, card) for node, card, piece in _own_pieces(case, before) if piece.container == wanted.container]
    return BarsPreview(
        preview=found,
        before=before,
        after=[_with_held(one, case.own, wanted, found.pods) for one in before],
        beside=tuple(dict.fromkeys(CardPlace(node, card.label or card.uuid) for node, card in shares)),
        after_stop=None,
        missing=(),
    )


def _own_pieces(case: PreviewCase, boxes: Iterable[BoxCards]) -> Iterator[tuple[str, CardBar, CardPiece]]:
    """Yield the pieces of an app's pods, each with its node and its card."""
    for cards in boxes:
        for card in cards.cards:
            yield from ((cards.node, card, piece) for piece in card.pieces if piece.uid in case.own)


def _with_held(cards: BoxCards, own: Mapping[str, PodAlloc], wanted: Limits, change: PodChange) -> BoxCards:
    def held(piece: CardPiece) -> CardPiece:
        if piece.uid not in own or piece.container != wanted.container:
            return piece
        fewer = change is PodChange.HELD and wanted.memory_units < piece.asked_units
        return replace(_marked(piece, wanted.app), live_units=wanted.memory_units if fewer else None)

    bars = (replace(card, pieces=tuple(held(piece) for piece in card.pieces)) for card in cards.cards)
    return replace(cards, cards=tuple(bars))


def _places(case: PreviewCase, pods: Sequence[PlannedPod] | None) -> Sequence[CardPlace] | None:
    """Return the cards of pods, each once, in the order in which they are placed."""
    if pods is None:
        return None
    labels = {card.uuid: card.label for one in case.reports for card in one.inventory.cards}
    shares = ((pod.node, one.share.card) for pod in pods for one in pod.shares)
    return tuple(dict.fromkeys(CardPlace(node, labels.get(card, card)) for node, card in shares))


def _after(case: PreviewCase, wanted: Limits, pods: Sequence[PlannedPod]) -> list[BoxCards]:
    """Return the cards once the app's pods are the new ones; each stands on the bar where an old one stood."""
    old = sorted(case.own)
    made: dict[str, dict[str, PodAlloc]] = {}
    for number, pod in enumerate(pods):
        uid = old[number] if number < len(old) else f"new-{number}"
        made.setdefault(pod.node, {})[uid] = _new_pod(case.own.get(uid), wanted, pod)
    return [_with_pods(one, case.own, made.get(one.inventory.node, {}), wanted.app) for one in case.reports]


def _overfull(case: PreviewCase, wanted: Limits, missing: Sequence[CardShortage]) -> list[BoxCards]:
    """Return the cards without the app's own pods, and with the new share on each card that lacks something."""
    name = next((case.own[uid].name for uid in sorted(case.own)), f"{wanted.app}-0")
    made: dict[str, dict[str, PodAlloc]] = {}
    for one in missing:
        if one.missing_units or one.missing_core:
            piece = CardShare(
                container=wanted.container, card=one.uuid, memory_units=wanted.memory_units, core=wanted.core
            )
            pod = _planned_pod(wanted, name, (piece,))
            made.setdefault(one.node, {})[f"~{one.uuid}"] = pod  # the last on its bar: what lies beyond the end is its
    if not made:
        return []
    return [_with_pods(one, case.own, made.get(one.inventory.node, {}), wanted.app) for one in case.reports]


def _new_pod(old: PodAlloc | None, wanted: Limits, pod: PlannedPod) -> PodAlloc:
    pieces = tuple(
        CardShare(
            container=one.container, card=one.share.card, memory_units=one.share.memory_units, core=one.share.core
        )
        for one in pod.shares
    )
    return _planned_pod(wanted, old.name if old is not None else f"{wanted.app}-0", pieces)


def _planned_pod(wanted: Limits, name: str, pieces: tuple[CardShare, ...]) -> PodAlloc:
    """Return a pod that does not exist yet: nobody checks its name, which is longer than the app's."""
    return PodAlloc.model_construct(
        namespace=wanted.namespace, name=name, phase="Planned", enforced="off", pieces=pieces
    )


def _with_pods(report: CardReports, own: Mapping[str, PodAlloc], made: Mapping[str, PodAlloc], app: str) -> BoxCards:
    """Return a box's cards without the app's own pods, and with the new ones, whose app is told by name."""
    pods = {uid: pod for uid, pod in report.pods.items() if uid not in own} | dict(made)
    now = cards_of(replace(report, pods=pods))
    cards = (
        replace(card, pieces=tuple(_marked(piece, app) if piece.uid in made else piece for piece in card.pieces))
        for card in now.cards
    )
    return replace(now, cards=tuple(cards))


def _marked(piece: CardPiece, app: str) -> CardPiece:
    return replace(piece, planned=True, app=app)
