"""Whether a machine works after a change of it, for a while and not for a moment; what looks and waits is passed in.

`systemctl restart k3s` returns 0 and the unit is `active` now and then in a crash loop too, and for some seconds
after a restart the API still tells of the kubelet before. So nothing is believed that is not asked of the running
processes, and all of it must hold for `settle_s` in one invocation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from edgegpu_installer.changes import Deadline
from edgegpu_installer.errors import InstallError

SETTLE_S = 10.0
"""A k3s whose scheduler refuses its file ends within a second of its start, and comes again after 5 s."""

_EVERY_S = 0.5
_ENDS_AGAIN = 3
"""A k3s may fall over a containerd that is not up yet, and come up the next time."""
_READ_FIRST = "journalctl -u {unit} -e says more; the machine is as it was before"


@dataclass(frozen=True, slots=True)
class ExtenderCaller:
    """An extender that a scheduler has: its address, and the client's certificate (PEM)."""

    url: str
    cert: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that uses the resources, as kubelet tells of it.

    `containers`: name and the runtime's id of those that run and have never ended; others may end without us too.
    """

    name: str
    uid: str
    phase: str
    reason: str
    containers: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMachine:
    """How a machine shall be.

    `unit`: k3s or k3s-agent, without `.service`. `node`: its node's name, empty where it has no kubelet. `caller`: our
    extender as the scheduler shall have it, None where it shall not. `has_scheduler`: whether a scheduler runs here.
    `resources`: names of which the node shall offer more than nothing.
    """

    unit: str
    node: str
    has_scheduler: bool
    caller: ExtenderCaller | None
    ours: str = "https://127.0.0.1:8787"
    """The address that is ours, also where no extender is wanted."""
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateBefore:
    """How the machine was before the change."""

    invocation: str
    heartbeat: str
    """`lastHeartbeatTime` of the node's Ready condition."""
    pods: tuple[RunningPod, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """The scheduler by its own word: what is wrong with it, what it was configured with, does it elect a leader."""

    health: str
    callers: tuple[ExtenderCaller, ...]
    elects: bool
    renewed: str = ""
    """When the leader renewed the lease, by whomever."""


@dataclass(frozen=True, slots=True)
class Node:
    """The node object: is it Ready, since which heartbeat, and what of the resources does it offer."""

    ready: bool
    heartbeat: str
    offers: frozenset[str]
    """Names of which it offers more than nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSample:
    """The machine at one moment; `unseen` and `extender` say what is wrong, empty when nothing is."""

    invocation: str
    active: bool
    restarts: int
    unseen: str = ""
    """Why the API server, the scheduler or the node could not be seen."""
    scheduler: SchedulerStatus | None = None
    extender: str = ""
    """Why our extender does not answer a call with the scheduler's certificate."""
    node: Node | None = None
    pods: tuple[RunningPod, ...] = ()


@dataclass(frozen=True, slots=True)
class _Since:
    invocation: str
    restarts: int
    at_s: float
    renewed: str


def wait_until_well(
    wanted: WantedMachine,
    before: StateBefore,
    *,
    look: Callable[[], MachineSample],
    last_words: Callable[[], str],
    deadline: Deadline,
    pause: Callable[[float], None],
    say: Callable[[str], None] = lambda _: None,
    settle_s: float = SETTLE_S,
) -> None:
    """Wait until a machine is as wanted, and has been for settle_s.

    Args:
        wanted: how it shall be.
        before: how it was.
        look: sees it.
        last_words: the line by which the last k3s that ended said why.
        deadline: until when.
        pause: waits for so many seconds.
        say: told what is waited for, and after how many seconds, each time that it is something else.
        settle_s: how long is long enough.

    Raises:
        InstallError: k3s ends again and again, a pod was lost by the change, or it is not so at the deadline.
    """
    since: _Since | None = None
    fewest: int | None = None
    began_s, told = deadline.clock(), ""
    while True:
        seen = look()
        fewest = seen.restarts if fewest is None else min(fewest, seen.restarts)  # a restart by hand begins at 0
        why = lacks(wanted, before, seen)
        if why:
            since = None
        else:
            since = _same(since, seen, deadline.clock())
            why = _unsettled(since, seen, now_s=deadline.clock(), settle_s=settle_s)
        if not why:
            if lost := lost_pods(before, seen):
                raise _failed(wanted, lost)
            return
        if seen.restarts >= fewest + _ENDS_AGAIN:
            raise _failed(wanted, f"{wanted.unit} ends again and again: {last_words() or why}")
        if deadline.passed():
            raise _failed(wanted, why)
        if why != told:
            say(f"after {deadline.clock() - began_s:.0f} s: {why}")
            told = why
        pause(min(_EVERY_S, deadline.remaining_s()))


def lacks(wanted: WantedMachine, before: StateBefore, seen: MachineSample) -> str:
    """Return what is missing at the moment, in words; empty when the machine is as wanted."""
    if not seen.active:
        return f"{wanted.unit} is not up"
    if seen.unseen:
        return seen.unseen
    if wanted.has_scheduler and (why := _scheduler_lacks(wanted, seen)):
        return why
    if wanted.node and (why := _node_lacks(wanted, before, seen)):
        return why
    return ""


def _scheduler_lacks(wanted: WantedMachine, seen: MachineSample) -> str:
    if seen.scheduler is None:
        return "the scheduler has not been seen"
    if seen.scheduler.health:
        return f"the scheduler is not well: {seen.scheduler.health}"
    if wanted.caller is None:
        there = any(caller.url == wanted.ours for caller in seen.scheduler.callers)
        return "the scheduler still has our extender" if there else ""
    if wanted.caller not in seen.scheduler.callers:
        return "the scheduler runs without our extender yet"
    return f"the extender does not answer: {seen.extender}" if seen.extender else ""


def _node_lacks(wanted: WantedMachine, before: StateBefore, seen: MachineSample) -> str:
    if seen.node is None:
        return f"the node {wanted.node} has not been seen"
    if not seen.node.ready:
        return f"the node {wanted.node} is not Ready"
    if seen.invocation != before.invocation and seen.node.heartbeat <= before.heartbeat:
        return f"kubelet has not said anything about the node {wanted.node} since the restart"
    missing = [name for name in wanted.resources if name not in seen.node.offers]
    return f"the node {wanted.node} offers no {' and no '.join(missing)}" if missing else ""


def lost_pods(before: StateBefore, seen: MachineSample) -> str:
    """Return which pods of before have failed or run in other containers now; one that was deleted is not lost."""
    now = {pod.uid: pod for pod in seen.pods}
    lost = []
    for pod in before.pods:
        later = now.get(pod.uid)
        if pod.phase != "Running" or later is None:
            continue
        if later.phase != "Running":
            lost.append(f"{pod.name} is {later.phase} {later.reason}".rstrip())
        elif pod.containers - later.containers:
            lost.append(f"containers of {pod.name} were started anew")
    return "; ".join(lost)


def _same(since: _Since | None, seen: MachineSample, now_s: float) -> _Since:
    if since is not None and (since.invocation, since.restarts) == (seen.invocation, seen.restarts):
        return since
    return _Since(seen.invocation, seen.restarts, now_s, seen.scheduler.renewed if seen.scheduler else "")


def _unsettled(since: _Since, seen: MachineSample, *, now_s: float, settle_s: float) -> str:
    if now_s - since.at_s < settle_s:
        return f"all is well, but has not been for {settle_s:g} s yet"
    if seen.scheduler is not None and seen.scheduler.elects and seen.scheduler.renewed in {"", since.renewed}:
        return "no scheduler renews the lease kube-system/kube-scheduler"
    return ""


def _failed(wanted: WantedMachine, why: str) -> InstallError:
    return InstallError(f"cannot verify the change: {why}", remedy=_READ_FIRST.format(unit=wanted.unit))
