"""The API's errors, as Status objects like those of a real API server."""

from edgegpu_sim.api.objects import Json
from edgegpu_sim.errors import SimError


class ApiError(SimError):
    """The request is refused; `code` is the HTTP status and `reason` the word that clients check."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message

    def status(self) -> Json:
        """Return the Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


def not_found(resource: str, name: str) -> ApiError:
    """Return the error for an object that does not exist."""
    return ApiError(404, "NotFound", f'{resource} "{name}" not found')


def already_exists(resource: str, name: str) -> ApiError:
    """Return the error for a name that is taken."""
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists')


def conflict(resource: str, name: str, why: str) -> ApiError:
    """Return the error for an object that is not as the caller expected."""
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {why}')


def invalid(kind: str, name: str, why: str) -> ApiError:
    """Return the error for an object that breaks a rule."""
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {why}')


def bad_request(why: str) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(400, "BadRequest", why)


def expired(asked: int, oldest: int) -> ApiError:
    """Return the error for a watch or list that starts too far back."""
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def down() -> ApiError:
    """Return the error for an API server that does not run."""
    return ApiError(503, "ServiceUnavailable", "the API server is down")
