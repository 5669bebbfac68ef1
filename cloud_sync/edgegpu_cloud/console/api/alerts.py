"""Alerts, and the evidence of what containers see of their cards."""

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from pydantic import Field
from starlette.responses import Response

from edgegpu_cloud.alerts.rules import AlertKind
from edgegpu_cloud.alerts.service import LONGEST_SILENCE_S, Alerts, AlertView
from edgegpu_cloud.console.api.access import ApiAdmin, ApiOperator, ApiVisitor
from edgegpu_cloud.console.api.conditions import Limit, NumberCursor, page_with
from edgegpu_cloud.console.api.idempotency import Once
from edgegpu_cloud.console.api.models.fleet import ApiModel, ApiPage
from edgegpu_cloud.console.paths import PathNumber
from edgegpu_cloud.fleet.history.evidence import EvidenceService
from edgegpu_cloud.store.alerts.tables import AlertFilter
from edgegpu_sync.messages.evidence import SeenCards

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

router = APIRouter(tags=["alerts and evidence"])

WebhookId = Annotated[str, Path(max_length=40)]

_STATES = {"firing": False, "over": True, "all": None}


class ApiAlert(ApiModel):
    """Something that is wrong, since when, and until when nobody is told of it."""

    number: int
    kind: AlertKind
    device: str = Field(description="Empty where it is no box's.")
    box: str
    about: str
    text: str
    since_s: float
    firing_at_s: float | None
    clear_since_s: float | None = Field(description="Since when nothing is wrong any more, while it is not over.")
    resolved_at_s: float | None
    silenced_until_s: float
    silenced_by: str


class ApiSilence(ApiModel):
    """How long nobody is told of an alert."""

    for_s: Annotated[int, Field(ge=0, le=LONGEST_SILENCE_S, description="0: from now on again.")]


class ApiWebhook(ApiModel):
    """Who is told of alerts, and the messages that nobody has taken yet."""

    receivers: list[str] = Field(description="Their hosts: the rest of an address may be a secret.")
    waiting: int = Field(description="Messages that wait for a receiver.")
    error: str = Field(description="Of the last message that was tried and not taken.")


class ApiReceiver(ApiModel):
    """Who is told of alerts by messages, and what waits for them."""

    id: str = Field(description="Empty where controller.yaml has it, which alone changes it.")
    host: str = Field(description="Of its address: the rest may be a secret.")
    disabled: bool
    by: str
    at_s: float | None
    waiting: int = Field(description="Messages that wait for it.")
    error: str = Field(description="Of the last message that was tried and not taken.")


class ApiNewReceiver(ApiReceiver):
    """A webhook that was just made."""

    secret: str = Field(description="It signs the messages; it is shown this once.")


class ApiReceiverRequest(ApiModel):
    """The address of a new webhook."""

    url: Annotated[str, Field(max_length=1_000, description="https://HOST/PATH")]


class ApiReceiverChange(ApiModel):
    """What is changed of a webhook."""

    disabled: bool


class ApiCheck(ApiModel):
    """What a container saw when it was checked."""

    verdict: SeenCards
    held: list[str]
    seen: list[str]
    lines: str = Field(description="What `nvidia-smi -L` prints there: the container's word.")
    text: str
    at_s: float


class ApiCheckedContainer(ApiModel):
    """A container that holds cards, and what it saw."""

    uid: str
    namespace: str
    pod: str
    container: str
    cards: list[str]
    checked: ApiCheck | None = Field(description="null before the first check.")
    stale: bool = Field(description="It holds other cards now than when it was checked.")


class ApiEvidence(ApiModel):
    """The evidence of a box."""

    device: str
    box: str
    containers: list[ApiCheckedContainer]
    checking: list[str] = Field(description="The ids of the checks under way.")
    cannot: str | None = Field(description="Why the box cannot be asked now.")
    failed: str = Field(description="Why the last check failed.")


class ApiChecks(ApiModel):
    """The checks that were asked for."""

    commands: list[str] = Field(description="Their ids: /commands/ID follows each.")


def _alerts(request: Request, visitor: ApiVisitor) -> Alerts:
    parts: ConsoleParts = request.state.parts
    return parts.alerts(visitor)


def _evidence(request: Request, visitor: ApiVisitor) -> EvidenceService:
    parts: ConsoleParts = request.state.parts
    return parts.evidence(visitor)


ApiAlerts = Annotated[Alerts, Depends(_alerts)]
ApiEvidenceService = Annotated[EvidenceService, Depends(_evidence)]


