"""The audit: who changed what, before and after; by person, box and kind, a page at a time."""

import json
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.errors import NotFoundError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.store.records import AuditEntry, AuditFilter

router = APIRouter()

PAGE = 50
KINDS = ("box", "command", "alarm", "person", "sign_in", "sign_out", "token", "rollout", "operation")
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
    shown, words = found[:PAGE], pages.words(request)
    kinds = _kinds(words)
    names = fleet.names_of({one.device for one in shown if one.device})
    values = {
        "query": {"by": by, "box": box, "what": what},
        "kinds": {kind: kinds[kind] for kind in KINDS},
        "names": kinds | _names(words),
        "results": {"done": words("done"), "refused": words("refused")},
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


def _kinds(words: Callable[[str], str]) -> dict[str, str]:
    """Return the names of the kinds for people: each is the beginning of some changes' names."""
    return {
        "box": words("Box"),
        "command": words("Command"),
        "alarm": words("Alarm"),
        "person": words("Person"),
        "sign_in": words("Sign in"),
        "sign_out": words("Sign out"),
        "token": words("Token"),
        "rollout": words("Rollout"),
        "operation": words("Change of many boxes"),
    }


def _names(words: Callable[[str], str]) -> dict[str, str]:
    """Return the names of changes for people."""
    return {
        "alarm.seen": words("Alarm seen"),
        "alert.silenced": words("Alert silenced"),
        "box.confirmed": words("Box confirmed"),
        "box.enrolled": words("Box enrolled"),
        "box.forgotten": words("Box forgotten"),
        "box.labels": words("Labels changed"),
        "box.renamed": words("Box renamed"),
        "box.revoked": words("Box revoked"),
        "box.spec": words("Settings requested"),
        "command": words("Command sent"),
        "command.cancelled": words("Command cancelled"),
        "controller.added": words("Controller added"),
        "enrolment.approved": words("Enrolment approved"),
        "enrolment.refused": words("Enrolment refused"),
        "keys.added": words("Key set added"),
        "operation": words("Operation started"),
        "operation.cancelled": words("Operation cancelled"),
        "person.added": words("Account added"),
        "person.disabled": words("Account disabled"),
        "person.enabled": words("Account enabled"),
        "person.link": words("One-time link made"),
        "person.password": words("Password changed"),
        "person.removed": words("Account removed"),
        "person.role": words("Role changed"),
        "person.scope": words("Scope changed"),
        "person.session_revoked": words("Session ended"),
        "person.token_added": words("API token made"),
        "person.token_revoked": words("API token revoked"),
        "rollout.aborted": words("Rollout aborted"),
        "rollout.paused": words("Rollout paused"),
        "rollout.resumed": words("Rollout resumed"),
        "rollout.started": words("Rollout started"),
        "sign_in": words("Signed in"),
        "sign_in.refused": words("Sign-in refused"),
        "sign_out": words("Signed out"),
        "token.made": words("Token made"),
        "token.taken_back": words("Token taken back"),
    }


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
