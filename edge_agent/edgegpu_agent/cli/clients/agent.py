"""The state of this box and its cloud, from agent.yaml, the identity's status file and the running agent."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegpu_agent.cli.common import CliError, with_sudo
from edgegpu_agent.cli.setup.enrolment import read_status_file
from edgegpu_agent.identity.status import STATUS_FILE
from edgegpu_agent.settings import AgentConfig, load
from edgegpu_base.http_unix import NoHttpError, get
from edgegpu_installer.layout import Layout
from edgegpu_plugin.errors import ConfigError

SOCKET_NAME = "agent.sock"
_TIMEOUT_S = 10.0
_OK = 200
_UNSEEN_S = 1_500
"""The time of two reported states without an answer."""
_WARN_LEFT_S = 14 * 86_400
_FULL = 0.9
_STARTING = "starting"
LOOK = "see `systemctl status edgegpu-agent` and `journalctl -u edgegpu-agent`"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSnapshot:
    """The state of this box and its cloud; a part is None where it is missing. `problems` include what to do."""

    config: AgentConfig | None
    identity: dict[str, Any] | None
    agent: dict[str, Any] | None
    problems: tuple[str, ...]
    now_s: float
    config_problems: tuple[str, ...] = ()
    """The problems of agent.yaml, which are also among `problems`."""
    silence: str = ""
    """Why the agent does not answer."""

    def document(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        cloud = (
            None if self.config is None else {"url": self.config.cloud.url, "ca_sha256": self.config.cloud.ca_sha256}
        )
        return {
            "v": 1,
            "cloud": cloud,
            "identity": self.identity,
            "agent": self.agent,
            "problems": list(self.problems),
        }


def read_agent(root: Path, socket: Path | None, *, now_s: float | None = None) -> AgentSnapshot:
    """Return the state of this box and its cloud.

    Args:
        root: the machine's `/`.
        socket: the agent's socket; None: the default one.
        now_s: seconds since 1970.

    Raises:
        CliError: this user has no permission.
    """
    layout = Layout(root)
    now_s = time.time() if now_s is None else now_s
    path = layout.agent_yaml
    if not path.exists():
        return AgentSnapshot(config=None, identity=None, agent=None, problems=(), now_s=now_s)
    try:
        config, problems = load(path), []
    except ConfigError as error:
        config, problems = None, list(error.problems)
    wrong = tuple(problems)
    agent, why = _ask(socket or layout.run / SOCKET_NAME)
    identity = _identity(agent, layout.run / STATUS_FILE)
    problems += _of_identity(identity, now_s)
    if identity is not None and identity.get("stand") == "enrolled":
        problems += [why] if agent is None else _of_agent(agent)
    return AgentSnapshot(
        config=config,
        identity=identity,
        agent=agent,
        problems=tuple(problems),
        now_s=now_s,
        config_problems=wrong,
        silence=why,
    )


def fetch(socket: Path, target: str) -> dict[str, Any]:
    """Return the agent's answer to one request.

    Raises:
        CliError: the agent gives no answer, or one that cannot be read.
    """
    head = f"cannot reach edgegpu-agent at {socket}"
    try:
        status, body = get(socket, target, timeout_s=_TIMEOUT_S)
        value = json.loads(body)
    except PermissionError as error:
        raise CliError(f"{head}: only root may ask it", remedy=with_sudo()) from error
    except (FileNotFoundError, ConnectionError) as error:
        raise CliError(f"{head}: it does not run, or this box is in no cloud", remedy=LOOK) from error
    except (OSError, NoHttpError, ValueError) as error:
        raise CliError(f"{head}: {error}", remedy=LOOK) from error
    if status != _OK or not isinstance(value, dict):
        raise CliError(f"{head}: it answered {status}", remedy=LOOK)
    return value


def _ask(socket: Path) -> tuple[dict[str, Any] | None, str]:
    try:
        return fetch(socket, "/v1/status"), ""
    except CliError as error:
        return None, f"{error.text}; {error.remedy}"


def _identity(agent: dict[str, Any] | None, path: Path) -> dict[str, Any] | None:
    """Return the identity's status from the agent; from the status file where the agent has none, or only starts."""
    said = agent.pop("identity", None) if agent is not None else None
    if isinstance(said, dict) and said.get("stand", _STARTING) != _STARTING:
        return said
    standing = read_status_file(path)
    return standing.raw if standing is not None else None


def _of_identity(identity: dict[str, Any] | None, now_s: float) -> list[str]:
    if identity is None:
        return [f"the agent does not say how it stands: is it running? {LOOK}"]
    text, remedy = str(identity.get("text") or ""), str(identity.get("remedy") or "")
    found = [str(identity["warning"])] if identity.get("warning") else []
    stand = identity.get("stand")
    if stand == "enrolled":
        left_s = int(identity.get("not_after_s") or 0) - now_s
        if left_s < _WARN_LEFT_S or text:
            words = f"the certificate ends in {left_s / 86_400:.0f} days" if left_s > 0 else "the certificate has ended"
            found.append("; ".join(part for part in (words, text, remedy) if part))
    else:
        found.append("; ".join(part for part in (f"not in the cloud: {stand}", text, remedy) if part))
    return found


def _of_agent(agent: dict[str, Any]) -> list[str]:
    found = []
    if not agent.get("connected"):
        found.append(f"not connected: {agent.get('why_down') or 'no reason given'}")
    if agent.get("route_trouble"):
        found.append(str(agent["route_trouble"]))
    unseen_s = int(agent.get("controller_unseen_s") or 0)
    if agent.get("connected") and unseen_s > _UNSEEN_S:
        found.append(
            f"nothing heard from the cloud for {duration(unseen_s)}, though connected: does `edgegpu-cloud serve` run?"
        )
    if agent.get("journal_full") or float(agent.get("outbox_used") or 0) > _FULL:
        found.append("too many results wait to be sent: new commands are refused until the cloud has taken some")
    if agent.get("told"):
        found.append(f"this box's record of commands is a new one: {agent['told']}; enrol this box again")
    if agent.get("limits_trouble"):
        found.append(str(agent["limits_trouble"]))
    found += [
        f"{name}: {item.get('state')} {item.get('code') or ''}: {item.get('text') or ''}".rstrip(": ")
        for name, item in dict(agent.get("items") or {}).items()
        if item.get("state") in {"Failed", "Rejected", "Unsupported"}
    ]
    return found


def duration(seconds: float) -> str:
    """Return a time span as text, in its largest unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