@router.get("/alerts")
def list_alerts(
    request: Request,
    alerts: ApiAlerts,
    *,
    box: Annotated[str, Query(max_length=253, description="Its id or name; empty: all.")] = "",
    state: Literal["firing", "over", "all"] = "firing",
    kind: AlertKind | None = None,
    limit: Limit = 50,
    cursor: NumberCursor = 0,
) -> ApiPage[ApiAlert]:
    """Return alerts, newest first; those that fire unless `state` says otherwise."""
    where = AlertFilter(over=_STATES[state], kind=kind or "")
    found = alerts.list(box.replace("\0", ""), where=where, before=cursor, limit=limit + 1)
    more = str(found[limit - 1].alert.number) if len(found) > limit else ""
    return page_with(request, [_alert(one) for one in found[:limit]], more)


def _alert(view: AlertView) -> ApiAlert:
    names = [name for name in ApiAlert.model_fields if name != "box"]
    return ApiAlert(box=view.box, **{name: getattr(view.alert, name) for name in names})


@router.get("/alerts/webhook")
def alert_webhook(_: ApiAdmin, alerts: ApiAlerts) -> ApiWebhook:
    """Return the receivers of messages about alerts, and how many messages wait; for admins of all boxes."""
    return _webhook(alerts)


def _webhook(alerts: Alerts) -> ApiWebhook:
    waiting, error = alerts.waiting()
    return ApiWebhook(receivers=list(alerts.receivers()), waiting=waiting, error=error)


@router.get("/alerts/webhooks")
def list_webhooks(_: ApiAdmin, alerts: ApiAlerts) -> list[ApiReceiver]:
    """Return the webhooks; for admins of all boxes."""
    return [ApiReceiver.model_validate(one) for one in alerts.webhooks.all()]


@router.post("/alerts/webhooks", status_code=201, response_model=ApiNewReceiver)
def create_webhook(body: ApiReceiverRequest, _: ApiAdmin, alerts: ApiAlerts, once: Once) -> Response:
    """Make a webhook; its secret is in this answer, and nowhere else."""
    return once(lambda: _made(alerts, body.url), status=201)


def _made(alerts: Alerts, url: str) -> ApiNewReceiver:
    made = alerts.webhooks.create(url)
    return ApiNewReceiver(**ApiReceiver.model_validate(made.webhook).model_dump(), secret=made.secret)


@router.patch("/alerts/webhooks/{id_}", response_model=ApiReceiver)
def change_webhook(id_: WebhookId, body: ApiReceiverChange, _: ApiAdmin, alerts: ApiAlerts, once: Once) -> Response:
    """Disable or enable a webhook; messages that wait for a disabled one are dropped."""
    return once(lambda: ApiReceiver.model_validate(alerts.webhooks.disable(id_, disabled=body.disabled)))


@router.post("/alerts/webhooks/{id_}/test", status_code=202, response_model=ApiReceiver)
def try_webhook(id_: WebhookId, _: ApiAdmin, alerts: ApiAlerts, once: Once) -> Response:
    """Let a test message wait for a webhook; a running controller sends it within half a minute."""
    return once(lambda: ApiReceiver.model_validate(alerts.webhooks.test(id_)), status=202)


@router.delete("/alerts/webhooks/{id_}", status_code=204)
def delete_webhook(id_: WebhookId, _: ApiAdmin, alerts: ApiAlerts, once: Once) -> Response:
    """Delete a webhook, and the messages that wait for it."""
    return once(lambda: alerts.webhooks.delete(id_))


@router.post("/alerts/webhook/test", status_code=202, response_model=ApiWebhook)
def send_test(_: ApiAdmin, alerts: ApiAlerts, once: Once) -> Response:
    """Let a test message wait for each receiver; a running controller sends it within half a minute."""
    return once(lambda: _tested(alerts), status=202)


def _tested(alerts: Alerts) -> ApiWebhook:
    alerts.test()
    return _webhook(alerts)


@router.post("/alerts/{number}/silence", status_code=204)
def silence(number: PathNumber, body: ApiSilence, _: ApiOperator, alerts: ApiAlerts, once: Once) -> Response:
    """Let nobody be told of an alert for a while."""
    return once(lambda: alerts.silence(number, for_s=body.for_s))


@router.get("/boxes/{box}/evidence")
def box_evidence(box: str, evidence: ApiEvidenceService) -> ApiEvidence:
    """Return what the containers of a box see of their cards, and when that was checked."""
    return ApiEvidence.model_validate(evidence.of_box(box))


@router.post("/boxes/{box}/evidence/check", status_code=202, response_model=ApiChecks)
def check_evidence(box: str, _: ApiOperator, evidence: ApiEvidenceService, once: Once) -> Response:
    """Let a box check again; while it does, its checks under way are the answer."""
    return once(lambda: ApiChecks(commands=list(evidence.check(box))), status=202)
