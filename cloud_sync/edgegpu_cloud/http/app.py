"""The HTTPS application for boxes and their installers: enrolment, renewal, install.sh and the bundle."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from edgegpu_cloud.enrolment import tokens
from edgegpu_cloud.enrolment.bodies import (
    ApprovalPending,
    EnrolAsk,
    EnrolmentDenied,
    EnrolmentGranted,
    RenewalAnswer,
    RenewAsk,
)
from edgegpu_cloud.enrolment.enrolment import EnrolmentService
from edgegpu_cloud.enrolment.tokens import RefusalCode, RequestRefusedError, Throttle
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.http.guard import BODY_MAX_S, WRITE_MAX_S, RequestGuard
from edgegpu_cloud.http.release import INSTALLER, SUMS, BundleFolder
from edgegpu_sync.faults import first_fault

_LOG = logging.getLogger(__name__)

T = TypeVar("T", bound=BaseModel)

SIGNATURE = "Edgegpu-Signature"
_STATUS = {RefusalCode.TOO_MANY: 429, RefusalCode.BAD_REQUEST: 400, RefusalCode.TOKEN_UNKNOWN: 401}
_FORBIDDEN = 403

REFUSED_WITH_TOKEN, REFUSED_WITH_TOKEN_HERE = 200, 50
"""Refusals with one token within ten minutes, in all and from one address; what is refused beyond is only counted."""


@dataclass(frozen=True, slots=True)
class _Throttles:
    """The throttles: boxes of a site share an address, so one box must not keep another waiting.

    A box with a token of ours, or with the signature of its key, has its own count. Senders with neither have one count
    for each address. A token has a count too, and one for each address that sends it: whoever holds it may name a new
    machine each time. Beyond these, no request is refused that would be granted.
    """

    known: Throttle = field(default_factory=Throttle)
    strangers: Throttle = field(default_factory=Throttle)
    tokens: Throttle = field(default_factory=lambda: Throttle(most=REFUSED_WITH_TOKEN))
    tokens_here: Throttle = field(default_factory=lambda: Throttle(most=REFUSED_WITH_TOKEN_HERE))


def make_app(
    service: EnrolmentService,
    release: BundleFolder,
    *,
    ca_pem: str,
    clock: Callable[[], float],
    body_s: float = BODY_MAX_S,
    write_s: float = WRITE_MAX_S,
) -> ASGIApp:
    """Build the application, which handles requests without sockets and TLS.

    Args:
        service: decides about boxes.
        release: the bundle.
        ca_pem: the answer of `/ca.crt`; boxes know it by its SHA-256.
        clock: seconds since 1970, for the throttle.
        body_s: how long a client may take for the body of a request.
        write_s: how long a client may take for one piece of an answer.
    """
    app = FastAPI(title="edgegpu-cloud", docs_url=None, redoc_url=None, openapi_url=None)
    enrolments, renewals = _Throttles(), _Throttles()

    @app.post("/v1/enrol")
    async def enrol(request: Request) -> Response:
        body, address = await request.body(), _address(request)

        return await run_in_threadpool(_decide, enrolments, clock, address, partial(_enrolment, service, body, address))

    @app.post("/v1/renew")
    async def renew(request: Request) -> Response:
        body, address = await request.body(), _address(request)
        signature = request.headers.get(SIGNATURE, "")

        def read() -> _Asked:
            ask = _read(RenewAsk, body)
            who = f"{address} {ask.device}" if service.signed(ask, signed=body, signature=signature) else ""
            return _Asked(who, lambda: service.renew(ask, signed=body, signature=signature, address=address))

        return await run_in_threadpool(_decide, renewals, clock, address, read)

    _add_files(app, release, ca_pem)
    app.add_exception_handler(HTTPException, _plain)
    return RequestGuard(app, body_s=body_s, write_s=write_s)


def _add_files(app: FastAPI, release: BundleFolder, ca_pem: str) -> None:
    @app.api_route("/healthz", methods=["GET", "HEAD"])
    def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @app.api_route("/ca.crt", methods=["GET", "HEAD"])
    def authority() -> Response:
        return Response(ca_pem, media_type="application/x-pem-file")

    @app.api_route(f"/{INSTALLER}", methods=["GET", "HEAD"])
    def installer() -> Response:
        return _text(release.installer(), "there is no bundle here: `edgegpu-cloud serve --bundle FOLDER`")

    @app.api_route(f"/{SUMS}", methods=["GET", "HEAD"])
    def sums() -> Response:
        return _text(release.sums(), "there is no bundle here")

    @app.api_route("/{name}", methods=["GET", "HEAD"])
    def bundle(name: str) -> Response:
        path = release.file(name)
        if path is None:
            return PlainTextResponse("there is no such file\n", 404)
        return FileResponse(path, media_type="application/octet-stream")


def _text(content: bytes | None, missing: str) -> Response:
    if content is None:
        return PlainTextResponse(missing + "\n", 404)
    return Response(content, media_type="text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request and its sender; `who` is empty where nothing shows that the sender is one of ours.

    `token`: the digest of its token, where it has one of ours. `refusal` looks why it would be refused; `throttled`
    counts a request that is not decided about.
    """

    who: str
    decide: Callable[[], EnrolmentGranted | ApprovalPending | RenewalAnswer]
    token: str = ""
    refusal: Callable[[], RequestRefusedError | None] = lambda: None
    throttled: Callable[[], None] = lambda: None

    def counts(self, throttles: _Throttles, address: str) -> list[tuple[Throttle, str]]:
        """Return the throttles that count its refusal, each with the key."""
        own = (throttles.known, self.who) if self.who else (throttles.strangers, address)
        if not self.token:
            return [own]
        return [own, (throttles.tokens_here, f"{address} {self.token}"), (throttles.tokens, self.token)]


