"""The cards of a box as bars of units, each pod's piece in its place, by the box's own last reports; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from edgegpu_cloud.fleet.limits.apps import app_name
from edgegpu_cloud.fleet.reports import CardReports, LatestMessages, card_reports, read_latest
from edgegpu_cloud.store.telemetry.records import clock_shift_s
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.reasons import MPS_REASON
from edgegpu_sync.messages.telemetry import CardReport, CardSample, CardShare, MemoryUse, Metrics, PodAlloc
from edgegpu_sync.topics import TopicKind


class CardState(StrEnum):
    """Whether new pods may get a share of a card, and if not, why."""

    SHARED = "shared"
    UNHEALTHY = "unhealthy"
    EXCLUDED = "excluded"
    UNSHARED = "unshared"
    """GPU sharing is not installed."""
    GONE = "gone"
    """The box does not report the card any more, and pods still hold shares of it."""


_COUNTED = {CardState.SHARED, CardState.UNHEALTHY, CardState.EXCLUDED}
"""The states in which the box says how many units a card has."""


@dataclass(frozen=True, slots=True)
class UsedMemory:
    """The memory that processes use of a card; `memory_mib` is None where the driver does not report it."""

    processes: int
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class OtherUse:
    """The use of a card by what holds no share of it: a pod, or where `owner` is empty processes of no pod."""

    owner: str
    used: UsedMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPiece:
    """A container's share of one card, and its place on the card's two bars.

    `whole`: the container has the card alone; it takes all units and all core, whatever it asked for. `asked_units` is
    what it asked for. `enforced`: what holds the pod's containers, as the box reports it: enforced, degraded, off;
    `enforced_reason` says why it is degraded. `live_units`: the fewer units that it is held to now, None where not.
    `refusals`: at least so often its programs were told that there is no memory, since its start. `limiter`: the
    version of the limiter that it started with; empty where the box does not say.
    `planned`: a preview has put it there. `since_s`: when kubelet took the pod, seconds since 1970; None: not known.
    `given_mib` is the memory of its units, 0 where that is not known; `used` is None where it was not measured.
    """

    uid: str
    namespace: str
    pod: str
    container: str
    app: str
    phase: str
    enforced: str
    enforced_reason: str = ""
    live_units: int | None = None
    refusals: int = 0
    limiter: str = ""
    first_unit: int
    units: int
    asked_units: int
    first_core: int
    core: int
    whole: bool = False
    planned: bool = False
    since_s: int | None = None
    given_mib: int = 0
    used: UsedMemory | None = None

    @property
    def is_by_time(self) -> bool:
        """Whether it is held, and its compute by time in place of MPS."""
        return self.enforced_reason.startswith(MPS_REASON)

    @property
    def uses_too_much(self) -> bool:
        """Whether its processes use more memory than it was given."""
        used_mib = self.used.memory_mib if self.used else None
        return used_mib is not None and 0 < self.given_mib < used_mib

    @property
    def idle_units(self) -> int:
        """The units that it keeps and may not use while a live limit holds it to fewer."""
        return 0 if self.live_units is None or self.whole else max(0, self.units - self.live_units)

    @property
    def usable_mib(self) -> int:
        """What of `given_mib` it may use: less where a live limit holds it to fewer units."""
        return self.given_mib * (self.units - self.idle_units) // self.units if self.idle_units else self.given_mib

    @property
    def owner(self) -> str:
        """The pod and the container: NAMESPACE/POD/CONTAINER."""
        return f"{self.namespace}/{self.pod}/{self.container}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardBar:
    """A card as a bar of units, and a second one of core.

    `units` are those that the card offers, or would offer where it is excluded; 0 where that is not known.
    `too_many_units` and `too_much_core`: what pods hold beyond what the card has. `sample` is the last measurement,
    taken `sample_at` by the box's clock (seconds since 1970). The memory use of pieces and `others` was measured at
    `use_at_s`, by the controller's clock; None: it was not.
    """

    uuid: str
    label: str
    name: str
    memory_mib: int
    unit_mib: int
    state: CardState
    text: str
    units: int
    pieces: tuple[CardPiece, ...]
    sample: CardSample | None = None
    sample_at: int | None = None
    others: tuple[OtherUse, ...] = ()
    use_at_s: float | None = None

    @property
    def held_units(self) -> int:
        """The units that pods hold."""
        return sum(piece.units for piece in self.pieces)

    @property
    def held_core(self) -> int:
        """The hundredths of compute that pods hold."""
        return sum(piece.core for piece in self.pieces)

    @property
    def free_units(self) -> int:
        """The units that a new pod may get: 0 on a card that is not shared."""
        return max(0, self.units - self.held_units) if self.state is CardState.SHARED else 0

    @property
    def free_core(self) -> int:
        """The core that a new pod may get: 0 on a card that is not shared."""
        return max(0, CORE_PER_CARD - self.held_core) if self.state is CardState.SHARED else 0

    @property
    def too_many_units(self) -> int:
        """The units that are held beyond those of the card; 0 where its units are not known."""
        return max(0, self.held_units - self.units) if self.state in _COUNTED else 0

    @property
    def too_much_core(self) -> int:
        """The core that is held beyond the card's; 0 where nothing is shared of it."""
        return max(0, self.held_core - CORE_PER_CARD) if self.state in _COUNTED else 0

    @property
    def drawn_units(self) -> int:
        """The length of the bar: the card's units, or more where more are held; never 0."""
        return max(self.units, self.held_units, 1)

    @property
    def drawn_core(self) -> int:
        """The length of the bar of core."""
        return max(CORE_PER_CARD, self.held_core)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxCards:
    """The cards of one box.

    `cards_at_s`, `pods_at_s`: when the reports of its cards and of its pods were heard, seconds since 1970; None: it
    has reported no pods yet.
    """

    node: str
    sharing: bool
    unit_mib: int
    policy: str
    driver: str
    cards: tuple[CardBar, ...]
    cards_at_s: float
    pods_at_s: float | None

    @property
    def as_of_s(self) -> float:
        """Since when cards and pods are known to be so, as `CardReports` has it."""
        return self.cards_at_s

    @property
    def newer_pods_at_s(self) -> float | None:
        """When it has reported of its pods, where that is newer than what it has reported of its cards."""
        return self.pods_at_s if self.pods_at_s is not None and self.pods_at_s > self.cards_at_s else None

    @property
    def holders(self) -> tuple[str, ...]:
        """The pods that hold shares, as NAMESPACE/POD, in order."""
        return tuple(sorted({f"{one.namespace}/{one.pod}" for card in self.cards for one in card.pieces}))

    def age_s(self, now_s: float) -> float:
        """Return how old the reports are."""
        return max(0.0, now_s - self.as_of_s)


