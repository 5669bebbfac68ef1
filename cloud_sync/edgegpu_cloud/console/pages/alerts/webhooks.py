"""Webhooks: the list, a new one with its secret shown once, test, disable, delete; for admins of all boxes."""

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Depends, Form, Path, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.alerts.webhooks import NewWebhook, Webhooks
from edgegpu_cloud.console.context import Pages
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Admin
from edgegpu_cloud.errors import CloudError, NotFoundError

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter(prefix="/alerts/webhooks")

Id = Annotated[str, Path(max_length=40)]


def _webhooks(request: Request, visitor: Admin) -> Webhooks:
    parts: ConsoleParts = request.state.parts
    return parts.alerts(visitor).webhooks


VisitorWebhooks = Annotated[Webhooks, Depends(_webhooks)]


@router.get("")
def webhooks_page(request: Request, webhooks: VisitorWebhooks, pages: Pages) -> Response:
    """Show the webhooks."""
    return _page(request, webhooks, pages)


def _page(
    request: Request,
    webhooks: Webhooks,
    pages: PageRenderer,
    *,
    problem: CloudError | None = None,
    new: NewWebhook | None = None,
    url: str = "",
) -> Response:
    values = {"webhooks": webhooks.all(), "problem": problem, "new": new, "url": url}
    return pages.page(request, "webhooks.html", values, status=400 if problem else 200)


@router.post("")
def make_webhook(
    request: Request, webhooks: VisitorWebhooks, pages: Pages, url: Annotated[str, Form(max_length=1_000)] = ""
) -> Response:
    """Make a webhook; the answer shows its secret this once."""
    try:
        new = webhooks.create(url)
    except CloudError as error:
        return _page(request, webhooks, pages, problem=error, url=url)
    return _page(request, webhooks, pages, new=new)


@router.post("/{id_}/test")
def try_webhook(request: Request, id_: Id, webhooks: VisitorWebhooks, pages: Pages) -> Response:
    """Let a test message wait for a webhook."""
    try:
        webhooks.test(id_)
    except NotFoundError:
        raise
    except CloudError as error:
        return _page(request, webhooks, pages, problem=error)
    return RedirectResponse("/alerts/webhooks", 303)


@router.post("/{id_}/disable")
def disable_webhook(id_: Id, webhooks: VisitorWebhooks, disabled: Annotated[str, Form(max_length=8)] = "") -> Response:
    """Disable a webhook, or enable it again (`disabled` is empty)."""
    webhooks.disable(id_, disabled=bool(disabled))
    return RedirectResponse("/alerts/webhooks", 303)


@router.get("/{id_}/delete")
def confirm_page(request: Request, id_: Id, webhooks: VisitorWebhooks, pages: Pages) -> Response:
    """Show what deleting a webhook does, before it is done."""
    return pages.page(request, "webhook-delete.html", {"webhook": webhooks.get(id_)})


@router.post("/{id_}/delete")
def delete_webhook(id_: Id, webhooks: VisitorWebhooks, confirmed: Annotated[str, Form(max_length=8)] = "") -> Response:
    """Delete a webhook; one that was not confirmed is asked about first."""
    if not confirmed:
        return RedirectResponse(f"/alerts/webhooks/{webhooks.get(id_).id}/delete", 303)
    webhooks.delete(id_)
    return RedirectResponse("/alerts/webhooks", 303)
