"""The audit: who changed what, before and after, and what came of it; by person, box and kind, a page at a time."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.errors import CloudError, ForbiddenError, NotFoundError
from edgegpu_cloud.fleet.audit.documents import shown_values
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.fleet.audit.views import AuditView
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import AuditFilter, Json

router = APIRouter()

PAGE = 50
_LONGEST = 4_000
"""Characters of an entry's JSON that the page shows."""

Text = Annotated[str, Query(max_length=100)]
Day = Annotated[str, Query(max_length=10)]


@router.get("/audit")
def audit_page(  # noqa: PLR0913, PLR0917  (one for each filter)
    request: Request,
    fleet: VisitorFleet,
    pages: Pages,
    by: Text = "",
    box: Text = "",
    what: Text = "",
    app: Annotated[str, Query(max_length=520)] = "",
    since: Day = "",
    until: Day = "",
    part_of: Text = "",
    before: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> Response:
    """Show a page of the audit; a change of many boxes is one row, unless a box, a kind or that change is asked for."""
    by, box, what, app, part_of = (text.replace("\0", "").strip() for text in (by, box, what, app, part_of))
    query = {"by": by, "box": box, "what": what, "app": app, "since": since, "until": until, "part_of": part_of}
    problem: CloudError | None = None
    found: Sequence[AuditView] = []
    try:
        where = AuditFilter(
            by=by,
            device=box,
            what=what,
            before=before,
            since_s=_day_s(since),
            until_s=_day_s(until, days=1),
            app=app,
            part_of=part_of,
            whole=not (box or what or part_of),
        )
        found = fleet.audit(where, limit=PAGE + 1)
    except ForbiddenError:
        raise
    except CloudError as error:
        problem = error
    shown, words = found[:PAGE], pages.words(request)
    kinds = groups(words)
    values = {
        "query": query,
        "kept": {name: text for name, text in query.items() if text},
        "kinds": kinds,
        "names": kinds | {kind.value: name for kind, name in kind_names(words).items()},
        "entries": [(entry, _parts(entry)) for entry in shown],
        "older": shown[-1].number if len(found) > PAGE else 0,
        "is_first": not before,
        "days": _days(words, request.state.parts.clock()),
        "problem": problem,
    }
    status = 404 if isinstance(problem, NotFoundError) else 400 if problem else 200
    return pages.page(request, "audit.html", values, status=status)


def _day_s(text: str, *, days: int = 0) -> float:
    """Return when a day begins (UTC), so many days later, in seconds since 1970; 0 where none is given.

    Raises:
        CloudError: it is no date.
    """
    if not text:
        return 0.0
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        return max(0.0, (day + timedelta(days=days)).timestamp())
    except (ValueError, OverflowError) as error:
        raise CloudError(
            phrase("cannot search the audit: %(text)r is no date", text=text), remedy=phrase("give it as 2026-09-21")
        ) from error


def _days(words: Callable[[str], str], now_s: float) -> list[tuple[str, str]]:
    """Return the days that the page has a link for: today and yesterday (UTC)."""
    today = datetime.fromtimestamp(now_s, UTC)
    days = ((words("Today"), today), (words("Yesterday"), today - timedelta(days=1)))
    return [(name, f"{day:%Y-%m-%d}") for name, day in days]


def groups(words: Callable[[str], str]) -> dict[str, str]:
    """Return the groups of changes that the page offers, by the beginning of their names, with words for people."""
    return {
        "box": words("Box"),
        "command": words("Command"),
        "alarm": words("Alarm"),
        "alert": words("Alerts"),
        "webhook": words("Webhooks"),
        "person": words("Person"),
        "sign_in": words("Sign in"),
        "sign_out": words("Sign out"),
        "token": words("Token"),
        "enrolment": words("Enrolment"),
        "rollout": words("Rollout"),
        "operation": words("Change of many boxes"),
        "store": words("Controller's store"),
        "controller": words("Controller"),
        "keys": words("Keys"),
    }


def kind_names(words: Callable[[str], str]) -> dict[AuditKind, str]:
    """Return the names of all changes for people."""
    return {
        AuditKind.ALARM_SEEN: words("Alarm seen"),
        AuditKind.ALERT_SILENCED: words("Alert silenced"),
        AuditKind.BOX_CLUSTER: words("Cluster of a box decided"),
        AuditKind.BOX_CONFIRMED: words("Box confirmed"),
        AuditKind.BOX_ENROLLED: words("Box enrolled"),
        AuditKind.BOX_FORGOTTEN: words("Box forgotten"),
        AuditKind.BOX_LABELS: words("Labels changed"),
        AuditKind.BOX_RENAMED: words("Box renamed"),
        AuditKind.BOX_REVOKED: words("Box revoked"),
        AuditKind.BOX_BLOCKED: words("Box blocked"),
        AuditKind.BOX_UNBLOCKED: words("Box unblocked"),
        AuditKind.BOX_SPEC: words("Settings requested"),
        AuditKind.COMMAND: words("Command sent"),
        AuditKind.COMMAND_CANCELLED: words("Command cancelled"),
        AuditKind.CONTROLLER_ADDED: words("Controller added"),
        AuditKind.ENROLMENT_APPROVED: words("Enrolment approved"),
        AuditKind.ENROLMENT_REFUSED: words("Enrolment refused"),
        AuditKind.KEYS_ADDED: words("Key set added"),
        AuditKind.OPERATION: words("Operation started"),
        AuditKind.OPERATION_CANCELLED: words("Operation cancelled"),
        **_person_kind_names(words),
        AuditKind.ROLLOUT_ABORTED: words("Rollout aborted"),
        AuditKind.ROLLOUT_PAUSED: words("Rollout paused"),
        AuditKind.ROLLOUT_RESUMED: words("Rollout resumed"),
        AuditKind.ROLLOUT_STARTED: words("Rollout started"),
        AuditKind.SIGN_IN: words("Signed in"),
        AuditKind.SIGN_IN_REFUSED: words("Sign-in refused"),
        AuditKind.SIGN_OUT: words("Signed out"),
        AuditKind.STORE_MIGRATED: words("Store migrated"),
        AuditKind.STORE_RESTORED: words("Store restored from a backup"),
        AuditKind.TOKEN_MADE: words("Token made"),
        AuditKind.TOKEN_TAKEN_BACK: words("Token taken back"),
        AuditKind.WEBHOOK_ADDED: words("Webhook made"),
        AuditKind.WEBHOOK_DISABLED: words("Webhook disabled"),
        AuditKind.WEBHOOK_ENABLED: words("Webhook enabled"),
        AuditKind.WEBHOOK_REMOVED: words("Webhook deleted"),
    }


def _person_kind_names(words: Callable[[str], str]) -> dict[AuditKind, str]:
    """Return the names of the changes of accounts."""
    return {
        AuditKind.PERSON_ADDED: words("Account added"),
        AuditKind.PERSON_DISABLED: words("Account disabled"),
        AuditKind.PERSON_ENABLED: words("Account enabled"),
        AuditKind.PERSON_LANGUAGE: words("Language changed"),
        AuditKind.PERSON_LINK: words("One-time link made"),
        AuditKind.PERSON_PASSWORD: words("Password changed"),
        AuditKind.PERSON_REMOVED: words("Account removed"),
        AuditKind.PERSON_ROLE: words("Role changed"),
        AuditKind.PERSON_SCOPE: words("Scope changed"),
        AuditKind.PERSON_SESSION_REVOKED: words("Session ended"),
        AuditKind.PERSON_TOKEN_ADDED: words("API token made"),
        AuditKind.PERSON_TOKEN_REVOKED: words("API token revoked"),
    }


def _parts(entry: AuditView) -> Json:
    """Return what the page shows of an entry: before, after and the rest, and all of it as JSON."""
    sides = {"before": entry.before, "after": entry.after, "detail": entry.detail}
    there = {name: values for name, values in sides.items() if values}
    text = json.dumps(there, ensure_ascii=False, sort_keys=True) if there else ""
    return {
        "before": shown_values(entry.before),
        "after": shown_values(entry.after),
        "rest": entry.detail,
        "json": text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…",
    }
