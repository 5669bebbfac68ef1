"""One box: its cards as bars, what was asked of it and what came of it, its commands, health and events."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.bars import UseChart, core_chart, measured_line, memory_chart, tones_of
from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.console.pages.evidence import VisitorEvidence, evidence_values
from edgegpu_cloud.console.visitor import Operator
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.card_views import CardBar, CardPiece, box_cards
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.history.metrics import CardHistory, UseRange
from edgegpu_cloud.fleet.operations.effects import CONFIRMED_OPS, effects_of
from edgegpu_cloud.fleet.reports import pending_of, read_latest
from edgegpu_cloud.fleet.views import BoxDetails, CommandView
from edgegpu_cloud.phrases import phrase
from edgegpu_sync.messages.telemetry import BoxHealth
from edgegpu_sync.topics import TopicKind

router = APIRouter()

COMMANDS, EVENTS, REQUESTS = 20, 30, 20
"""How many the page shows at a time."""

OLD_S = 900.0
"""Reports that are older than this are marked: a box reports every ten minutes."""

DOCTOR = "doctor.run"
BUTTONS = ("inventory.refresh", DOCTOR, "plugin.restart", "k3s.restart")
"""The commands that the page has a button for; the others need arguments."""

SOURCES = {"plugin": ("bad",), "kubelet": ("warn", "bad"), "api": ("warn", "bad")}
"""The parts of a box from which it knows of cards and pods, with the states in which they do not answer."""

_PARTS = {"cards": "cards_now", "use": "use"}
"""The parts of the page that ask for themselves every minute, and their blocks: what was measured is no news."""

Device = Annotated[str, Path(min_length=1, max_length=253)]


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """Something that is not well on a box, and what mends it; `broken`: it does not work, else it is a warning."""

    name: str
    text: str
    remedy: str
    broken: bool


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What the doctor found: `level` is its own word for all; `at_s`: when, seconds since 1970.

    `unnamed`: how many checks found something, where the answer had no room for them.
    """

    level: str
    findings: Sequence[DoctorFinding]
    unnamed: int
    at_s: float


class BoxPageQuery(BaseModel):
    """What of a box's page is chosen by its address: the range of the use of its cards, and the page of each list.

    `before`: the id of the command before which the page begins. `events`: the number of an event, likewise. `changes`:
    the place from which on changes of the machine are shown. `requests`: how many requests come before. Empty or 0:
    from the beginning.
    """

    model_config = ConfigDict(frozen=True)

    use: UseRange = UseRange.DAY
    before: Annotated[str, Field(max_length=40)] = ""
    events: Annotated[int, Field(ge=0, le=2**53)] = 0
    changes: Annotated[str, Field(max_length=40)] = ""
    requests: Annotated[int, Field(ge=0, le=100_000)] = 0


@dataclass(frozen=True, slots=True)
class BoxPageView:
    """A box's page, as its address has chosen it."""

    device: str
    query: BoxPageQuery

    @property
    def here(self) -> str:
        """The address of this view."""
        return self.url()

    def url(self, **changes: object) -> str:
        """Return the address of the page with something else chosen."""
        chosen = BoxPageQuery.model_validate({**self.query.model_dump(), **changes})
        query = urlencode(chosen.model_dump(mode="json", exclude_defaults=True))
        return f"/boxes/{self.device}{f'?{query}' if query else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUseFigure:
    """The use of one card over time with its drawings; `card` is None where the box does not have it any more."""

    uuid: str
    card: CardBar | None
    history: CardHistory
    core: UseChart
    memory: UseChart


@router.get("/boxes/{device}")
def box_page(
    request: Request,
    device: Device,
    fleet: VisitorFleet,
    evidence: VisitorEvidence,
    pages: Pages,
    query: Annotated[BoxPageQuery, Query()],
) -> Response:
    """Show a box; a name leads to the page of its device id."""
    details = fleet.details(device)
    view = BoxPageView(details.box.device, query.model_copy(update={"before": query.before.replace("\0", "")}))
    if details.box.device != device:
        return RedirectResponse(view.here, 303)
    block = _PARTS.get(request.headers.get("hx-target", ""), "live")
    values = box_values(fleet, details, view) | evidence_values(evidence.of_box(device), pages.words(request))
    return pages.page(request, "box.html", values, block=block)


