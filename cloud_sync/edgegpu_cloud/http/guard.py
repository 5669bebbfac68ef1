"""What stands before every request: its size and its time are bounded, its end is logged, a fault says no more."""

import asyncio
import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger("edgegpu_cloud.access")
_FAULTS = logging.getLogger(__name__)

BODY_MAX_BYTES = 32_768
BODY_MAX_S = 20.0
_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class _RefusedBodyError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Guard:
    """The outermost layer: the one place that sees each request begin and end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a body that is too long or too slow never reaches the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, written = time.monotonic(), 0, 0

        async def noting(message: Message) -> None:
            nonlocal status, written
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_HEADERS]
            written += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, _replaying(await _whole(receive), receive), noting)
        except _RefusedBodyError as error:
            await _answer(noting, error.status, b"the request is too long or too slow")
        except Exception:  # noqa: BLE001  (the border of a request)
            _FAULTS.exception("a request failed")
            if not status:
                await _answer(noting, 500, b"this is a fault of the server; its log says more")
        finally:
            _LOG.info("%s %d %d bytes %.0f ms", _words(scope), status, written, (time.monotonic() - began) * 1_000)


async def _whole(receive: Receive) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_MAX_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _RefusedBodyError(400)
                body += message.get("body", b"")
                if len(body) > BODY_MAX_BYTES:
                    raise _RefusedBodyError(413)
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError as error:
        raise _RefusedBodyError(408) from error


def _replaying(body: bytes, after: Receive) -> Receive:
    once: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return once.pop() if once else await after()

    return receive


async def _answer(send: Send, status: int, text: bytes) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text + b"\n"})


def _words(scope: Scope) -> str:
    """Address, method, path. No query and no header: a token may be in one by somebody's mistake."""
    client = scope.get("client") or ("-", 0)
    return f"{client[0]} {scope['method']!s:.8} {ascii(scope['path'])[1:-1][:120]}"