def _enrolment(service: EnrolmentService, body: bytes, address: str) -> _Asked:
    ask = _read(EnrolAsk, body)
    token = tokens.digest(ask.token) if service.knows(ask) else ""
    return _Asked(
        who=f"{address} {token} {ask.instance}" if token else "",
        decide=lambda: service.enrol(ask, address=address),
        token=token,
        refusal=lambda: service.refusal(ask),
        throttled=lambda: service.throttled(ask, address=address),
    )


def _decide(throttles: _Throttles, clock: Callable[[], float], address: str, read: Callable[[], _Asked]) -> Response:
    counts = [(throttles.strangers, address)]
    try:
        asked = read()
        (own, who), *of_token = counts = asked.counts(throttles, address)
        if wait_s := math.ceil(own.wait_s(who, clock())):
            text = f"too many wrong tries from {address}"
            remedy = f"wait {wait_s} s" if asked.who else f"paste the whole line again, or wait {wait_s} s"
            return _denied(RequestRefusedError(RefusalCode.TOO_MANY, text, remedy), wait_s=wait_s)
        wait_s = math.ceil(max((one.wait_s(key, clock()) for one, key in of_token), default=0.0))
        if wait_s and (refusal := asked.refusal()) is not None:
            asked.throttled()
            return _denied(_beyond(refusal, wait_s), wait_s=wait_s)
        answer = asked.decide()
    except RequestRefusedError as error:
        throttle, who = counts[0]
        if not throttle.wait_s(who, clock()):
            _LOG.warning("refused %s: %s", address, error)
        for one, key in counts:
            one.wrong(key, clock())
        return _denied(error)
    except CloudError as error:
        _LOG.error("cannot decide about a box of %s: %s", address, error)
        return JSONResponse(
            EnrolmentDenied(code="ERROR", text="the cloud cannot decide now: its log says more").model_dump(), 503
        )
    return JSONResponse(answer.model_dump(mode="json"), 202 if isinstance(answer, ApprovalPending) else 200)


def _beyond(error: RequestRefusedError, wait_s: int) -> RequestRefusedError:
    """Return the answer to a request whose token was refused too often: why it is, too, and what helps."""
    text = f"too many refused requests with this token: {error.text}"
    return RequestRefusedError(RefusalCode.TOO_MANY, text, f"{error.remedy}; or wait {wait_s} s and try again")


def _denied(error: RequestRefusedError, *, wait_s: int = 0) -> Response:
    content = EnrolmentDenied(code=error.code, text=error.text, remedy=error.remedy).model_dump()
    headers = {"Retry-After": str(wait_s)} if wait_s else None
    return JSONResponse(content, _STATUS.get(error.code, _FORBIDDEN), headers=headers)


def _read(model: type[T], body: bytes) -> T:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        text = f"cannot read the request: {first_fault(error, whole='the body')}"
        remedy = "check that this cloud knows the agent's version"
        raise RequestRefusedError(RefusalCode.BAD_REQUEST, text[:300], remedy) from error


def _address(request: Request) -> str:
    return request.client.host if request.client else "-"


async def _plain(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return PlainTextResponse(f"{error.detail if isinstance(error, HTTPException) else 'fault'}\n", status)
