"""Enrolment: tokens, and attempts of boxes that wait for a person."""

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from edgegpu_cloud.console.api.access import ApiEnrolment, ApiOperator, ApiVisitor
from edgegpu_cloud.console.api.conditions import Cursor, Limit, page_with
from edgegpu_cloud.console.api.idempotency import Once
from edgegpu_cloud.console.api.models.fleet import ApiAttempt, ApiEnrolmentToken, ApiNewToken, ApiPage, ApiTokenRequest
from edgegpu_cloud.enrolment.install_lines import enrol_line
from edgegpu_cloud.enrolment.manager import AttemptView, EnrolmentManager, TokenRequest, place_of, token_id
from edgegpu_cloud.enrolment.tokens import only_for
from edgegpu_cloud.fleet.selectors import read_labels
from edgegpu_cloud.store.records import ONLY_FOR, RequestState, Token

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter(prefix="/enrolment", tags=["enrolment"])

Search = Annotated[
    str, Query(max_length=200, description="Looked for in names, hosts, addresses, labels, ids and people.")
]
IdPath = Annotated[
    str, Path(min_length=1, max_length=64, pattern="^[0-9a-f]+$", description="The beginning of an id will do.")
]


@router.get("/tokens")
def list_tokens(
    request: Request,
    _: ApiVisitor,
    enrolment: ApiEnrolment,
    *,
    search: Search = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> ApiPage[ApiEnrolmentToken]:
    """Return the tokens that a box may still come with, oldest first."""
    found = enrolment.tokens(search, after=cursor, limit=limit + 1)
    more = place_of(found[limit - 1]) if len(found) > limit else ""
    return page_with(request, [ApiEnrolmentToken.model_validate(_token(one)) for one in found[:limit]], more)


def _token(one: Token) -> dict[str, object]:
    names = ("name", "uses", "used", "approval", "at_s", "expires_at_s", "by")
    labels = {key: value for key, value in one.labels.items() if key != ONLY_FOR}
    own = {"id": token_id(one), "labels": labels, "only_for": only_for(one)}
    return {name: getattr(one, name) for name in names} | own


@router.post("/tokens", status_code=201, response_model=ApiNewToken)
def make_token(
    request: Request, body: ApiTokenRequest, _: ApiOperator, enrolment: ApiEnrolment, once: Once
) -> Response:
    """Make a token. This answer alone has its text."""
    parts: ConsoleParts = request.state.parts
    return once(lambda: _made(parts, enrolment, body), status=201)


def _made(parts: "ConsoleParts", enrolment: EnrolmentManager, body: ApiTokenRequest) -> ApiNewToken:
    new = enrolment.make(
        TokenRequest(
            lasts_s=body.lasts_s,
            uses=body.uses,
            approval=body.approval,
            name=body.name,
            labels=read_labels(f"{key}={value}" for key, value in body.labels.items()),
            only_for=body.only_for,
        )
    )
    line = enrol_line(parts.enrolment_address(), new)
    names = ("token", "line", "line_sudo", "url", "ca_sha256", "pin")
    return ApiNewToken.model_validate(_token(new.token) | {name: getattr(line, name) for name in names})


@router.delete("/tokens/{id_}", response_model=ApiEnrolmentToken)
def take_back(id_: IdPath, _: ApiOperator, enrolment: ApiEnrolment, once: Once) -> Response:
    """Make a token worthless at once."""
    return once(lambda: ApiEnrolmentToken.model_validate(_token(enrolment.take_back(id_))))


@router.get("/attempts")
def list_attempts(
    request: Request,
    _: ApiVisitor,
    enrolment: ApiEnrolment,
    *,
    state: Annotated[RequestState, Query()] = RequestState.WAITING,
    search: Search = "",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> ApiPage[ApiAttempt]:
    """Return attempts of boxes to enrol in a state, oldest first; those that wait unless `state` says otherwise."""
    found = enrolment.attempts(state, search=search, after=cursor, limit=limit + 1)
    more = place_of(found[limit - 1].attempt) if len(found) > limit else ""
    return page_with(request, [_attempt(one) for one in found[:limit]], more)


@router.post("/attempts/{id_}/approve", response_model=ApiAttempt)
def approve(id_: IdPath, _: ApiOperator, enrolment: ApiEnrolment, once: Once) -> Response:
    """Take in a box that waits: it asks again within a quarter of a minute."""
    return once(lambda: _attempt(enrolment.decide(id_, RequestState.APPROVED)))


@router.post("/attempts/{id_}/refuse", response_model=ApiAttempt)
def refuse(id_: IdPath, _: ApiOperator, enrolment: ApiEnrolment, once: Once) -> Response:
    """Refuse a box that waits, for good."""
    return once(lambda: _attempt(enrolment.decide(id_, RequestState.REFUSED)))


def _attempt(view: AttemptView) -> ApiAttempt:
    one = view.attempt
    return ApiAttempt(
        id=one.id,
        state=one.state.value,
        name=view.name,
        given_name=str(one.asked.get("name", "")),
        host=str(one.asked.get("host", "")),
        address=str(one.asked.get("address", "")),
        instance=str(one.asked.get("instance", "")),
        versions=one.asked.get("versions") or {},
        device=one.device,
        at_s=one.at_s,
        token_by=view.made_by,
    )
