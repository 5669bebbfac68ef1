"""Idempotency-Key: a request that changes something may be sent again, and changes it once."""

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Header, Request
from pydantic import BaseModel
from starlette.responses import Response

from edgegpu_cloud.console.api.access import ApiVisitor
from edgegpu_cloud.fleet.idempotency import RepeatableRequest, StoredAnswer

if TYPE_CHECKING:
    from edgegpu_cloud.console.web import ConsoleParts

REPLAYED = "Idempotency-Replayed"
_KEY = r"[A-Za-z0-9._~:/+=-]{16,128}"
_LEAST, _MOST = 16, 130
_HELP = """Chosen by you, a UUID best: the same request under the same key is done once, and answered each time as the
first time, for 24 hours. Another request under it: 422. While the first one is being done: 409."""


class MadeOnce:
    """Answers a request with what its change returns, or with the stored answer of the first time."""

    def __init__(self, parts: "ConsoleParts", request: RepeatableRequest | None) -> None:
        """Take the console's parts, and the request; None: it has no key."""
        self._parts, self._request = parts, request

    def __call__(self, change: Callable[[], BaseModel | None], *, status: int = 200) -> Response:
        """Return the answer; `status` is that of a change that was made: 204 where `change` returns nothing."""

        def answer() -> StoredAnswer:
            body = change()
            return StoredAnswer(204, "") if body is None else StoredAnswer(status, body.model_dump_json())

        found, before = (answer(), False) if self._request is None else self._parts.repeated.once(self._request, answer)
        headers = {REPLAYED: "true"} if before else {}
        return Response(
            found.body or None, found.status, headers=headers, media_type="application/json" if found.body else None
        )


async def _made_once(
    request: Request,
    visitor: ApiVisitor,
    idempotency_key: Annotated[
        str | None,
        Header(min_length=_LEAST, max_length=_MOST, pattern=f'^("{_KEY}"|{_KEY})$', description=_HELP),
    ] = None,
) -> MadeOnce:
    parts: ConsoleParts = request.state.parts
    if idempotency_key is None:
        return MadeOnce(parts, None)
    asked = [request.method, request.url.path, request.url.query, request.headers.get("if-match", "")]
    digest = hashlib.sha256(json.dumps(asked).encode() + await request.body()).hexdigest()
    return MadeOnce(parts, RepeatableRequest(by=visitor.name, key=idempotency_key.strip('"'), digest=digest))


Once = Annotated[MadeOnce, Depends(_made_once)]
