"""The audit: who changed what, before and after; by person, box and kind, a page at a time."""

import json
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.errors import NotFoundError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.store.records import AuditEntry, AuditFilter

router = APIRouter()

PAGE = 50
KINDS = ("box", "command", "alarm", "person", "sign_in", "sign_out", "token", "rollout")
"""The kinds that the page offers; others can be typed into its address."""

_LONGEST = 2_000

Text = Annotated[str, Query(max_length=100)]


@router.get("/audit")
def audit_page(
    request: Request,
    fleet: VisitorFleet,
    pages: Pages,
    by: Text = "",
    box: Text = "",
    what: Text = "",
    before: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> Response:
    """Show a page of the audit."""
    by, box, what = (text.replace("\0", "").strip() for text in (by, box, what))
    device = _device(fleet, box) if box else ""
    where = AuditFilter(by=by, device=device, what=what, before=before)
    found = fleet.audit(where, limit=PAGE + 1)
    shown = found[:PAGE]
    names = fleet.names_of({one.device for one in shown if one.device})
    values = {
        "query": {"by": by, "box": box, "what": what},
        "kinds": KINDS,
        "entries": [(entry, names.get(entry.device, ""), _parts(entry)) for entry in shown],
        "older": shown[-1].number if len(found) > PAGE else 0,
        "is_first": not before,
    }
    return pages.page(request, "audit.html", values)


def _device(fleet: Fleet, box: str) -> str:
    """Return the device id of a box; a text that names none is taken for the id of one that is forgotten."""
    try:
        return fleet.box(box).device
    except NotFoundError:
        return box


def _parts(entry: AuditEntry) -> dict[str, str]:
    """Return what the page shows of an entry: before, after, and the rest, as text."""
    detail = dict(entry.detail)
    before, after, result = detail.pop("before", None), detail.pop("after", None), detail.pop("result", "")
    return {"before": _text(before), "after": _text(after), "rest": _text(detail or None), "result": str(result)}


def _text(value: object) -> str:
    if value is None:
        return ""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
