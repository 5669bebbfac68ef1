"""The use of a box's cards over time, from quarters of an hour."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.telemetry.records import QUARTER_S, CardUse
from edgegpu_sync.ids import DeviceId

_HOUR_S, _DAY_S = 3_600, 86_400


class UseRange(StrEnum):
    """How far back the use of cards is looked at."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"

    @property
    def length_s(self) -> int:
        """Its length in seconds."""
        return {UseRange.HOUR: _HOUR_S, UseRange.DAY: _DAY_S, UseRange.WEEK: 7 * _DAY_S}[self]

    @property
    def step_s(self) -> int:
        """The seconds of one point of a drawing: at most 100 points in all."""
        return 2 * _HOUR_S if self is UseRange.WEEK else QUARTER_S

    @property
    def row_s(self) -> int:
        """The seconds of one row of a table: at most 28 rows in all."""
        return {UseRange.HOUR: QUARTER_S, UseRange.DAY: _HOUR_S, UseRange.WEEK: 6 * _HOUR_S}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsePoint:
    """The use of a card in the step that began `at_s` (seconds since 1970): core 0 to 100, memory MiB."""

    at_s: int
    core_mean: float
    core_max: float
    memory_mean_mib: float
    memory_max_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSeries:
    """The use of one card from `since_s` to `until_s` in steps of `step_s`, oldest first.

    A step without a sample has no point. The last step goes on: its numbers still change.
    """

    card: str
    since_s: int
    until_s: int
    step_s: int
    points: Sequence[UsePoint]

    @property
    def places(self) -> int:
        """The number of steps from `since_s` to `until_s`: the width of a drawing of one column each."""
        return (self.until_s - self.since_s) // self.step_s

    def place_of(self, point: UsePoint) -> int:
        """Return the number of a point's step, from 0."""
        return (point.at_s - self.since_s) // self.step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CardHistory:
    """The use of one card over a range: in fine steps to be drawn, and in coarse ones to be read."""

    drawn: CardSeries
    rows: CardSeries


def card_histories(
    tx: Transaction, device: DeviceId, use_range: UseRange, *, now_s: float
) -> Mapping[str, CardHistory]:
    """Return the use of a box's cards over a range that ends now, by the card's UUID; none of cards without any."""
    fine_s, coarse_s = use_range.step_s, use_range.row_s
    uses: defaultdict[str, list[CardUse]] = defaultdict(list)
    since_s = min(_end_s(now_s, step_s) for step_s in (fine_s, coarse_s)) - use_range.length_s
    for use in tx.telemetry.use(device, since_s=since_s):
        if use.quarter_s < _end_s(now_s, QUARTER_S):
            uses[use.card].append(use)
    return {
        card: CardHistory(
            drawn=_series(card, some, use_range, step_s=fine_s, now_s=now_s),
            rows=_series(card, some, use_range, step_s=coarse_s, now_s=now_s),
        )
        for card, some in uses.items()
    }


def _end_s(now_s: float, step_s: int) -> int:
    """Return the end of the step that goes on."""
    return int(now_s) - int(now_s) % step_s + step_s


def _series(card: str, uses: Iterable[CardUse], use_range: UseRange, *, step_s: int, now_s: float) -> CardSeries:
    until_s = _end_s(now_s, step_s)
    since_s = until_s - use_range.length_s
    steps: dict[int, CardUse] = {}
    for use in uses:
        at_s = use.quarter_s - use.quarter_s % step_s
        if since_s <= at_s:
            steps[at_s] = steps[at_s].plus(use) if at_s in steps else use
    points = tuple(_point(at_s, steps[at_s]) for at_s in sorted(steps))
    return CardSeries(card=card, since_s=since_s, until_s=until_s, step_s=step_s, points=points)


def _point(at_s: int, use: CardUse) -> UsePoint:
    return UsePoint(
        at_s=at_s,
        core_mean=use.core_mean,
        core_max=use.core_max,
        memory_mean_mib=use.memory_mean_mib,
        memory_max_mib=use.memory_max_mib,
    )
