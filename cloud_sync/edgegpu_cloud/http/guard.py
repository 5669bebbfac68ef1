"""The guard of every request: its size and its time are bounded, its end is logged, a fault shows no details."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger("edgegpu_cloud.access")
_FAULTS = logging.getLogger(__name__)

BODY_MAX_BYTES = 32_768
BODY_MAX_S = 20.0
WRITE_MAX_S = 120.0
"""How long a client may take nothing more of an answer.

The kernel keeps megabytes of the answer, and reports room again when a part of them has gone: over a slow line that
takes half a minute, though the client reads all the time.
"""

LINES_PER_MINUTE = 600
"""Requests that are logged; the rest of a flood is counted."""

_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Added to each answer that does not say otherwise."""


class _RefusedBodyError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _SlowReaderError(Exception):
    """The client does not take the answer."""


@dataclass(frozen=True, slots=True)
class RefusalBody:
    """The body of an answer that the guard itself gives."""

    content_type: str
    content: bytes


Refusal = Callable[[str, int, str], RefusalBody]
"""Takes the path that was asked for, a status of HTTP, and the words; returns the body."""


def _plain_refusal(_path: str, _status: int, words: str) -> RefusalBody:
    return RefusalBody("text/plain; charset=utf-8", words.encode() + b"\n")


class RequestGuard:
    """The outermost layer: no other one sees each request begin and end."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        body_s: float = BODY_MAX_S,
        write_s: float = WRITE_MAX_S,
        refusal: Refusal = _plain_refusal,
    ) -> None:
        """Guard an application; `refusal` makes the answers of the guard itself."""
        self._app, self._body_s, self._write_s, self._refusal = app, body_s, write_s, refusal
        self._access_log = _AccessLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a body that is too long or too slow never reaches the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, written = time.monotonic(), 0, 0

        async def send_and_count(message: Message) -> None:
            nonlocal status, written
            if message["type"] == "http.response.start":
                status = message["status"]
                there = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in _HEADERS if one[0] not in there)]
            written += len(message.get("body", b""))
            try:
                async with asyncio.timeout(self._write_s):
                    await send(message)
            except TimeoutError as error:
                raise _SlowReaderError from error

        try:
            await self._app(scope, _replaying(await _whole(receive, self._body_s), receive), send_and_count)
        except _RefusedBodyError as error:
            await self._refuse(send_and_count, scope, error.status, "the request is too long or too slow")
        except _SlowReaderError:
            pass  # uvicorn closes a connection with an incomplete answer
        except Exception:  # noqa: BLE001  (the border of a request)
            _FAULTS.exception("a request failed")
            if not status:
                await self._refuse(send_and_count, scope, 500, "this is a fault of the server; its log says more")
        finally:
            self._access_log.log(_words(scope), status, written, took_s=time.monotonic() - began)

    async def _refuse(self, send: Send, scope: Scope, status: int, words: str) -> None:
        body = self._refusal(scope["path"], status, words)
        headers = [(b"content-type", body.content_type.encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.content})


class _AccessLog:
    """The access log: of a flood it has the beginning of each minute, and how many lines were left out."""

    def __init__(self) -> None:
        self._until_s, self._said, self._left_out = 0.0, 0, 0

    def log(self, words: str, status: int, written: int, *, took_s: float) -> None:
        """Log a request."""
        now_s = time.monotonic()
        if now_s >= self._until_s:
            if self._left_out:
                _LOG.warning("%d more requests in the last minute", self._left_out)
            self._until_s, self._said, self._left_out = now_s + 60.0, 0, 0
        if self._said >= LINES_PER_MINUTE:
            self._left_out += 1
            return
        self._said += 1
        _LOG.info("%s %d %d bytes %.0f ms", words, status, written, took_s * 1_000)


async def _whole(receive: Receive, within_s: float) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
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


def _words(scope: Scope) -> str:
    """Return address, method, path. Query and headers are left out: somebody may put a token there by mistake."""
    client = scope.get("client") or ("-", 0)
    return f"{client[0]} {scope['method']!s:.8} {ascii(scope['path'])[1:-1][:120]}"
