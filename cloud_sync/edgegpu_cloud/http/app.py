"""The HTTPS application for boxes and their installers: enrolment, renewal, install.sh and the bundle."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
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
from edgegpu_sync.wire import first_fault

_LOG = logging.getLogger(__name__)

T = TypeVar("T", bound=BaseModel)

SIGNATURE = "Edgegpu-Signature"
_STATUS = {RefusalCode.TOO_MANY: 429, RefusalCode.BAD_REQUEST: 400, RefusalCode.TOKEN_UNKNOWN: 401}
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class _Throttles:
    """The throttles: boxes of a site share an address, so one box must not keep another waiting.

    A box with a token of ours, or with the signature of its key, has its own count. Senders with neither have one count
    for each address.
    """

    known: Throttle = field(default_factory=Throttle)
    strangers: Throttle = field(default_factory=Throttle)


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

        def read() -> _Asked:
            ask = _read(EnrolAsk, body)
            who = f"{address} {tokens.digest(ask.token)} {ask.instance}" if service.knows(ask) else ""
            return _Asked(who, lambda: service.enrol(ask, address=address))

        return await run_in_threadpool(_decide, enrolments, clock, address, read)

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
    """A request and its sender; `who` is empty where nothing shows that the sender is one of ours."""

    who: str
    decide: Callable[[], EnrolmentGranted | ApprovalPending | RenewalAnswer]


def _decide(throttles: _Throttles, clock: Callable[[], float], address: str, read: Callable[[], _Asked]) -> Response:
    throttle, who = throttles.strangers, address
    try:
        asked = read()
        if asked.who:
            throttle, who = throttles.known, asked.who
        if wait_s := math.ceil(throttle.wait_s(who, clock())):
            text = f"too many wrong tries from {address}"
            remedy = f"wait {wait_s} s" if asked.who else f"paste the whole line again, or wait {wait_s} s"
            return _denied(RequestRefusedError(RefusalCode.TOO_MANY, text, remedy), wait_s=wait_s)
        answer = asked.decide()
    except RequestRefusedError as error:
        if not throttle.wait_s(who, clock()):
            _LOG.warning("refused %s: %s", address, error)
        throttle.wrong(who, clock())
        return _denied(error)
    except CloudError as error:
        _LOG.error("cannot decide about a box of %s: %s", address, error)
        return JSONResponse(
            EnrolmentDenied(code="ERROR", text="the cloud cannot decide now: its log says more").model_dump(), 503
        )
    return JSONResponse(answer.model_dump(mode="json"), 202 if isinstance(answer, ApprovalPending) else 200)


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