def box_values(fleet: Fleet, details: BoxDetails, view: BoxPageView) -> dict[str, Any]:
    """Return what the page of a box shows."""
    box = details.box
    cards = box_cards(details.latest)
    metrics = read_latest(details.latest, TopicKind.METRICS)
    health: BoxHealth | None = read_latest(details.latest, TopicKind.HEALTH)
    histories, query = fleet.histories, view.query
    history = histories.commands(box.device, limit=COMMANDS, before=query.before)
    return {
        "box": box,
        "details": details,
        "cards": cards,
        "pending": pending_of(details.latest),
        "old_s": OLD_S,
        "tone": tones_of(cards.cards if cards else ()),
        "lines": {card.uuid: measured_line(metrics, card) for card in cards.cards} if cards else {},
        "view": view,
        "use": _use(fleet, view, cards.cards if cards else ()),
        "use_ranges": tuple(UseRange),
        "measured_at_s": details.latest[TopicKind.METRICS].at_s if metrics else None,
        "health": health,
        "silent": [part for part in health.parts if part.state in SOURCES.get(part.name, ())] if health else [],
        "health_at_s": details.latest[TopicKind.HEALTH].at_s if TopicKind.HEALTH in details.latest else None,
        "requests": histories.requests(box.device, limit=REQUESTS, offset=query.requests),
        "changes": histories.changes(box.device, after=query.changes),
        "history": history,
        "doctor": _doctor(history.doctor),
        "doctor_runs": any(one.command.op == DOCTOR and not one.command.ended for one in history.commands),
        "events": histories.events(box.device, limit=EVENTS, before=query.events, transactions=False),
        "buttons": BUTTONS,
        "editor": _editor(box.device),
    }


def _use(fleet: Fleet, view: BoxPageView, cards: Sequence[CardBar]) -> list[CardUseFigure]:
    """Return a figure of each card that was measured: those that the box has, then those that went."""
    histories, known = fleet.card_use(view.device, view.query.use), {card.uuid: card for card in cards}
    uuids = [*(uuid for uuid in known if uuid in histories), *sorted(set(histories).difference(known))]
    return [_figure(uuid, histories[uuid], known.get(uuid)) for uuid in uuids]


def _figure(uuid: str, history: CardHistory, card: CardBar | None) -> CardUseFigure:
    most_mib = max((one.memory_max_mib for one in history.drawn.points), default=0)
    memory_mib = card.memory_mib if card is not None and card.memory_mib else most_mib
    return CardUseFigure(
        uuid=uuid,
        card=card,
        history=history,
        core=core_chart(history.drawn),
        memory=memory_chart(history.drawn, memory_mib),
    )


def _doctor(command: CommandView | None) -> DoctorReport | None:
    """Read a doctor's result, whose fields are the box's own and may be anything."""
    if command is None or command.data is None:
        return None
    rows = command.data.get("troubled")
    findings = [
        DoctorFinding(
            name=str(row.get("name", "")),
            text=str(row.get("text", "")),
            remedy=str(row.get("remedy", "")),
            broken=row.get("level") == "broken",
        )
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict)
    ]
    unnamed = rows if isinstance(rows, int) and rows > 0 else 0
    return DoctorReport(str(command.data.get("level", "")), findings, unnamed, command.ended_at_s or 0.0)


def _editor(device: str) -> Callable[[CardPiece], str]:
    """Return the function that makes the address of the limit editor for a piece."""
    return lambda piece: f"/boxes/{device}/limits/{piece.namespace}/{piece.app}/{piece.container}"


@router.get("/boxes/{device}/confirm")
def confirm_page(
    request: Request,
    device: Device,
    _: Operator,
    fleet: VisitorFleet,
    pages: Pages,
    op: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """Show what an op does on a box that is confirmed before it is sent."""
    details = fleet.details(device)
    if op not in CONFIRMED_OPS:
        raise CloudError(
            phrase("cannot ask %(box)s for %(op)r here", box=details.box.name, op=op),
            remedy=phrase("there are %(buttons)s", buttons=", ".join(CONFIRMED_OPS)),
        )
    cards = box_cards(details.latest)
    values = {
        "box": details.box,
        "op": op,
        "effects": effects_of(op),
        "cards": cards,
        "holders": cards.holders if cards else (),
    }
    return pages.page(request, "confirm.html", values)


@router.post("/boxes/{device}/commands")
def ask_command(
    device: Device,
    _: Operator,
    fleet: VisitorFleet,
    *,
    op: Annotated[str, Form(max_length=80)] = "",
    confirmed: Annotated[str, Form(max_length=8)] = "",
) -> Response:
    """Queue a command that needs no arguments; one that harms is confirmed on a page of its own."""
    box = fleet.box(device)
    if op in CONFIRMED_OPS and op in BUTTONS and not confirmed:
        return RedirectResponse(f"/boxes/{box.device}/confirm?op={op}", 303)
    if op not in BUTTONS:
        raise CloudError(
            phrase("cannot ask %(box)s for %(op)r here", box=box.name, op=op),
            remedy=phrase("there are %(buttons)s", buttons=", ".join(BUTTONS)),
        )
    fleet.command(box.device, op, {})
    return RedirectResponse(f"/boxes/{box.device}#{'health' if op == DOCTOR else 'commands'}", 303)


@router.post("/boxes/{device}/commands/{command}/cancel")
def cancel_command(
    device: Device, command: Annotated[str, Path(max_length=40)], _: Operator, fleet: VisitorFleet
) -> Response:
    """Leave a command no time to begin."""
    box = fleet.box(device)
    fleet.cancel(command)
    return RedirectResponse(f"/boxes/{box.device}#commands", 303)
