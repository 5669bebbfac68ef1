"""The requests on the plugin's socket that set or end a container's live limit."""

import json
import logging
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgegpu_base.http_unix import ChangeRequest, Response
from edgegpu_plugin.containers.isolation import IsolatedContainers
from edgegpu_plugin.errors import LiveLimitError, PluginError, UnknownContainerError

_LOG = logging.getLogger(__name__)
_TARGET = re.compile(r"/v1/pods/([0-9a-zA-Z-]{1,64})/([0-9a-z-]{1,63})/live-limit")
_BODY = """{"memory_units": {"GPU-...": 2}}"""


class LiveLimitBody(BaseModel):
    """The body of a PUT: the units that the container may use, by card."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    memory_units: Annotated[dict[str, int], Field(min_length=1, max_length=64)]


class LimitRequests:
    """Answers PUT and DELETE of `/v1/pods/{uid}/{container}/live-limit`; only root can open the socket."""

    def __init__(self, isolated: IsolatedContainers, *, changed: Callable[[], None]) -> None:
        """Build the answers.

        Args:
            isolated: the containers that the limiter holds.
            changed: called after a limit has changed.
        """
        self._isolated = isolated
        self._changed = changed

    def answer(self, request: ChangeRequest) -> Response:
        """Set or end a live limit; the answer is the container's state, or `error` with the reason."""
        target = _TARGET.fullmatch(request.target)
        if target is None:
            return _refused(404, "change /v1/pods/{uid}/{container}/live-limit")
        uid, container = target.groups()
        try:
            units = LiveLimitBody.model_validate_json(request.body).memory_units if request.method == "PUT" else {}
        except ValidationError as error:
            return _refused(400, f"send {_BODY}: {error.errors()[0]['msg']}")
        try:
            state = self._isolated.set_live_limit(uid, container, units)
        except UnknownContainerError as error:
            return _refused(404, str(error))
        except LiveLimitError as error:
            return _refused(409, str(error))
        except PluginError as error:
            return _refused(500, str(error))
        _LOG.info("container %s of pod %s: %s", container, uid, f"live limit {units}" if units else "no live limit")
        self._changed()
        return Response(200, json.dumps(state.to_json()).encode())


def _refused(status: int, text: str) -> Response:
    return Response(status, json.dumps({"error": text}).encode())
