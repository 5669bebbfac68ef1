"""Errors of calls to the API server: one base class, and a subclass only where a caller reacts to it."""

from edgegpu_base.errors import EdgegpuError


class KubeError(EdgegpuError):
    """A call failed; the text says which call and why. `status` is the HTTP status, None when there was no answer."""

    def __init__(self, text: str, *, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class NotFound(KubeError):  # noqa: N818  (named as the API names it)
    """The object does not exist (any more)."""


class Conflict(KubeError):  # noqa: N818
    """The object is not as the call expected: another UID or version, or bound already."""


class Forbidden(KubeError):  # noqa: N818
    """The API server does not know us, or does not allow the call."""


class ExpiredError(KubeError):
    """The resource version or page token is too old: list again."""


class Unavailable(KubeError):  # noqa: N818
    """No answer, 5xx or 429: whether the call took effect is unknown, and it can be tried again."""


_BY_STATUS: dict[int, type[KubeError]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: ExpiredError,
    429: Unavailable,
}

_SERVER_ERROR = 500


def of_status(status: int, text: str) -> KubeError:
    """Return the error for an HTTP status."""
    kind = Unavailable if status >= _SERVER_ERROR else _BY_STATUS.get(status, KubeError)
    return kind(text, status=status)
