"""Server-sent events: the ids of boxes that have changed, for programs that follow the fleet."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from sse_starlette import EventSourceResponse, ServerSentEvent

from edgegpu_cloud.console.api.access import ApiVisitor, api_visitor
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
async def events(request: Request, _: ApiVisitor) -> EventSourceResponse:
    """Stream an event `boxes` with a JSON list of ids each time that boxes change, `["all"]` where they are many.

    The event `enrolment` says that a token or a box that waits has changed. The stream ends when the token or the
    session does. Each event names what the person sees at that time.
    """
    parts: ConsoleParts = request.state.parts

    async def stream() -> AsyncIterator[ServerSentEvent]:
        with parts.watcher.subscription() as queue:
            yield ServerSentEvent(event="hello", data="")
            while True:
                changed = await gathered(queue, _CHECK_S)
                try:
                    visitor = await api_visitor(request, None)  # again: neither an earlier token nor an earlier scope
                except NotSignedInError:
                    return
                if ENROL in changed:
                    yield ServerSentEvent(event="enrolment", data="")
                boxes = changed - NO_BOXES
                seen = await asyncio.to_thread(_seen, parts.fleet(visitor), boxes) if visitor.scope else sorted(boxes)
                if seen:
                    yield ServerSentEvent(event="boxes", data=json.dumps(seen if len(seen) <= MOST_NAMED else ["all"]))

    return EventSourceResponse(stream(), ping=20, headers={"X-Accel-Buffering": "no"})


def _seen(fleet: Fleet, boxes: set[DeviceId]) -> list[str]:
    """Return those boxes that the person sees."""
    return sorted(fleet.names_of(boxes))
