"""Whole views of boxes, as the command line prints them: for programs that show all that is known."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from edgegpu_cloud.console.api.access import ApiFleet
from edgegpu_cloud.console.api.conditions import MOST_ITEMS, Cursor, Limit, NumberCursor, page_with
from edgegpu_cloud.console.api.models.fleet import ApiModel, ApiPage
from edgegpu_cloud.fleet.history.box_history import CHANGES, MachineChange
from edgegpu_cloud.fleet.limits.requests import RequestedItem
from edgegpu_cloud.fleet.listing import BoxFilter, PageOrder
from edgegpu_cloud.fleet.views import BoxDetails, BoxView
from edgegpu_cloud.store.records import BoxEvent, BoxState
from edgegpu_sync.ids import DeviceId

router = APIRouter(tags=["boxes"])


class ViewsQuery(ApiModel):
    """The boxes that are asked for; what is left out does not count."""

    labels: Annotated[str, Field(max_length=500, description="A selector over labels: site=hall,rack!=3.")] = ""
    cluster: Annotated[tuple[str, ...], Field(max_length=100, description="Of one of these clusters.")] = ()
    device: Annotated[tuple[str, ...], Field(max_length=MOST_ITEMS, description="With one of these ids.")] = ()
    names: Annotated[str, Field(max_length=253, description="Whose name or id begins so.")] = ""
    state: Annotated[tuple[BoxState, ...], Field(max_length=4)] = ()
    restored: bool = False
    limit: Annotated[int, Field(ge=1, le=MOST_ITEMS)] = 50
    cursor: Annotated[str, Field(max_length=1_000, description="From `next` of the part before.")] = ""


@router.get("/box-views")
def list_views(request: Request, fleet: ApiFleet, where: Annotated[ViewsQuery, Query()]) -> ApiPage[BoxView]:
    """Return whole views of boxes, by name."""
    chosen = BoxFilter(
        devices=frozenset(DeviceId(one.replace("\0", "")) for one in where.device) if where.device else None,
        selector=where.labels,
        names=where.names.replace("\0", ""),
        clusters=frozenset(one.replace("\0", "") for one in where.cluster),
        states=frozenset(where.state),
        restored=where.restored,
    )
    found = fleet.page(chosen, PageOrder(limit=where.limit, cursor=where.cursor))
    devices = frozenset(one.device for one in found.boxes)
    views = fleet.matching(BoxFilter(devices=devices)) if devices else []
    return page_with(request, views, found.next)


@router.get("/boxes/{box}/details")
def details(box: str, fleet: ApiFleet) -> BoxDetails:
    """Return all that is known of a box: its view, its desired document, its last messages."""
    return fleet.details(box)


@router.get("/boxes/{box}/events")
def box_events(
    request: Request, box: str, fleet: ApiFleet, limit: Limit = 50, cursor: NumberCursor = 0
) -> ApiPage[BoxEvent]:
    """Return events of a box, newest first."""
    found = fleet.histories.events(box, limit=limit, before=cursor)
    return page_with(request, found.events, str(found.next or ""))


@router.get("/boxes/{box}/changes")
def box_changes(
    request: Request, box: str, fleet: ApiFleet, limit: Limit = CHANGES, cursor: Cursor = ""
) -> ApiPage[MachineChange]:
    """Return changes of a box's machine, newest first, whether requested here or made on the box."""
    found = fleet.histories.changes(box, limit=limit, after=cursor)
    return page_with(request, found.changes, found.next)


@router.get("/boxes/{box}/requests")
def requests(
    request: Request, box: str, fleet: ApiFleet, limit: Limit = 50, cursor: NumberCursor = 0
) -> ApiPage[RequestedItem]:
    """Return what is requested of a box now: when, by whom, and what came of it."""
    found = fleet.histories.requests(box, limit=limit, offset=cursor)
    return page_with(request, found.requests, str(found.next or ""))
