"""The client for the running plugin's status, over its Unix socket."""

import json
from collections.abc import Mapping
from pathlib import Path

from edgegpu_agent.cli.clients.document import DocumentError, StatusDocument, read_document
from edgegpu_agent.cli.common import CliError, with_sudo
from edgegpu_base.http_unix import ChangeRequest, NoHttpError, get, send

DEFAULT_CONFIG = Path("/etc/edgegpu/plugin.yaml")
DEFAULT_SOCKET = Path("/run/edgegpu/plugin.sock")
SOCKET_NAME = "plugin.sock"
STATUS_PATH = "/v1/status"
TIMEOUT_S = 5.0
_OK, _ACCEPTED, _NOT_FOUND = 200, 202, 404
LOOK = "see `systemctl status edgegpu-plugin` and `journalctl -u edgegpu-plugin`"


class NotRunningError(CliError):
    """The error that nothing answers on the plugin's socket."""


def find_socket(socket: Path | None, config: Path | None) -> Path:
    """Return the plugin's socket: `socket`, else that of the file `config`, else that of this box.

    Raises:
        CliError: the file `config` cannot be used.
    """
    if socket is not None:
        return socket
    if config is not None:
        return _socket_of(config)
    if _is_there(DEFAULT_SOCKET) or not _is_there(DEFAULT_CONFIG):
        return DEFAULT_SOCKET
    try:
        return _socket_of(DEFAULT_CONFIG)
    except CliError:  # only the path is needed; `edgegpu config check` reports the problems
        return DEFAULT_SOCKET


def fetch_status(path: Path, *, timeout_s: float = TIMEOUT_S) -> StatusDocument:
    """Return the plugin's status document.

    Raises:
        NotRunningError: nothing answers on the socket.
        CliError: no permission, no answer in time, or an answer that cannot be read.
    """
    try:
        status, body = get(path, STATUS_PATH, timeout_s=timeout_s)
    except (OSError, NoHttpError) as error:
        raise _unreachable(path, error, timeout_s) from error
    return _read(path, status, body)


def change_live_limit(path: Path, *, uid: str, container: str, memory_units: Mapping[str, int]) -> None:
    """Set a container's live limit, in units by card; without units, end it.

    Raises:
        NotRunningError: nothing answers on the socket.
        CliError: no permission, no answer in time, or the plugin refuses it.
    """
    body = json.dumps({"memory_units": dict(memory_units)}).encode() if memory_units else b""
    request = ChangeRequest("PUT" if memory_units else "DELETE", f"/v1/pods/{uid}/{container}/live-limit", body)
    try:
        status, answer = send(path, request, timeout_s=TIMEOUT_S)
    except (OSError, NoHttpError) as error:
        raise _unreachable(path, error, TIMEOUT_S) from error
    if status != _OK:
        raise CliError(f"cannot change the limit of {container}: {_error_in(answer)}")


def change_card(path: Path, *, uuid: str, action: str) -> str:
    """Have the plugin let go of the GPU of a card (`release`), or take it back (`accept`); return the GPU's UUID.

    Raises:
        NotRunningError: nothing answers on the socket.
        CliError: no permission, no answer in time, or the plugin refuses it.
    """
    try:
        status, answer = send(path, ChangeRequest("PUT", f"/v1/cards/{uuid}/{action}"), timeout_s=TIMEOUT_S)
    except (OSError, NoHttpError) as error:
        raise _unreachable(path, error, TIMEOUT_S) from error
    if status != _OK:
        raise CliError(f"cannot {action} card {uuid}: {_error_in(answer)}", remedy=LOOK)
    return str(json.loads(answer)["gpu"])


def ask_selftest(path: Path) -> int:
    """Have the plugin try the limiter on each card; return how many such runs had ended before.

    Raises:
        NotRunningError: nothing answers on the socket.
        CliError: no permission, no answer in time, or a plugin that has no self-test.
    """
    try:
        status, answer = send(path, ChangeRequest("PUT", "/v1/selftest"), timeout_s=TIMEOUT_S)
    except (OSError, NoHttpError) as error:
        raise _unreachable(path, error, TIMEOUT_S) from error
    if status != _ACCEPTED:
        raise CliError(f"cannot try the limiter: {_error_in(answer)}")
    return int(json.loads(answer)["ended"])


def _error_in(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return "the plugin does not say why; `edgegpu version` names both versions"


def _read(path: Path, status: int, body: bytes) -> StatusDocument:
    if status == _NOT_FOUND:
        raise CliError(
            f"cannot read the status at {path}: the plugin does not know {STATUS_PATH}",
            remedy="the plugin is of another version: install one version of edgegpu, then restart edgegpu-plugin",
        )
    if status != _OK:
        raise CliError(f"cannot read the status at {path}: the plugin answered {status}", remedy=LOOK)
    try:
        return read_document(json.loads(body))
    except (ValueError, DocumentError) as error:
        raise CliError(
            f"cannot read the status at {path}: {error}",
            remedy="check that this is edgegpu-plugin's socket; `edgegpu version` names both versions",
        ) from error


def _unreachable(path: Path, error: Exception, timeout_s: float) -> CliError:
    head = f"cannot reach edgegpu-plugin at {path}"
    match error:
        case FileNotFoundError():
            return NotRunningError(f"{head}: it is not running (no socket there)", remedy=LOOK)
        case ConnectionError():
            return NotRunningError(f"{head}: it is not running (nothing listens on the socket)", remedy=LOOK)
        case PermissionError():
            return CliError(f"{head}: only root may ask it", remedy=with_sudo())
        case TimeoutError():
            return CliError(f"{head}: no answer within {timeout_s:g} s", remedy=LOOK)
        case OSError():
            return CliError(f"{head}: {error.strerror or error}", remedy="check the path of the socket")
        case _:
            return CliError(f"{head}: the answer is not complete HTTP", remedy="check the path of the socket")


def _socket_of(config: Path) -> Path:
    from edgegpu_agent.cli.clients.settings import load_settings  # noqa: PLC0415  (loads yaml: only where a file is named)

    return Path(load_settings(config).paths.run) / SOCKET_NAME


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
