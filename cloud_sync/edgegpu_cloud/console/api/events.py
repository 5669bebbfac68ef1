"""Server-sent events: the ids of boxes that have changed, for programs that follow the fleet."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from edgegpu_cloud.console.api.access import ApiFleet, ApiVisitor, api_visitor
from edgegpu_cloud.console.live import ENROL, MOST_NAMED, NO_BOXES, gathered
from edgegpu_cloud.console.visitor import NotSignedInError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_sync.ids import DeviceId

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter(tags=["events"])

_CHECK_S = 3.0
"""So long at most a stream goes on whose token or session was revoked."""


@router.get("/events", response_class=EventSourceResponse)
async def events(request: Request, visitor: ApiVisitor, fleet: ApiFleet) -> EventSourceResponse:
    """Stream an event `boxes` with a JSON list of ids each time that boxes change, `["all"]` where they are many.

    The event `enrolment` says that a token or a box that waits has changed. The stream ends when the token or the
    session does.
    """
    parts: ConsoleParts = request.state.parts

    async def stream() -> AsyncIterator[ServerSentEvent]:
        checked_s = time.monotonic()
        with parts.watcher.subscription() as queue:
            yield ServerSentEvent(event="hello", data="")
            while True:
                changed = await gathered(queue, _CHECK_S)
                if time.monotonic() - checked_s >= _CHECK_S:  # also in a fleet that changes all the time
                    if not await _is_valid(request):
                        return
                    checked_s = time.monotonic()
                if ENROL in changed:
                    yield ServerSentEvent(event="enrolment", data="")
                boxes = changed - NO_BOXES
                seen = await asyncio.to_thread(_seen, fleet, boxes) if visitor.scope else sorted(boxes)
                if seen:
                    yield ServerSentEvent(event="boxes", data=json.dumps(seen if len(seen) <= MOST_NAMED else ["all"]))

    return EventSourceResponse(stream(), ping=20, headers={"X-Accel-Buffering": "no"})


async def _is_valid(request: Request) -> bool:
    try:
        await api_visitor(request, None)
    except NotSignedInError:
        return False
    return True


def _seen(fleet: Fleet, boxes: set[DeviceId]) -> list[str]:
    """Return those boxes that the person sees."""
    return sorted(fleet.names_of(boxes))
