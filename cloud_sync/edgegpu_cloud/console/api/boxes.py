"""Boxes: the list, one of them with its cards and pods, its name and labels, its end."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from edgegpu_cloud.console.api.access import ApiAdmin, ApiFleet, ApiOperator, ApiVisitor
from edgegpu_cloud.console.api.conditions import MOST_ITEMS, IfNoneMatch, page_with, tagged
from edgegpu_cloud.console.api.idempotency import Once
from edgegpu_cloud.console.api.models.fleet import (
    MOST_UNITS,
    ApiBox,
    ApiBoxChange,
    ApiBoxSummary,
    ApiCard,
    ApiCards,
    ApiClusterDecision,
    ApiConfirmation,
    ApiItemReport,
    ApiModel,
    ApiPage,
    ApiPiece,
    ApiPod,
    ApiUsedMemory,
    ApiVisitorView,
)
from edgegpu_cloud.console.api.models.pending import ApiPending, api_pending
from edgegpu_cloud.console.api.problems import ApiRequestError
from edgegpu_cloud.fleet.card_views import BoxCards, CardBar, box_cards
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter, PageOrder
from edgegpu_cloud.fleet.reports import pending_of
from edgegpu_cloud.fleet.selectors import read_labels
from edgegpu_cloud.fleet.views import BoxView
from edgegpu_cloud.store.summaries.box_list import BoxSort, ListedBox, shown_health
from edgegpu_sync.messages.uplink import ItemReport

router = APIRouter(tags=["boxes"])

Words = Annotated[str, Field(max_length=500)]


class BoxesQuery(ApiModel):
    """The boxes that are asked for; what is left out does not count."""

    labels: Words = Field(default="", description="A selector over labels, as kubectl has it: site=hall,rack!=3.")
    search: Words = Field(default="", description="Looked for in names, hosts, labels and apps.")
    app: Words = Field(default="", description="NAMESPACE/APP.")
    health: Literal["", "ok", "warn", "bad", "unknown"] = ""
    agent: Annotated[str, Field(max_length=100)] = ""
    connected: bool | None = None
    problems: bool = False
    waiting: bool = False
    free_units: Annotated[int, Field(ge=0, le=MOST_UNITS)] = 0
    sort: BoxSort = BoxSort.NAME
    limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 50
    cursor: Annotated[str, Field(max_length=1_000, description="From `next` of the part before.")] = ""

    def filter(self) -> BoxFilter:
        """Return the fleet's filter."""
        return BoxFilter(
            selector=self.labels,
            search=self.search,
            app=self.app,
            health=frozenset({self.health} - {""}),
            agent=self.agent,
            connected=self.connected,
            problems=self.problems,
            waiting=self.waiting,
            free_units=self.free_units,
        )


@router.get("/me")
def me(visitor: ApiVisitor) -> ApiVisitorView:
    """Return who sends this request."""
    return ApiVisitorView(name=visitor.name, role=visitor.role.value, scope=visitor.scope)


@router.get("/boxes")
def list_boxes(
    request: Request,
    fleet: ApiFleet,
    where: Annotated[BoxesQuery, Query()],
) -> ApiPage[ApiBoxSummary]:
    """Return boxes, sorted by name unless `sort` says otherwise."""
    found = fleet.page(where.filter(), PageOrder(sort=where.sort, limit=where.limit, cursor=where.cursor))
    return page_with(request, [_summary(one) for one in found.boxes], found.next)


def _summary(one: ListedBox) -> ApiBoxSummary:
    return ApiBoxSummary(
        device=one.device,
        name=one.name,
        host=one.host,
        labels=dict(one.labels),
        state=one.state.value,
        connected=one.connected,
        health=one.health,
        restored=one.restored,
        seen_at_s=one.seen_at_s,
        cards=one.summary.cards,
        units=one.summary.units,
        free_units=one.summary.free_units,
        sharing=one.summary.sharing,
        problems=one.summary.problems,
        waiting=one.summary.waiting,
        cluster=one.summary.cluster,
        agent=one.summary.agent,
    )


@router.get("/boxes/{box}", response_model=ApiBox)
def one_box(box: str, fleet: ApiFleet, if_none_match: IfNoneMatch = "") -> Response:
    """Return a box by its id or its name."""
    return tagged(box_body(fleet.box(box)), if_none_match)


def box_body(view: BoxView) -> ApiBox:
    """Return the body of a box."""
    return ApiBox(
        device=view.device,
        name=view.name,
        host=view.host,
        labels=dict(view.labels),
        state=view.state.value,
        connected=view.online,
        health=shown_health(view.health, connected=view.online),
        restored=view.restored,
        seen_at_s=view.seen_at_s,
        enrolled_at_s=view.enrolled_at_s,
        revision=view.rev,
        applied_revision=view.applied_rev,
        open_commands=view.open_commands,
        waiting=view.waiting,
        problems=view.problems,
        cluster=view.cluster,
        claim=view.claim,
        versions=dict(view.versions),
        capabilities=list(view.capabilities),
        items={name: item_body(one) for name, one in view.items.items()},
    )


def item_body(one: ItemReport) -> ApiItemReport:
    """Return the body of what became of a request."""
    return ApiItemReport(state=str(one.state), code=one.code or "", text=one.text or "")


@router.patch("/boxes/{box}", response_model=ApiBox)
def change_box(box: str, body: ApiBoxChange, _: ApiOperator, fleet: ApiFleet, once: Once) -> Response:
    """Change a box's name, labels or both: all or nothing."""
    return once(lambda: _changed(fleet, box, body))


