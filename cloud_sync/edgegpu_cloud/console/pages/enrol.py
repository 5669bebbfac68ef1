"""Enrolment: tokens with the line to paste, boxes that wait for a person, and the first report of each new box."""

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import segno
from fastapi import APIRouter, Depends, Form, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Operator, SignedIn
from edgegpu_cloud.enrolment.install_lines import UNINSTALL_LINE, EnrolLine, EnrolmentAddress, enrol_line
from edgegpu_cloud.enrolment.manager import (
    ID_LENGTH,
    LONGEST_S,
    MOST_TOKENS,
    MOST_USES,
    PAGE,
    SHORTEST_S,
    AttemptView,
    EnrolmentManager,
    NewToken,
    TokenRequest,
    is_valid,
    place_of,
    token_id,
)
from edgegpu_cloud.enrolment.tokens import only_for
from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.selectors import read_labels
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_cloud.layout import TokenConfig
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import RequestState, Token

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter()

LASTS = (3_600, 43_200, 86_400, 604_800, 2_592_000)
"""How long a token may last, in seconds, as the page offers it beside what the configuration has."""

MOST_SHOWN = 20
"""Boxes of one token whose first report is shown on a page."""

Place = Annotated[str, Query(max_length=100)]


class EnrolQuery(BaseModel):
    """What a person looks for in both lists, the part that is asked for alone, and where the page of each begins."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    q: Annotated[str, Field(max_length=200)] = ""
    part: Annotated[str, Field(max_length=10)] = ""
    waiting: Annotated[str, Field(max_length=100)] = ""
    tokens: Annotated[str, Field(max_length=100)] = ""

    def url(self, **changes: str) -> str:
        """Return the address of the page with some of it changed."""
        words = self.model_copy(update={"part": "", **changes}).model_dump(exclude_defaults=True)
        return f"/enrol?{urlencode(words)}" if words else "/enrol"


class TokenForm(BaseModel):
    """The form of a token, as it was sent. `each`: a token for each box, as a file; else one for all of them.

    What was not sent is None: the configuration of the controller has it. A box that is not ticked is not sent.
    """

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    name: Annotated[str, Field(max_length=63)] = ""
    labels: Annotated[str, Field(max_length=500)] = ""
    lasts_s: Annotated[int, Field(ge=SHORTEST_S, le=LONGEST_S)] | None = None
    boxes: Annotated[int, Field(ge=1, le=MOST_USES)] | None = None
    each: bool = False
    approval: bool = False

    @classmethod
    def of(cls, defaults: TokenConfig) -> "TokenForm":
        """Return the form as it is shown first: with what the command line and the API take without options."""
        return cls(lasts_s=defaults.lasts_s, boxes=defaults.uses, approval=defaults.approval)

    def request(self) -> TokenRequest:
        """Return the token that is asked for.

        Raises:
            CloudError: the labels are none.
        """
        labels = {key: value for key, value in read_labels(self.labels.replace(",", " ").split()).items() if value}
        uses = 1 if self.each else self.boxes
        return TokenRequest(lasts_s=self.lasts_s, uses=uses, approval=self.approval, name=self.name, labels=labels)


EVERYTHING = EnrolQuery()


def _manager(request: Request, visitor: SignedIn) -> EnrolmentManager:
    parts: ConsoleParts = request.state.parts
    return parts.enrolment(visitor)


VisitorEnrolment = Annotated[EnrolmentManager, Depends(_manager)]


@router.get("/enrol")
def enrol_page(
    request: Request, enrolment: VisitorEnrolment, pages: Pages, query: Annotated[EnrolQuery, Query()]
) -> Response:
    """Show the form of a token, a page of the boxes that wait, and one of the tokens that are valid."""
    return _form_page(request, enrolment, pages, TokenForm.of(enrolment.defaults), query=query)


def _form_page(
    request: Request,
    enrolment: EnrolmentManager,
    pages: PageRenderer,
    form: TokenForm,
    *,
    query: EnrolQuery = EVERYTHING,
    problem: CloudError | None = None,
) -> Response:
    waiting = enrolment.attempts(RequestState.WAITING, search=query.q, after=query.waiting, limit=PAGE + 1)
    tokens = enrolment.tokens(query.q, after=query.tokens, limit=PAGE + 1)
    values = {
        "query": query,
        "line_problems": _address(request).problems,
        "form": form,
        "problem": problem,
        "lasts": sorted({*LASTS, form.lasts_s or enrolment.defaults.lasts_s}),
        "most_boxes": MOST_USES,
        "most_tokens": MOST_TOKENS,
        "waiting": waiting[:PAGE],
        "waiting_count": enrolment.attempt_count(RequestState.WAITING, search=query.q),
        "more_waiting": place_of(waiting[PAGE - 1].attempt) if len(waiting) > PAGE else "",
        "tokens": [_shown(token) for token in tokens[:PAGE]],
        "token_count": enrolment.token_count(query.q),
        "more_tokens": place_of(tokens[PAGE - 1]) if len(tokens) > PAGE else "",
    }
    block = "tokens" if query.part == "tokens" else "waiting"
    return pages.page(request, "enrol.html", values, block=block, status=400 if problem else 200)


def _shown(token: Token) -> dict[str, object]:
    return {
        "id": token_id(token),
        "name": token.name,
        "used": token.used,
        "uses": token.uses,
        "approval": token.approval,
        "expires_at_s": token.expires_at_s,
        "only_for": only_for(token),
        "by": token.by,
    }


@router.post("/enrol/tokens")
def make_token(
    request: Request,
    _: Operator,
    enrolment: VisitorEnrolment,
    fleet: VisitorFleet,
    pages: Pages,
    form: Annotated[TokenForm, Form()],
) -> Response:
    """Make a token, or a file of them; the answer shows it this once."""
    try:
        made = enrolment.make_many(form.request(), (form.boxes or enrolment.defaults.uses) if form.each else 1)
    except CloudError as error:
        return _form_page(request, enrolment, pages, form, problem=error)
    if form.each:
        return _file(made, _address(request))
    return token_page(request, pages, enrolment, fleet, made[0].token, line=new_line(request, made[0]))


def new_line(request: Request, new: NewToken) -> EnrolLine:
    """Return the lines for a token that was just made."""
    return enrol_line(_address(request), new)


def _address(request: Request) -> EnrolmentAddress:
    parts: ConsoleParts = request.state.parts
    return parts.enrolment_address()


def _file(made: Sequence[NewToken], address: EnrolmentAddress) -> Response:
    """Return a file of tokens for a spreadsheet; names and lines begin with a letter, so that no cell is a formula."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(("name", "token", "line", "expires"))
    for one in made:
        line = enrol_line(address, one)
        rows.writerow((one.token.name, one.text, line.line_sudo, line.expires_at))
    headers = {"Content-Disposition": 'attachment; filename="edgegpu-tokens.csv"'}
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


