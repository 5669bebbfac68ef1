"""The check that a machine works after a change, and keeps working for a while; probes and pauses are passed in.

In a crash loop too, `systemctl restart k3s` returns 0 and the unit is `active` now and then; and for some seconds
after a restart the API still shows the state of the previous kubelet. So only answers of the running processes count,
and all of them must be good for `settle_s` in one invocation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from edgegpu_installer.changes import Deadline
from edgegpu_installer.errors import InstallError

SETTLE_S = 10.0
"""A k3s whose scheduler refuses its file ends within a second of its start, and is started again after 5 s."""

_EVERY_S = 0.5
_ENDS_AGAIN = 3
"""How many restarts are too many: a k3s may fail once because containerd is not up yet."""


@dataclass(frozen=True, slots=True)
class ExtenderCaller:
    """An extender in a scheduler's configuration: its address, and the client certificate (PEM)."""

    url: str
    cert: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that uses the resources, as kubelet reports it.

    `containers`: name and runtime id of those that run and have never ended; the others may end without a change too.
    """

    name: str
    uid: str
    phase: str
    reason: str
    containers: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMachine:
    """The wanted state of a machine.

    `unit`: k3s or k3s-agent, without `.service`. `node`: the name of its node, empty without a kubelet. `caller`: our
    extender in the scheduler's configuration, None when it shall not be there. `has_scheduler`: whether a scheduler
    runs here. `resources`: names of resources of which the node shall offer more than 0.
    """

    unit: str
    node: str
    has_scheduler: bool
    caller: ExtenderCaller | None
    ours: str = "https://127.0.0.1:8787"
    """Our extender's address, also when the extender shall not be there."""
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """The scheduler's own report: its health, its configured extenders, and whether it elects a leader."""

    health: str
    callers: tuple[ExtenderCaller, ...]
    elects: bool
    renewed: str = ""
    """When the leader, whichever it is, last renewed the lease."""


@dataclass(frozen=True, slots=True)
class Node:
    """The Node object: whether it is Ready, its last heartbeat, and the resources that it offers."""

    ready: bool
    heartbeat: str
    """`lastHeartbeatTime` of its Ready condition."""
    offers: frozenset[str]
    """Names of the resources of which it offers more than 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSample:
    """The state of the machine at one moment; `unseen` and `extender` say what is wrong, empty when nothing is."""

    invocation: str
    active: bool
    restarts: int
    unseen: str = ""
    """Why the API server, the scheduler or the node could not be read."""
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
    before: MachineSample,
    *,
    look: Callable[[], MachineSample],
    last_words: Callable[[], str],
    deadline: Deadline,
    pause: Callable[[float], None],
    say: Callable[[str], None] = lambda _: None,
    settle_s: float = SETTLE_S,
) -> None:
    """Wait until a machine has been as wanted for settle_s.

    Args:
        wanted: the wanted state.
        before: the state before the change; what could not be read then is absent.
        look: returns the present state.
        last_words: returns the line in which the last k3s that ended logged its error.
        deadline: when to give up.
        pause: waits for a number of seconds.
        say: gets what is being waited for, and after how many seconds, each time that it changes.
        settle_s: how long the machine must stay as wanted.

    Raises:
        InstallError: k3s ends again and again, a pod was lost by the change, or the machine is not as wanted in time.
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


def lacks(wanted: WantedMachine, before: MachineSample, seen: MachineSample) -> str:
    """Return what is still missing, in words; empty when the machine is as wanted."""
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


def _node_lacks(wanted: WantedMachine, before: MachineSample, seen: MachineSample) -> str:
    if seen.node is None:
        return f"the node {wanted.node} has not been seen"
    if not seen.node.ready:
        return f"the node {wanted.node} is not Ready"
    heartbeat = before.node.heartbeat if before.node is not None else ""
    if seen.invocation != before.invocation and seen.node.heartbeat <= heartbeat:
        return f"kubelet has not said anything about the node {wanted.node} since the restart"
    missing = [name for name in wanted.resources if name not in seen.node.offers]
    return f"the node {wanted.node} offers no {' and no '.join(missing)}" if missing else ""


def lost_pods(before: MachineSample, seen: MachineSample) -> str:
    """Return the earlier pods that have failed or now run in other containers; a deleted pod is not lost."""
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
    return InstallError(f"cannot verify the change: {why}", remedy=f"journalctl -u {wanted.unit} -e")