def _changed(fleet: Fleet, box: str, body: ApiBoxChange) -> ApiBox:
    device = fleet.box(box).device
    words = [f"{key}-" if value is None else f"{key}={value}" for key, value in (body.labels or {}).items()]
    fleet.change_box(device, name=body.name, labels=read_labels(words))
    return box_body(fleet.box(device))


@router.get("/boxes/{box}/cards", response_model=ApiCards)
def cards(box: str, fleet: ApiFleet, if_none_match: IfNoneMatch = "") -> Response:
    """Return the cards of a box, each with the shares that containers hold in their places."""
    found = box_cards(fleet.details(box).latest)
    if found is None:
        return tagged(
            ApiCards(sharing=False, policy="", driver="", as_of_s=0, cards_at_s=None, pods_at_s=None, cards=[]),
            if_none_match,
        )
    body = ApiCards(
        sharing=found.sharing,
        policy=found.policy,
        driver=found.driver,
        as_of_s=found.as_of_s,
        cards_at_s=found.cards_at_s,
        pods_at_s=found.pods_at_s,
        cards=[_card(card) for card in found.cards],
    )
    return tagged(body, if_none_match)


def _card(card: CardBar) -> ApiCard:
    pieces = [
        ApiPiece.model_validate({name: getattr(one, name) for name in ApiPiece.model_fields}) for one in card.pieces
    ]
    return ApiCard.model_validate(
        {name: getattr(card, name) for name in ApiCard.model_fields if name != "pieces"} | {"pieces": pieces}
    )


@router.get("/boxes/{box}/pods")
def pods(box: str, fleet: ApiFleet) -> list[ApiPod]:
    """Return the containers that hold shares of the box's cards."""
    found = box_cards(fleet.details(box).latest)
    return [] if found is None else _pods(found)


def _pods(found: BoxCards) -> list[ApiPod]:
    return [
        ApiPod(
            namespace=piece.namespace,
            pod=piece.pod,
            container=piece.container,
            app=piece.app,
            card=card.uuid,
            units=piece.units,
            core=piece.core,
            given_mib=piece.given_mib,
            used=ApiUsedMemory.model_validate(piece.used) if piece.used else None,
            uses_too_much=piece.uses_too_much,
            use_at_s=card.use_at_s,
        )
        for card in found.cards
        for piece in card.pieces
    ]


@router.get("/boxes/{box}/pending")
def pending(box: str, fleet: ApiFleet) -> ApiPending:
    """Return the pods without a card that a box has reported, with what each asks for and why it has none."""
    return api_pending(pending_of(fleet.details(box).latest))


@router.post("/boxes/{box}/confirm", response_model=ApiBox)
def confirm(box: str, _: ApiOperator, fleet: ApiFleet, once: Once) -> Response:
    """Go on with a box that is restored: what was requested of it here counts again, under a new revision."""
    return once(lambda: _confirmed_restored(fleet, box))


def _confirmed_restored(fleet: Fleet, box: str) -> ApiBox:
    device = fleet.box(box).device
    fleet.confirm_restored(device)
    return box_body(fleet.box(device))


@router.post("/boxes/{box}/cluster", response_model=ApiBox)
def set_cluster(box: str, body: ApiClusterDecision, _: ApiAdmin, fleet: ApiFleet, once: Once) -> Response:
    """Let the cluster count that a box reports, or let none count until one is accepted."""
    return once(lambda: _with_cluster(fleet, box, body))


def _with_cluster(fleet: Fleet, box: str, body: ApiClusterDecision) -> ApiBox:
    device = fleet.box(box).device
    fleet.set_cluster(device, accept=body.accept)
    return box_body(fleet.box(device))


@router.post("/boxes/{box}/revoke", response_model=ApiBox)
def revoke(box: str, body: ApiConfirmation, _: ApiAdmin, fleet: ApiFleet, once: Once) -> Response:
    """Revoke a box: nothing it says counts any more, and nothing is sent to it."""
    return once(lambda: _revoked(fleet, box, body))


def _revoked(fleet: Fleet, box: str, body: ApiConfirmation) -> ApiBox:
    device = _confirmed(fleet, box, body, "revoke")
    fleet.revoke(device)
    return box_body(fleet.box(device))


@router.post("/boxes/{box}/block", response_model=ApiBox)
def block(box: str, body: ApiConfirmation, _: ApiOperator, fleet: ApiFleet, once: Once) -> Response:
    """Refuse a box until it is unblocked; the broker's guard refuses it too, and its open commands wait."""
    return once(lambda: _blocked(fleet, _confirmed(fleet, box, body, "block"), blocked=True))


@router.post("/boxes/{box}/unblock", response_model=ApiBox)
def unblock(box: str, _: ApiOperator, fleet: ApiFleet, once: Once) -> Response:
    """Let a blocked box go on as before."""
    return once(lambda: _blocked(fleet, fleet.box(box).device, blocked=False))


def _blocked(fleet: Fleet, device: str, *, blocked: bool) -> ApiBox:
    fleet.set_blocked(device, blocked=blocked)
    return box_body(fleet.box(device))


@router.post("/boxes/{box}/forget", status_code=204)
def forget(box: str, body: ApiConfirmation, _: ApiAdmin, fleet: ApiFleet, once: Once) -> Response:
    """Forget a box: all that is known of it is dropped but its alarms and the audit."""
    return once(lambda: fleet.forget(_confirmed(fleet, box, body, "forget")))


def _confirmed(fleet: Fleet, box: str, body: ApiConfirmation, what: str) -> str:
    found = fleet.box(box)
    if body.confirm != found.name:
        text = f"cannot {what} {found.name}: `confirm` is not its name"
        raise ApiRequestError(text, remedy=f"send its name, {found.name}, in `confirm`")
    return found.device
