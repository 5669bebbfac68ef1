"""Whether the agent that a change has started is well: it stays up, its worker turns, the link is there as before."""

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
"""In the run folder: there the agent of a box that belongs to a cloud says how it stands."""

_LOOKS = 10
"""While it has to run in one piece."""

_ASK_S = 5.0
_ENDS_AGAIN = 3
"""So many starts that nobody asked for, and no more is waited for."""

_OK = 200
_REMEDY = f"journalctl -e -u {AGENT_UNIT}"


class AgentCondition(StrEnum):
    """How the agent stood before a change; the new one has to stand as well. The values are in the journal."""

    SILENT = ""
    """It answered nobody: it did not run, or the box is not enrolled."""
    ANSWERS = "answers"
    """Its worker turned, and the link was down."""
    LINKED = "linked"


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What an agent answers; `version` is empty from one that does not say it yet."""

    version: str
    connected: bool
    why_down: str


@dataclass(frozen=True, slots=True)
class AgentSample:
    """How the agent is at a moment; `said` is None where it does not answer."""

    active: bool
    invocation: str
    restarts: int
    said: AgentReply | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedAgent:
    """What the new agent has to be: this version, for so long in one piece, in so many seconds; as it was before."""

    version: str
    before: AgentCondition
    steady_s: float = 10.0
    within_s: float = 60.0


def standing(layout: Layout) -> AgentCondition:
    """Return how the agent stands now."""
    said = ask_agent(layout.run / AGENT_SOCKET)
    if said is None:
        return AgentCondition.SILENT
    return AgentCondition.LINKED if said.connected else AgentCondition.ANSWERS


def look(system: Systemd, layout: Layout) -> AgentSample:
    """Look once; systemd that does not answer is an agent that is not seen to run."""
    try:
        unit = system.unit(AGENT_UNIT)
    except InstallError:
        return AgentSample(active=False, invocation="", restarts=0, said=None)
    said = ask_agent(layout.run / AGENT_SOCKET) if unit.is_active else None
    return AgentSample(active=unit.is_active, invocation=unit.invocation, restarts=unit.restarts, said=said)


def verify(wanted: WantedAgent, system: Systemd, layout: Layout, *, deadline: Deadline) -> None:
    """Wait until the agent of this machine is as wanted.

    Raises:
        InstallError: it is not, in time.
    """
    wait_until_well(wanted, look=lambda: look(system, layout), deadline=deadline)


def wait_until_well(
    wanted: WantedAgent,
    *,
    look: Callable[[], AgentSample],
    deadline: Deadline,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the agent is as wanted, and has run for long enough without an end.

    Args:
        wanted: what it has to be.
        look: looks once.
        deadline: of all that is verified; `wanted.within_s` may be over before.
        pause: waits for so many seconds.

    Raises:
        InstallError: it ends again and again, or is not as wanted in time.
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
    """Ask the agent how it stands: its worker answers, so it turns. None: nobody answers, or it does not."""
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
    """Return what is missing at the moment, in words; empty when the agent is as wanted."""
    if not seen.active:
        return "does not run"
    if wanted.before is AgentCondition.SILENT:
        return ""  # a box without a cloud has nothing to answer with
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
