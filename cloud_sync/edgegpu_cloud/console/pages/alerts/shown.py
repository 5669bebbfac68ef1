"""Alerts: those that fire and those that have ended, what to do about each, silence, and the webhook."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from edgegpu_cloud.alerts.rules import AlertKind
from edgegpu_cloud.alerts.service import Alerts
from edgegpu_cloud.console.context import Pages
from edgegpu_cloud.console.paths import PathNumber
from edgegpu_cloud.console.rendering import PageRenderer
from edgegpu_cloud.console.visitor import Admin, Operator, SignedIn
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.access import Permission
from edgegpu_cloud.numbers import is_number
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.alerts.tables import AlertFilter

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter(prefix="/alerts")

PAGE = 50
SILENCES_S = (7_200, 86_400, 604_800)
"""For how long an alert may be silenced by a button."""

_SHOWN: Mapping[str, bool | None] = {"open": False, "ended": True, "all": None}


@dataclass(frozen=True, slots=True)
class WebhookPanel:
    """The webhook as an admin sees it: hosts of receivers, messages that wait, the last error."""

    hosts: tuple[str, ...]
    waiting: int
    error: str


def _alerts(request: Request, visitor: SignedIn) -> Alerts:
    parts: ConsoleParts = request.state.parts
    return parts.alerts(visitor)


VisitorAlerts = Annotated[Alerts, Depends(_alerts)]
Text = Annotated[str, Query(max_length=200)]


@router.get("")
def alerts_page(
    request: Request,
    visitor: SignedIn,
    alerts: VisitorAlerts,
    pages: Pages,
    *,
    q: Text = "",
    kind: Text = "",
    show: Text = "open",
    before: Annotated[str, Query(max_length=16, pattern="^[0-9]*$")] = "",
) -> Response:
    """Show a page of alerts, newest first."""
    query = {
        "q": q.replace("\0", "").strip(),
        "kind": kind if kind in set(AlertKind) else "",
        "show": show if show in _SHOWN else "open",
        "before": before,
    }
    whole = visitor.access.may(Permission.SETTINGS)
    return _page(request, alerts, pages, query, webhook=_webhook(alerts) if whole else None)


def _page(
    request: Request,
    alerts: Alerts,
    pages: PageRenderer,
    query: Mapping[str, str],
    *,
    webhook: WebhookPanel | None,
    problem: CloudError | None = None,
) -> Response:
    where = AlertFilter(over=_SHOWN[query["show"]], kind=query["kind"], search=query["q"])
    found = alerts.list(where=where, before=int(query["before"] or 0), limit=PAGE + 1)
    shown, words = found[:PAGE], pages.words(request)
    values = {
        "query": query,
        "here_url": f"/alerts?{urlencode(query)}",
        "alerts": shown,
        "older": str(shown[-1].alert.number) if len(found) > PAGE else "",
        "kinds": _kinds(words),
        "remedies": _remedies(words),
        "silences": SILENCES_S,
        "causes": [one for one in alerts.causes() if one.number > 1] if query["show"] == "open" else [],
        "webhook": webhook,
        "problem": problem,
    }
    return pages.page(request, "alerts.html", values, block="list", status=400 if problem else 200)


def _webhook(alerts: Alerts) -> WebhookPanel:
    waiting, error = alerts.waiting()
    return WebhookPanel(tuple(alerts.receivers()), waiting, error)


def _kinds(words: Callable[[str], str]) -> Mapping[str, str]:
    """Return the names of the kinds for people."""
    return {
        AlertKind.OFFLINE.value: words("Box offline"),
        AlertKind.DRIFT.value: words("Changed on the box"),
        AlertKind.NOT_APPLIED.value: words("Request not applied"),
        AlertKind.UNHEALTHY.value: words("Bad health"),
        AlertKind.CLUSTER.value: words("Cluster in doubt"),
        AlertKind.BOX_CERTIFICATE.value: words("Certificate of a box ends"),
        AlertKind.OWN_CERTIFICATE.value: words("Certificate of the controller ends"),
        AlertKind.ALARM.value: words("Alarm"),
    }


def _remedies(words: Callable[[str], str]) -> Mapping[str, str]:
    """Return what to do about each kind."""
    return {
        AlertKind.OFFLINE.value: words("Check its power and network; then `edgegpu agent status` on the box."),
        AlertKind.DRIFT.value: words(
            "Whoever writes it back has to stop, or request here what it writes: the box's page shows both."
        ),
        AlertKind.NOT_APPLIED.value: words("The box's page says why, with the numbers: request what fits."),
        AlertKind.UNHEALTHY.value: words(
            "The box's page has its parts; run the doctor there: it says what mends them."
        ),
        AlertKind.CLUSTER.value: words(
            "Look at the machines. A box was really moved: `edgegpu-cloud boxes cluster BOX --accept`; else `--refuse`."
        ),
        AlertKind.BOX_CERTIFICATE.value: words("`edgegpu agent status` on the box says why it is not renewed."),
        AlertKind.OWN_CERTIFICATE.value: words(
            "The log of `edgegpu-cloud serve` says why it is not renewed; restart the broker if its own was renewed."
        ),
        AlertKind.ALARM.value: words("Read it, do what it asks for, and mark it as seen: the alert ends then."),
    }


@router.get("/count")
def count(request: Request, _: SignedIn, pages: Pages) -> Response:
    """Return the count in the menu, for a page that is open."""
    return pages.page(request, "alert-count.html")


@router.post("/test")
def send_test(request: Request, _: Admin, alerts: VisitorAlerts, pages: Pages) -> Response:
    """Let a test message wait for each receiver."""
    try:
        alerts.test()
    except CloudError as error:
        query = {"q": "", "kind": "", "show": "open", "before": ""}
        return _page(request, alerts, pages, query, webhook=_webhook(alerts), problem=error)
    return RedirectResponse("/alerts", 303)


@router.post("/silence")
def silence_cause(
    _: Operator,
    alerts: VisitorAlerts,
    *,
    kind: Annotated[str, Form(max_length=40)] = "",
    about: Annotated[str, Form(max_length=300)] = "",
    do: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Silence all alerts of one cause for so many seconds; 0 ends their silence."""
    if kind not in set(AlertKind) or not is_number(do, digits=10):
        raise CloudError(
            phrase("cannot do %(do)r to an alert", do=do), remedy=phrase("use a button of the page Alerts")
        )
    alerts.silence_cause(AlertKind(kind), about.replace("\0", ""), for_s=float(do))
    return RedirectResponse("/alerts", 303)


@router.post("/{number}")
def change(
    number: PathNumber, _: Operator, alerts: VisitorAlerts, do: Annotated[str, Form(max_length=10)] = ""
) -> Response:
    """Silence an alert for so many seconds, end its silence (0), or mark its alarm as seen (`seen`)."""
    if do == "seen":
        alerts.alarm_seen(number)
    elif is_number(do, digits=10):
        alerts.silence(number, for_s=float(do))
    else:
        raise CloudError(
            phrase("cannot do %(do)r to an alert", do=do), remedy=phrase("use a button of the page Alerts")
        )
    return RedirectResponse("/alerts", 303)
