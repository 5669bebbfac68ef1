"""The verdict on a cell of the command matrix: what a result may say, and how often k3s may have been started. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from edgegpu_agent.worker import steps as agent_steps
from edgegpu_cloud.fleet.views import CommandView
from edgegpu_sync.states import CommandState

INSTALL, UNINSTALL, RESTART = "sharing.install", "sharing.uninstall", "k3s.restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of a cell: the controller's view, and of k3s before and after the fault two things.

    `starts`: how often it was started for the command, less the start that is a boot's. `runs`: its InvocationIDs.
    """

    op: str
    step: str
    cut: bool
    view: CommandView
    starts: tuple[int, int]
    runs: tuple[str, str]
    installed: bool


def judged(seen: Seen) -> list[str]:
    """Say what is wrong: a result that is not so, or something done twice."""
    return _restart_judged(seen) if seen.op == RESTART else _sharing_judged(seen)


def _restart_judged(seen: Seen) -> list[str]:
    """A boot after RUNNING is the restart; before it the command waits until it is signed again, and is done then."""
    wrong, (first, second) = [], seen.starts
    if seen.view.state is not CommandState.SUCCEEDED:
        return [f"it ended {seen.view.state} {seen.view.code}: {seen.view.text}"]
    told, (then, now) = (seen.view.data or {}).get("invocation"), seen.runs
    had_ended = seen.step in {f"after-{name}" for name in (agent_steps.ENDED, agent_steps.SEND, agent_steps.RECEIPTED)}
    if told != (then if had_ended else now):
        wrong.append(f"the result names the run {told}, and it was {then} at the fault, {now} in the end")
    not_begun = {CommandState.RECEIVED.value, CommandState.ACCEPTED.value, agent_steps.TOKEN}
    begun = seen.step.partition("-")[2] not in not_begun and seen.step != f"before-{CommandState.RUNNING}"
    booted = seen.cut and begun
    if first not in {0, 1} or second < 0 or (second != 0 if booted else first + second != 1):
        wrong.append(f"k3s was started {first} times before the fault, and {second} times after it")
    return wrong


def _sharing_judged(seen: Seen) -> list[str]:
    """Done: k3s was started once for it, by a boot perhaps. Put back: once more at most."""
    wrong, state, starts = [], seen.view.state, sum(seen.starts)
    if state not in {CommandState.SUCCEEDED, CommandState.ROLLED_BACK}:
        wrong.append(f"it ended {state} {seen.view.code}: {seen.view.text}")
    if seen.installed != ((seen.op == INSTALL) == (state == CommandState.SUCCEEDED)):
        wrong.append(f"it ended {state}, and sharing is {'' if seen.installed else 'not '}there")
    if state == CommandState.ROLLED_BACK and not seen.cut:
        wrong.append("it was put back though nothing but the agent died")
    most = 1 if state == CommandState.SUCCEEDED else 2
    if min(seen.starts) < 0 or starts > most or (not seen.cut and state == CommandState.SUCCEEDED and starts != 1):
        wrong.append(f"k3s was started {starts} times")
    return wrong
