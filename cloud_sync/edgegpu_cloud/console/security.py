"""The headers of every answer: what a page may load, and who may frame it."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SOURCES = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
POLICY = "; ".join(f"{name} {sources}" for name, sources in _SOURCES.items())
"""The content security policy: nothing inline, nothing evaluated, nothing from another host."""

_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"strict-transport-security", b"max-age=31536000"),
)
_NO_STORE = (b"cache-control", b"no-store")


class SecurityHeaders:
    """Adds the headers to each answer; an answer that says nothing of caching is not cached."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name for name, _ in message["headers"]}
                more = [one for one in (*_HEADERS, _NO_STORE) if one[0] not in there]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
