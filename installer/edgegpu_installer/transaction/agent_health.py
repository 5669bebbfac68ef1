"""The check of the agent that a change has started: it stays up, its worker answers, the link is up as before."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from edgegpu_base.http_unix import NoHttpError, get
from edgegpu_installer.changes import Deadline
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import AGENT_UNIT, Layout
from edgegpu_installer.machine.systemd import Systemd

AGENT_SOCKET = "agent.sock"
"""The socket in the run folder on which the agent of an enrolled box gives its status."""

_LOOKS = 10
"""How often the agent is probed while it has to run without a restart."""

_ASK_S = 5.0
_ENDS_AGAIN = 3
"""How many restarts by systemd end the waiting."""

_OK = 200
_REMEDY = f"journalctl -e -u {AGENT_UNIT}"


class AgentCondition(StrEnum):
    """The agent's condition before a change, which the new agent has to reach. The values are in the journal."""

    SILENT = ""
    """It did not answer: it did not run, or the box is not enrolled."""
    ANSWERS = "answers"
    """Its worker answered, and the link was down."""
    LINKED = "linked"


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The agent's status reply; `version` is empty from an agent too old to give it."""

    version: str
    connected: bool
    why_down: str


@dataclass(frozen=True, slots=True)
class AgentSample:
    """The state of the agent at one moment; `said` is None when it does not answer."""

    active: bool
    invocation: str
    restarts: int
    said: AgentReply | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedAgent:
    """The wanted agent: its version, its condition `before`, `steady_s` without a restart, all within `within_s`."""

    version: str
    before: AgentCondition
    steady_s: float = 10.0
    within_s: float = 60.0


def standing(layout: Layout) -> AgentCondition:
    """Return the agent's present condition."""
    said = ask_agent(layout.run / AGENT_SOCKET)
    if said is None:
        return AgentCondition.SILENT
    return AgentCondition.LINKED if said.connected else AgentCondition.ANSWERS


def look(system: Systemd, layout: Layout) -> AgentSample:
    """Return the state of the agent; when systemd does not answer, the agent counts as not running."""
    try:
        unit = system.unit(AGENT_UNIT)
    except InstallError:
        return AgentSample(active=False, invocation="", restarts=0, said=None)
    said = ask_agent(layout.run / AGENT_SOCKET) if unit.is_active else None
    return AgentSample(active=unit.is_active, invocation=unit.invocation, restarts=unit.restarts, said=said)


def verify(wanted: WantedAgent, system: Systemd, layout: Layout, *, deadline: Deadline) -> None:
    """Wait until the agent of this machine is as wanted.

    Raises:
        InstallError: the agent is not as wanted in time.
    """
    wait_until_well(wanted, look=lambda: look(system, layout), deadline=deadline)


def wait_until_well(
    wanted: WantedAgent,
    *,
    look: Callable[[], AgentSample],
    deadline: Deadline,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the agent is as wanted and has run for `wanted.steady_s` without a restart.

    Args:
        wanted: the wanted agent.
        look: returns the present state.
        deadline: of the whole verification; `wanted.within_s` may end earlier.
        pause: waits for a number of seconds.

    Raises:
        InstallError: the agent ends again and again, or is not as wanted in time.
    """
    limit = Deadline(min(deadline.at_s, deadline.clock() + wanted.within_s), deadline.clock)
    run, since_s, fewest = None, 0.0, None
    while True:
        seen, now_s = look(), limit.clock()
        fewest = seen.restarts if fewest is None else min(fewest, seen.restarts)
        this = (seen.invocation, seen.restarts) if seen.active else None
        if this != run:
            run, since_s = this, now_s
        why = _lacks(wanted, seen) or _unsettled(wanted, now_s - since_s)
        if not why:
            return
        if seen.restarts >= fewest + _ENDS_AGAIN:
            raise _failed(wanted, f"ends again and again, {seen.restarts - fewest} times since it was started")
        if limit.passed():
            raise _failed(wanted, why)
        pause(min(wanted.steady_s / _LOOKS, limit.remaining_s()))


def ask_agent(path: Path) -> AgentReply | None:
    """Return the agent's status; its worker answers, so an answer shows that it works. None without an answer."""
    try:
        status, body = get(path, "/v1/status", timeout_s=_ASK_S)
        value = json.loads(body)
    except (OSError, NoHttpError, ValueError):
        return None
    if status != _OK or not isinstance(value, dict):
        return None
    return AgentReply(
        version=str(value.get("agent") or ""),
        connected=value.get("connected") is True,
        why_down=str(value.get("why_down") or ""),
    )


def _lacks(wanted: WantedAgent, seen: AgentSample) -> str:
    """Return what is still missing, in words; empty when the agent is as wanted."""
    if not seen.active:
        return "does not run"
    if wanted.before is AgentCondition.SILENT:
        return ""  # the agent of a box without a cloud does not answer
    if seen.said is None:
        return f"does not answer on {AGENT_SOCKET}, which the one before it did"
    if seen.said.version != wanted.version:
        return f"says that it is of version {seen.said.version or 'none'}"
    if wanted.before is AgentCondition.LINKED and not seen.said.connected:
        why = f": {seen.said.why_down}" if seen.said.why_down else ""
        return f"is not on the link again, where the one before it was{why}"
    return ""


def _unsettled(wanted: WantedAgent, up_s: float) -> str:
    return "" if up_s >= wanted.steady_s else f"has not run for {wanted.steady_s:g} s in one piece"


def _failed(wanted: WantedAgent, why: str) -> InstallError:
    return InstallError(f"cannot verify the change: edgegpu-agent {wanted.version} {why}", _REMEDY)
