"""The text of `edgegpu agent status` and `edgegpu journal`. Pure: lines of text."""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from edgegpu_agent.cli.clients.agent import AgentSnapshot, duration

_DAY_S = 86_400
_SOME = 0.5
_KINDS = {"desired": "settings", "item": "setting", "keys": "keys", "command": "command"}
"""The names of the journal's kinds of lines on screens."""
_STATES = {"Open": "waiting", "OBSERVED": "received"}
"""The words on screens for states that have another name in documents and in the journal."""


def lines(seen: AgentSnapshot) -> Iterator[str]:
    """Yield the state of the box and its cloud, one fact a line, then the problems."""
    if seen.config is None and not seen.problems:
        yield "this box belongs to no cloud: there is no /etc/edgegpu/agent.yaml"
        yield "  edgegpu agent enrol --url URL --ca-sha256 HEX --token-file FILE puts it into one"
        return
    if seen.config is not None:
        yield _fact("cloud", seen.config.cloud.url)
    if seen.identity is not None:
        yield from _identity(seen.identity, seen.now_s)
    if seen.agent is not None:
        yield from _agent(seen.agent)
    if seen.problems:
        yield ""
        yield "Problems"
        for problem in seen.problems:
            yield f"  {problem}"


def _identity(identity: Mapping[str, Any], now_s: float) -> Iterator[str]:
    name, device = identity.get("name"), identity.get("device")
    known = f"{name} ({device})" if name and device else device
    yield _fact("enrolment", f"{identity.get('stand')}{f' as {known}' if known else ''}")
    if ends_s := int(identity.get("not_after_s") or 0):
        left = f"{(ends_s - now_s) / _DAY_S:.0f} days left" if ends_s > now_s else "ended"
        failures = f", renewal failed {identity['failures']} times" if identity.get("failures") else ""
        yield _fact("certificate", f"until {moment(ends_s)[:10]}, {left}{failures}")


def _agent(agent: Mapping[str, Any]) -> Iterator[str]:
    up = bool(agent.get("connected"))
    heard = f"last heard {duration(int(agent.get('controller_unseen_s') or 0))} ago"
    route = f" to {agent['route']}" if agent.get("route") else ""
    words = f"connected{route}" if up else f"not connected: {agent.get('why_down')}"
    yield _fact("connection", f"{words}{',' if up else ';'} {heard}")
    observed, applied, wanted = (int(agent.get(f"{name}_rev") or 0) for name in ("observed", "applied", "wanted"))
    last = max(observed, wanted)
    if not last:
        words = "none requested yet"
    elif applied >= last:
        words = f"all applied (revision {last})"
    else:
        got = "received" if observed >= last else f"not received yet, revision {observed} was"
        words = f"revision {last} requested and {got}; applied up to revision {applied}"
    yield _fact("settings", words)
    for name, item in dict(agent.get("items") or {}).items():
        text = f"  {item['text']}" if item.get("text") else ""
        state = "being applied" if agent.get("settling") == name else _state(item.get("state"))
        yield _fact("", f"{name}  {state}{text}")
    for command in agent.get("commands") or ():
        yield _fact("command", f"{command.get('op')}  {command.get('state')}  {command.get('id')}")
    yield _fact("to send", _to_send(agent))
    if agent.get("refused"):
        yield _fact("not believed", ", ".join(f"{name} {count}" for name, count in sorted(agent["refused"].items())))


def _to_send(agent: Mapping[str, Any]) -> str:
    names = ("results", "events", "metrics")
    waits = [f"{agent[f'{name}_waiting']} {name}" for name in names if agent.get(f"{name}_waiting")]
    dropped = [f"{agent[f'{name}_dropped']} {name} dropped" for name in names if agent.get(f"{name}_dropped")]
    used = float(agent.get("outbox_used") or 0)
    room = [f"{used:.0%} of the room used"] if waits or dropped or used > _SOME else []
    return ", ".join([" and ".join(waits) or "nothing", *dropped, *room])


def journal_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the journal, the newest last."""
    for line in reversed(answer.get("lines") or ()):
        by = f"  by {line['by']}" if line.get("by") else ""
        text = f"  {line['text']}" if line.get("text") else ""
        when = moment(int(line.get("at") or 0))
        kind = _KINDS.get(str(line.get("kind")), line.get("kind"))
        yield f"{when}  {kind:<8} {line.get('about')}  {_state(line.get('state'))}{text}{by}"


def _state(state: object) -> str:
    return _STATES.get(str(state), str(state))


def moment(seconds: int) -> str:
    """Return a time of this box's clock as text."""
    try:
        return dt.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


def _fact(name: str, text: str) -> str:
    return f"{name:<12} {text}"
