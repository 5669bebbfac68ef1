"""The end of a box: revoke it, replace its hardware, forget it, each after its name was typed; and its block."""

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.console.context import Pages, VisitorFleet
from edgegpu_cloud.console.pages.enrol import LASTS, VisitorEnrolment, kick_lines, new_line, qr_code, token_page
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Admin, Operator, SignedIn
from edgegpu_cloud.enrolment.install_lines import UNINSTALL_LINE
from edgegpu_cloud.enrolment.manager import TokenRequest
from edgegpu_cloud.errors import CloudError, NotFoundError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.phrases import phrase

router = APIRouter(prefix="/boxes/{device}")

TypedName = Annotated[str, Form(max_length=253)]


@router.get("/remove")
def remove_page(request: Request, device: str, _: SignedIn, fleet: VisitorFleet, pages: Pages) -> Response:
    """Show the ways in which a box ends; of one that is forgotten, what is left to do."""
    return _page(request, device, fleet, pages)


def _page(
    request: Request, device: str, fleet: Fleet, pages: PageRenderer, *, problem: CloudError | None = None
) -> Response:
    try:
        box = fleet.box(device)
    except NotFoundError:
        if not fleet.is_forgotten(device):
            raise
        box = None
    values = {
        "device": device,
        "box": box,
        "problem": problem,
        "lasts": LASTS,
        "uninstall_line": UNINSTALL_LINE,
        "uninstall_qr": qr_code(UNINSTALL_LINE),
        "kick_lines": kick_lines(device),
    }
    return pages.page(request, "remove.html", values, status=400 if problem else 200)


@router.post("/revoke")
def revoke(
    request: Request, device: str, _: Admin, fleet: VisitorFleet, pages: Pages, *, typed: TypedName = ""
) -> Response:
    """Revoke a box: it is ignored from now on."""
    try:
        _check_typed(fleet, device, typed, phrase("revoke"))
        fleet.revoke(device)
    except NotFoundError:
        raise
    except CloudError as error:
        return _page(request, device, fleet, pages, problem=error)
    return RedirectResponse(f"/boxes/{device}/remove", 303)


@router.post("/block")
def block(device: str, _: Operator, fleet: VisitorFleet) -> Response:
    """Refuse a box until it is unblocked."""
    fleet.set_blocked(device, blocked=True)
    return RedirectResponse(f"/boxes/{device}", 303)


@router.post("/unblock")
def unblock(device: str, _: Operator, fleet: VisitorFleet) -> Response:
    """Let a blocked box go on as before."""
    fleet.set_blocked(device, blocked=False)
    return RedirectResponse(f"/boxes/{device}", 303)


@router.post("/forget")
def forget(
    request: Request, device: str, _: Admin, fleet: VisitorFleet, pages: Pages, *, typed: TypedName = ""
) -> Response:
    """Forget a box: all but its alarms and the audit is dropped."""
    try:
        id_ = _check_typed(fleet, device, typed, phrase("forget"))
        fleet.forget(id_)
    except NotFoundError:
        raise
    except CloudError as error:
        return _page(request, device, fleet, pages, problem=error)
    return RedirectResponse(f"/boxes/{id_}/remove", 303)


@router.post("/replace")
def replace_box(
    request: Request,
    device: str,
    _: Operator,
    enrolment: VisitorEnrolment,
    fleet: VisitorFleet,
    pages: Pages,
    *,
    lasts_s: Annotated[int, Form(ge=60, le=31_536_000)] = 3_600,
) -> Response:
    """Make a token by which another machine becomes this box, with its name and what was requested of it."""
    new = enrolment.make(TokenRequest(lasts_s=lasts_s, only_for=fleet.box(device).device))
    return token_page(request, pages, enrolment, fleet, new.token, line=new_line(request, new))


def _check_typed(fleet: Fleet, device: str, typed: str, do: str) -> str:
    box = fleet.box(device)
    if typed.strip() != box.name:
        text = phrase("cannot %(do)s %(box)s: %(typed)r was typed", do=do, box=box.name, typed=typed.strip())
        raise CloudError(text, remedy=phrase("type its name, %(box)s, to confirm", box=box.name))
    return box.device
