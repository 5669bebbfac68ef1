"""The plugin's status from its Unix socket, as far as actions need it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgegpu_base.http_unix import NoHttpError, get

_ANSWER_S = 10.0
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


class _Kubelet(_Row):
    registered: bool


class _Document(_Row):
    version: str
    unit_mib: int
    cards: tuple[_Card, ...] = ()
    pods: tuple[_Pod, ...] = ()
    driver: Annotated[_Driver, Field(default_factory=_Driver)]
    kubelet: _Kubelet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginStatus:
    """The plugin's status; `holders` are the pods that have shares, as NAMESPACE/NAME."""

    version: str
    unit_mib: int
    cards: int
    healthy: int
    driver: str
    problem: str
    registered: bool
    holders: tuple[str, ...]


def fetch_status(socket: Path) -> PluginStatus:
    """Ask the plugin for its status.

    Raises:
        PluginUnreachableError: there is no answer, or none that can be read.
    """
    try:
        status, body = get(socket, "/v1/status", timeout_s=_ANSWER_S)
        if status != _OK:
            raise PluginUnreachableError(f"cannot ask the plugin: it answers {status}")
        read = _Document.model_validate_json(body)
    except OSError as error:
        raise PluginUnreachableError(f"cannot ask the plugin at {socket}: {error.strerror or error}") from error
    except (NoHttpError, ValidationError) as error:
        raise PluginUnreachableError(f"cannot understand the plugin at {socket}: {error}") from error
    holders = dict.fromkeys(f"{pod.namespace}/{pod.pod}" for pod in read.pods if pod.state != "waiting")
    return PluginStatus(
        version=read.version,
        unit_mib=read.unit_mib,
        cards=len(read.cards),
        healthy=sum(card.healthy for card in read.cards),
        driver=read.driver.version,
        problem=read.driver.problem,
        registered=read.kubelet is None or read.kubelet.registered,
        holders=tuple(holders),
    )
