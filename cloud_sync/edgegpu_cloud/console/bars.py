"""Bars of cards and lines of measurements as numbers for SVG attributes: the policy of the console allows no styles."""

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgegpu_cloud.fleet.card_views import CardBar, CardPiece
from edgegpu_cloud.fleet.history.metrics import CardSeries
from edgegpu_sync.messages.telemetry import CardSample, Metrics

UNIT_WIDTH, CORE_WIDTH = 10, 10
"""The width of one unit, and of one hundredth, in the coordinates of the drawing."""

TONES = 8
"""Colours of apps in the style sheet: `tone-0` and so on."""

_MOST_TICKS = 128
_LINE_WIDTH, _LINE_HEIGHT = 300, 40
_NO_ID = re.compile(r"[^A-Za-z0-9-]")


def tone(namespace: str, app: str) -> int:
    """Return the colour of an app, the same on all cards and boxes."""
    return zlib.crc32(f"{namespace}/{app}".encode()) % TONES


def tones_of(cards: Iterable[CardBar]) -> Callable[[str, str], int]:
    """Return what gives the apps on these cards their colours: no two the same while there are colours left."""
    tones: dict[tuple[str, str], int] = {}
    for app in sorted({(piece.namespace, piece.app) for card in cards for piece in card.pieces}):
        wanted = [(tone(*app) + step) % TONES for step in range(TONES)]
        tones[app] = next((one for one in wanted if one not in tones.values()), wanted[0])
    return lambda namespace, app: tones.get((namespace, app), tone(namespace, app))


def ticks(units: int, height: int) -> str:
    """Return a path with a line between two units, or at every eighth on a card of many units.

    A box may say of a card what no card has: of so many units there are no more lines than of the largest.
    """
    step = 1 if units <= _MOST_TICKS else max(8, -(-units // _MOST_TICKS))
    return "".join(f"M{at * UNIT_WIDTH} 0v{height}" for at in range(step, units, step))


def piece_id(piece: CardPiece, card: CardBar, prefix: str) -> str:
    """Return an id for a piece that is the same when the page is drawn again."""
    return _NO_ID.sub("-", f"{prefix}-{piece.uid}-{piece.container}-{card.uuid}")


def card_id(uuid: str) -> str:
    """Return the id of a card on its box's page."""
    return _NO_ID.sub("-", f"card-{uuid}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLine:
    """The measurements of a card as two lines, oldest first; `points` are those of an SVG polyline."""

    core_points: str
    memory_points: str
    first_at: int
    last_at: int
    samples: int
    last: CardSample

    @property
    def view_box(self) -> str:
        """The coordinates of the drawing."""
        return f"0 0 {_LINE_WIDTH} {_LINE_HEIGHT}"


def measured_line(metrics: Metrics | None, card: CardBar) -> MeasuredLine | None:
    """Return the measurements of a card in a message; None where there are none."""
    found = [
        (sample.at, one)
        for sample in sorted(metrics.samples if metrics else (), key=lambda sample: sample.at)
        for one in sample.cards
        if one.uuid == card.uuid
    ]
    if not found:
        return None
    return MeasuredLine(
        core_points=_points([one.core_used / 100 for _, one in found]),
        memory_points=_points([one.memory_used_mib / max(1, card.memory_mib) for _, one in found]),
        first_at=found[0][0],
        last_at=found[-1][0],
        samples=len(found),
        last=found[-1][1],
    )


USE_COLUMN, USE_HEIGHT = 10, 100
"""The width of one step of a card's history, and the height of all of a card, in the coordinates of the drawing."""


@dataclass(frozen=True, slots=True)
class UseChart:
    """The history of a card as a drawing: the most of each step as an area, the means as a line; paths of SVG."""

    area: str
    line: str
    width: int

    @property
    def view_box(self) -> str:
        """The coordinates of the drawing."""
        return f"0 0 {self.width} {USE_HEIGHT}"


def core_chart(series: CardSeries) -> UseChart:
    """Return the drawing of a card's compute."""
    steps = [(series.place_of(one), one.core_mean / 100, one.core_max / 100) for one in series.points]
    return _chart(steps, series.places)


def memory_chart(series: CardSeries, memory_mib: int) -> UseChart:
    """Return the drawing of the memory of a card that has `memory_mib` of it."""
    whole = max(1, memory_mib)
    steps = [(series.place_of(one), one.memory_mean_mib / whole, one.memory_max_mib / whole) for one in series.points]
    return _chart(steps, series.places)


def _chart(steps: Iterable[tuple[int, float, float]], places: int) -> UseChart:
    """Draw steps of (place, mean, most), means and mosts of 0 to 1; a step without a measurement is a gap."""
    area, line, before = "", "", -2
    for place, mean, most in steps:
        x, end = place * USE_COLUMN, (place + 1) * USE_COLUMN
        line += f"{'L' if place == before + 1 else 'M'}{x} {_height(mean)}H{end}"
        area += f"M{x} {USE_HEIGHT}V{_height(most)}H{end}V{USE_HEIGHT}z"
        before = place
    return UseChart(area, line, places * USE_COLUMN)


def _height(share: float) -> float:
    return round(USE_HEIGHT * (1 - min(1.0, max(0.0, share))), 1)


def _points(shares: Sequence[float]) -> str:
    """Return points for shares of 0 to 1; a single one becomes a level line."""
    values = [*shares, shares[0]] if len(shares) == 1 else shares
    step = _LINE_WIDTH / (len(values) - 1)
    return " ".join(
        f"{at * step:.1f},{_LINE_HEIGHT * (1 - min(1.0, max(0.0, value))):.1f}" for at, value in enumerate(values)
    )


DRAWING: Mapping[str, Callable[..., object]] = {
    "tone": tone,
    "ticks": ticks,
    "piece_id": piece_id,
    "card_id": card_id,
}
"""What the templates draw with, by the names that they use."""