def box_cards(latest: LatestMessages) -> BoxCards | None:
    """Return the cards of a box; None before it has reported them."""
    reports = card_reports(latest)
    if reports is None:
        return None
    metrics: Metrics | None = read_latest(latest, TopicKind.METRICS)
    cards = with_samples(cards_of(reports), metrics)
    return cards if metrics is None else _with_use(cards, metrics, reports.pods, latest[TopicKind.METRICS].at_s)


def cards_of(reports: CardReports) -> BoxCards:
    """Return a box's cards as its reports have them; cards that pods hold and the box does not report come last."""
    inventory = reports.inventory
    known = {card.uuid for card in inventory.cards}
    held = shares_by_card(reports.pods)
    bars = [
        _bar(card, held.get(card.uuid, ()), unit_mib=inventory.unit_mib, sharing=inventory.sharing)
        for card in inventory.cards
    ]
    bars += [_gone(uuid, shares, inventory.unit_mib) for uuid, shares in sorted(held.items()) if uuid not in known]
    return BoxCards(
        node=inventory.node,
        sharing=inventory.sharing,
        unit_mib=inventory.unit_mib,
        policy=inventory.policy,
        driver=inventory.driver,
        cards=tuple(bars),
        cards_at_s=reports.cards_at_s,
        pods_at_s=reports.pods_at_s,
    )


@dataclass(frozen=True, slots=True)
class HeldShare:
    """A container's share of a card, with its pod."""

    uid: str
    pod: PodAlloc
    share: CardShare


def shares_by_card(pods: Mapping[str, PodAlloc]) -> dict[str, list[HeldShare]]:
    """Return the shares of each card by its UUID, ordered by the pods' uid, so that a bar keeps its order."""
    found: dict[str, list[HeldShare]] = {}
    for uid, pod in sorted(pods.items()):
        for share in pod.pieces:
            found.setdefault(share.card, []).append(HeldShare(uid, pod, share))
    return found


