"""The plugin's status from its Unix socket, as far as actions need it."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgegpu_agent.actions.programs import ActionTimer
from edgegpu_base.http_unix import NoHttpError, get

_ANSWER_S, _RETRY_S = 10.0, 1.0
_OK = 200


class PluginUnreachableError(Exception):
    """The plugin does not answer, or gives an answer that cannot be read; the text is "cannot x: cause"."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Card(_Row):
    healthy: bool


class _Pod(_Row):
    namespace: str
    pod: str
    state: str


class _Driver(_Row):
    version: str = ""
    problem: str = ""


class PluginStatus(_Row):
    """The plugin's status."""

    unit_mib: int
    cards: tuple[_Card, ...] = ()
    pods: tuple[_Pod, ...] = ()
    driver: Annotated[_Driver, Field(default_factory=_Driver)]

    @property
    def holders(self) -> list[str]:
        """The pods that have shares, as NAMESPACE/NAME."""
        return list(dict.fromkeys(f"{pod.namespace}/{pod.pod}" for pod in self.pods if pod.state != "waiting"))


def _fetch_status(socket: Path) -> PluginStatus:
    try:
        status, body = get(socket, "/v1/status", timeout_s=_ANSWER_S)
        if status != _OK:
            raise PluginUnreachableError(f"cannot ask the plugin: it answers {status}")
        return PluginStatus.model_validate_json(body)
    except OSError as error:
        raise PluginUnreachableError(f"cannot ask the plugin at {socket}: {error.strerror or error}") from error
    except (NoHttpError, ValidationError) as error:
        raise PluginUnreachableError(f"cannot understand the plugin at {socket}: {error}") from error


def wait_for_status(socket: Path, timer: ActionTimer, *, within_s: float) -> PluginStatus:
    """Ask the plugin for its status each second until it answers, since it may just have been started.

    Raises:
        PluginUnreachableError: there was no answer in this time; this is the last try's error.
        ActionStopped: the agent ends.
    """
    deadline = timer.now_s() + within_s
    while True:
        try:
            return _fetch_status(socket)
        except PluginUnreachableError:
            if timer.now_s() >= deadline:
                raise
        timer.pause(_RETRY_S)
