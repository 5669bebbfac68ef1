"""Commands to boxes, alarms, and the audit."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from edgegpu_cloud.console.api.access import ApiAdmin, ApiFleet, ApiOperator
from edgegpu_cloud.console.api.conditions import Cursor, Limit, NumberCursor, page_with
from edgegpu_cloud.console.api.idempotency import Once
from edgegpu_cloud.console.api.models.fleet import (
    ApiAlarm,
    ApiAuditEntry,
    ApiCommand,
    ApiCommandRequest,
    ApiCommandState,
    ApiPage,
)
from edgegpu_cloud.console.api.problems import ApiRequestError
from edgegpu_cloud.console.paths import PathNumber
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.views import CommandView
from edgegpu_cloud.store.records import Alarm, AuditFilter

router = APIRouter(tags=["commands, alarms, audit"])

CommandIdPath = Annotated[str, Path(min_length=1, max_length=40)]
_INSTALL, _UNINSTALL = "sharing.install", "sharing.uninstall"


@router.post("/boxes/{box}/commands", status_code=202, response_model=ApiCommand)
def add_command(box: str, body: ApiCommandRequest, _: ApiOperator, fleet: ApiFleet, once: Once) -> Response:
    """Queue a command for a box."""
    return once(lambda: _command(fleet.one_command(_added(fleet, box, body))), status=202)


def _added(fleet: Fleet, box: str, body: ApiCommandRequest) -> str:
    if body.op in {_INSTALL, _UNINSTALL}:
        if body.args:
            raise ApiRequestError(f"cannot ask for {body.op}: it takes no arguments here", remedy="leave `args` out")
        change = fleet.install if body.op == _INSTALL else fleet.uninstall
        return change(box, wait_s=body.wait_s)
    return fleet.command(box, body.op, body.args, wait_s=body.wait_s)


@router.get("/commands")
def list_commands(
    request: Request,
    fleet: ApiFleet,
    box: Annotated[str, Query(max_length=253, description="Its id or name; empty: commands to all boxes.")] = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> ApiPage[ApiCommand]:
    """Return commands, newest first, without their history."""
    found = fleet.commands(box or None, limit + 1, before=_plain(cursor))
    more = found[limit - 1].id if len(found) > limit else ""
    return page_with(request, [_command(one) for one in found[:limit]], more)


def _plain(cursor: str) -> str:
    if cursor and not (cursor.isascii() and cursor.isalnum()):
        raise ApiRequestError("cannot go on from this cursor: it is none", remedy="take it from `next`")
    return cursor


@router.get("/commands/{id_}")
def one_command(id_: CommandIdPath, fleet: ApiFleet) -> ApiCommand:
    """Return a command with its history."""
    return _command(fleet.one_command(id_))


@router.post("/commands/{id_}/cancel", response_model=ApiCommand)
def cancel(id_: CommandIdPath, _: ApiOperator, fleet: ApiFleet, once: Once) -> Response:
    """Leave a command no time to begin: it ends EXPIRED where its box has not begun it."""
    return once(lambda: _cancelled(fleet, id_))


def _cancelled(fleet: Fleet, id_: str) -> ApiCommand:
    fleet.cancel(id_)
    return _command(fleet.one_command(id_))


def _command(one: CommandView) -> ApiCommand:
    own = {name: getattr(one, name) for name in ApiCommand.model_fields if name not in {"history", "state"}}
    history = [
        ApiCommandState(at_s=line.at_s, state=line.state.value, code=line.code, text=line.text) for line in one.history
    ]
    return ApiCommand(**own, state=one.state.value if one.state else None, history=history)


@router.get("/alarms")
def list_alarms(
    request: Request,
    fleet: ApiFleet,
    *,
    seen: Annotated[bool, Query(description="Also those that somebody has seen.")] = False,
    limit: Limit = 50,
    cursor: NumberCursor = 0,
) -> ApiPage[ApiAlarm]:
    """Return alarms, newest first: the newest thousand at most."""
    found = [one for one in fleet.alarms(unseen=not seen) if not cursor or one.number < cursor]
    more = str(found[limit - 1].number) if len(found) > limit else ""
    return page_with(request, [_alarm(one) for one in found[:limit]], more)


def _alarm(one: Alarm) -> ApiAlarm:
    return ApiAlarm.model_validate({name: getattr(one, name) for name in ApiAlarm.model_fields})


@router.post("/alarms/{number}/seen", status_code=204)
def alarm_seen(number: PathNumber, _: ApiOperator, fleet: ApiFleet, once: Once) -> Response:
    """Mark an alarm as seen."""
    return once(lambda: fleet.alarm_seen(number))


_WHOLE = (
    "Without what operations and rollouts have changed box by box; of one that has begun before `since_s` the newest "
    "entry alone. With a scope it has no effect."
)


@router.get("/audit")
def list_audit(  # noqa: PLR0913  (one for each filter)
    request: Request,
    _: ApiAdmin,
    fleet: ApiFleet,
    *,
    by: Annotated[str, Query(max_length=128, description="A person, with the person's tokens.")] = "",
    box: Annotated[str, Query(max_length=253, description="Its id or name, or the id of a forgotten one.")] = "",
    what: Annotated[str, Query(max_length=64, description="A kind, or the beginning of several: `box`.")] = "",
    app: Annotated[str, Query(max_length=520, description="NAMESPACE/APP, or an app of any namespace.")] = "",
    since_s: Annotated[float, Query(ge=0, le=2**53, description="Not before then; 0: any time.")] = 0,
    until_s: Annotated[float, Query(ge=0, le=2**53, description="Before then; 0: any time.")] = 0,
    part_of: Annotated[
        str, Query(max_length=64, description="What one operation (its id) or `rollout/NUMBER` has changed.")
    ] = "",
    whole: Annotated[bool, Query(description=_WHOLE)] = False,
    limit: Limit = 50,
    cursor: NumberCursor = 0,
) -> ApiPage[ApiAuditEntry]:
    """Return who changed what, before and after, and what came of it, newest first."""
    where = AuditFilter(
        by=_text(by),
        device=_text(box),
        what=_text(what),
        before=cursor,
        since_s=since_s,
        until_s=until_s,
        app=_text(app),
        part_of=_text(part_of),
        whole=whole,
    )
    found = fleet.audit(where, limit=limit + 1)
    more = str(found[limit - 1].number) if len(found) > limit else ""
    return page_with(request, [ApiAuditEntry.model_validate(one) for one in found[:limit]], more)


def _text(words: str) -> str:
    """Return a text without the one character that PostgreSQL has in no text."""
    return words.replace("\0", "")