def with_samples(cards: BoxCards, metrics: Metrics | None) -> BoxCards:
    """Return the cards with their last measurements, each from the newest sample that has it."""
    if metrics is None:
        return cards
    newest = {
        one.uuid: (sample.at, one)
        for sample in sorted(metrics.samples, key=lambda sample: sample.at)
        for one in sample.cards
    }
    bars = (
        replace(card, sample_at=newest[card.uuid][0], sample=newest[card.uuid][1]) if card.uuid in newest else card
        for card in cards.cards
    )
    return replace(cards, cards=tuple(bars))


def _with_use(cards: BoxCards, metrics: Metrics, pods: Mapping[str, PodAlloc], heard_s: float) -> BoxCards:
    """Return the cards with the memory use of the newest sample that has it, as heard at `heard_s`."""
    newest = max((one for one in metrics.samples if one.memory_use is not None), key=lambda one: one.at, default=None)
    if newest is None or newest.memory_use is None:
        return cards
    at_s = newest.at + clock_shift_s(metrics, heard_s)
    return replace(cards, cards=tuple(_bar_with_use(card, newest.memory_use, pods, at_s) for card in cards.cards))


def _bar_with_use(card: CardBar, uses: Iterable[MemoryUse], pods: Mapping[str, PodAlloc], at_s: float) -> CardBar:
    here = {(one.uid, one.container): one for one in uses if one.card == card.uuid}
    if not here:
        return card
    pieces = tuple(_piece_with_use(piece, card, here.pop((piece.uid, piece.container), None)) for piece in card.pieces)
    others = tuple(OtherUse(_owner(one, pods), _used(one)) for one in here.values() if one.processes)
    return replace(card, pieces=pieces, others=others, use_at_s=at_s)


def _piece_with_use(piece: CardPiece, card: CardBar, use: MemoryUse | None) -> CardPiece:
    given_mib = card.memory_mib if piece.whole else piece.units * card.unit_mib
    return replace(piece, given_mib=given_mib, used=None if use is None else _used(use))


def _used(use: MemoryUse) -> UsedMemory:
    return UsedMemory(use.processes, use.memory_mib)


def _owner(use: MemoryUse, pods: Mapping[str, PodAlloc]) -> str:
    """Return the name of a pod without a share of the card; its UID where the box does not report the pod."""
    if use.uid is None:
        return ""
    pod = pods.get(use.uid)
    return use.uid if pod is None else f"{pod.namespace}/{pod.name}"


def _bar(card: CardReport, held: Iterable[HeldShare], *, unit_mib: int, sharing: bool) -> CardBar:
    units = card.units or (card.memory_mib // unit_mib if unit_mib else 0)
    return CardBar(
        uuid=card.uuid,
        label=card.label,
        name=card.name,
        memory_mib=card.memory_mib,
        unit_mib=unit_mib,
        state=_state(card, sharing=sharing),
        text=card.text,
        units=units,
        pieces=pieces_in_place(held, units),
    )


def _state(card: CardReport, *, sharing: bool) -> CardState:
    if card.excluded:
        return CardState.EXCLUDED
    if not card.healthy:
        return CardState.UNHEALTHY
    return CardState.SHARED if sharing else CardState.UNSHARED


def _gone(uuid: str, held: Iterable[HeldShare], unit_mib: int) -> CardBar:
    return CardBar(
        uuid=uuid,
        label="",
        name="",
        memory_mib=0,
        unit_mib=unit_mib,
        state=CardState.GONE,
        text="",
        units=0,
        pieces=pieces_in_place(held, 0),
    )


def pieces_in_place(held: Iterable[HeldShare], card_units: int) -> tuple[CardPiece, ...]:
    """Return shares of one card one beside the other, in the order given.

    Args:
        held: the shares.
        card_units: the card's units, all of which a container with the whole card takes.
    """
    pieces: list[CardPiece] = []
    unit = core = 0
    for one in held:
        whole = one.share.core >= CORE_PER_CARD
        piece = CardPiece(
            uid=one.uid,
            namespace=one.pod.namespace,
            pod=one.pod.name,
            container=one.share.container,
            app=app_name(one.pod.name),
            phase=one.pod.phase,
            enforced=one.pod.enforced,
            enforced_reason=one.pod.enforced_reason or "",
            live_units=one.share.live_units,
            refusals=one.share.refusals,
            limiter=one.share.limiter or "",
            first_unit=unit,
            units=max(card_units, one.share.memory_units) if whole else one.share.memory_units,
            asked_units=one.share.memory_units,
            first_core=core,
            core=min(one.share.core, CORE_PER_CARD),
            whole=whole,
            since_s=one.pod.started_at,
        )
        pieces.append(piece)
        unit, core = unit + piece.units, core + piece.core
    return tuple(pieces)