@router.get("/enrol/tokens/{id_}")
def one_token(
    request: Request, id_: str, enrolment: VisitorEnrolment, fleet: VisitorFleet, pages: Pages, *, before: Place = ""
) -> Response:
    """Show a token without its text, and a page of the boxes that came with it, newest first."""
    return token_page(request, pages, enrolment, fleet, _whole_id(enrolment, id_), before=before)


def _whole_id(enrolment: EnrolmentManager, id_: str) -> Token:
    if len(id_) < ID_LENGTH:
        raise NotFoundError(phrase("cannot find a token %(id)r", id=id_), remedy=phrase("open it from the page Enrol"))
    return enrolment.token(id_)


@dataclass(frozen=True, slots=True)
class ArrivingBox:
    """A box that came with a token: its attempt, and what the box has reported once it is enrolled."""

    view: AttemptView
    details: BoxDetails | None


def token_page(
    request: Request,
    pages: PageRenderer,
    enrolment: EnrolmentManager,
    fleet: Fleet,
    token: Token,
    *,
    line: EnrolLine | None = None,
    before: str = "",
) -> Response:
    """Answer with the page of a token; `line` is there once, in the answer in which the token was made."""
    attempts = enrolment.attempts(token=token.digest, after=before, newest_first=True, limit=MOST_SHOWN + 1)
    arrived = [ArrivingBox(one, _details(fleet, one)) for one in attempts[:MOST_SHOWN]]
    parts: ConsoleParts = request.state.parts
    values = {
        "token": _shown(token),
        "is_valid": is_valid(token, parts.clock()),
        "arrived": arrived,
        "live": " ".join(["enrol", *(one.details.box.device for one in arrived if one.details)]),
        "before": before,
        "older": place_of(attempts[MOST_SHOWN - 1].attempt) if len(attempts) > MOST_SHOWN else "",
        "line": line,
        "line_problems": _address(request).problems if line else (),
        "uninstall_line": UNINSTALL_LINE,
        "qr": qr_code(line.line_sudo) if line else "",
        "uninstall_qr": qr_code(UNINSTALL_LINE),
    }
    return pages.page(request, "enrol-token.html", values, block="arrived")


def _details(fleet: Fleet, view: AttemptView) -> BoxDetails | None:
    if view.attempt.device is None:
        return None
    try:
        return fleet.details(view.attempt.device)
    except NotFoundError:  # it was forgotten
        return None


def qr_code(text: str) -> str:
    """Return a text as the SVG of a QR code: attributes alone, which the content security policy allows."""
    code = segno.make(text, error="l", micro=False)
    return code.svg_inline(border=4, omitsize=True, dark="#000", light="#fff", svgclass="qr", lineclass=None)


@router.post("/enrol/tokens/{id_}/take-back")
def take_back(_: Operator, id_: str, enrolment: VisitorEnrolment) -> Response:
    """Make a token worthless."""
    enrolment.take_back(token_id(_whole_id(enrolment, id_)))
    return RedirectResponse("/enrol", 303)


@router.post("/enrol/waiting/{id_}/approve")
def approve(_: Operator, id_: str, enrolment: VisitorEnrolment) -> Response:
    """Take in a box that waits; the page then shows what it reports."""
    return _decided(enrolment, id_, RequestState.APPROVED)


@router.post("/enrol/waiting/{id_}/refuse")
def refuse(_: Operator, id_: str, enrolment: VisitorEnrolment) -> Response:
    """Refuse a box that waits."""
    return _decided(enrolment, id_, RequestState.REFUSED)


def _decided(enrolment: EnrolmentManager, id_: str, state: RequestState) -> Response:
    if len(id_) < ID_LENGTH:
        raise NotFoundError(
            phrase("cannot find a box that waits as %(id)r", id=id_), remedy=phrase("decide on the page Enrol")
        )
    attempt = enrolment.decide(id_, state).attempt
    return RedirectResponse(f"/enrol/tokens/{attempt.token[:ID_LENGTH]}", 303)


def kick_lines(name: str) -> str:
    """Return the commands that cut the connection of a box which is revoked or forgotten."""
    return f"systemctl reload edgegpu-broker\nedgegpu-cloud kick {shlex.quote(name)}"
