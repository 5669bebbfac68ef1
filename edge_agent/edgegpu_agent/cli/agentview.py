"""How `edgegpu agent status` and `edgegpu journal` look in a terminal. Pure: lines of text."""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from edgegpu_agent.cli.agentclient import Seen, duration

_DAY_S = 86_400


def lines(seen: Seen) -> Iterator[str]:
    """Yield what is known, a fact a line, then what is wrong."""
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
        yield "wrong"
        for problem in seen.problems:
            yield f"  {problem}"


def _identity(identity: Mapping[str, Any], now_s: float) -> Iterator[str]:
    device, enrolment = identity.get("device"), identity.get("enrolment")
    who = f" as {device}, enrolment {enrolment}" if device and enrolment else ""
    yield _fact("identity", f"{identity.get('stand')}{who}")
    if ends_s := int(identity.get("not_after_s") or 0):
        left = f"{(ends_s - now_s) / _DAY_S:.0f} days left" if ends_s > now_s else "ended"
        failures = f", renewal failed {identity['failures']} times" if identity.get("failures") else ""
        yield _fact("certificate", f"until {moment(ends_s)[:10]}, {left}{failures}")


def _agent(agent: Mapping[str, Any]) -> Iterator[str]:
    up = bool(agent.get("connected"))
    yield _fact("link", "connected" if up else f"not connected: {agent.get('why_down')}")
    yield _fact("controller", f"heard {duration(int(agent.get('controller_unseen_s') or 0))} ago")
    observed, applied, wanted = (int(agent.get(f"{name}_rev") or 0) for name in ("observed", "applied", "wanted"))
    behind = f", the controller has {wanted}" if wanted > observed else ""
    yield _fact("desired", f"revision {observed}, settled {applied}{behind}" if observed or wanted else "nothing yet")
    for name, item in dict(agent.get("items") or {}).items():
        text = f"  {item['text']}" if item.get("text") else ""
        settling = "  being tried" if agent.get("settling") == name else ""
        yield _fact("", f"{name}  {item.get('state')}{settling}{text}")
    for command in agent.get("commands") or ():
        yield _fact("command", f"{command.get('op')}  {command.get('state')}  {command.get('id')}")
    yield _fact("outbox", _outbox(agent))
    if agent.get("refused"):
        yield _fact("refused", ", ".join(f"{name} {count}" for name, count in sorted(agent["refused"].items())))


def _outbox(agent: Mapping[str, Any]) -> str:
    names = ("results", "events", "metrics")
    waits = [f"{agent[f'{name}_waiting']} {name}" for name in names if agent.get(f"{name}_waiting")]
    dropped = [f"{agent[f'{name}_dropped']} {name} dropped" for name in names if agent.get(f"{name}_dropped")]
    used = f"{float(agent.get('outbox_used') or 0):.0%} full"
    return ", ".join([used, *([f"{' and '.join(waits)} wait"] if waits else ["nothing waits"]), *dropped])


def journal_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the history, the newest line last, as people read logs."""
    for line in reversed(answer.get("lines") or ()):
        by = f"  by {line['by']}" if line.get("by") else ""
        text = f"  {line['text']}" if line.get("text") else ""
        when = moment(int(line.get("at") or 0))
        yield f"{when}  {line.get('kind'):<8} {line.get('about')}  {line.get('state')}{text}{by}"


def moment(seconds: int) -> str:
    """Write a time of this box's clock."""
    try:
        return dt.datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


def _fact(name: str, text: str) -> str:
    return f"{name:<12} {text}"
