"""The verdict on a change of an app's limits: fits, fits after a stop, never fits; with numbers and a text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from edgegpu_core.limits.capacity import NewPod, NodeRoom, OwnPod, PodRefusal, Quota, TrialPlacement
from edgegpu_core.limits.rollout import fits_beside_old, fits_by_update, nodes_of_new_pods, without_own_pods
from edgegpu_core.limits.workload import UpdateStrategy, Workload, WorkloadKind
from edgegpu_core.request import RequestedAmounts
from edgegpu_core.sentences import Sentence, cut, joined, sentence

_MOST_TEXT = 600
_MOST_CARDS = 64
NO_QUOTA = Quota()


class FitResult(Enum):
    """Whether the app has room under its new limits; the values are those of the protocol."""

    FITS = "fits"
    """The new pods have room beside the old ones, or by a rolling update's own steps."""
    AFTER_STOP = "fits_after_stop"
    """The new pods have room when the app's own pods have gone."""
    NEVER = "never_fits"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardNumbers:
    """A card that the app may use. `free_*`: once the app's own pods have gone; `held_by_app_units`: held by those."""

    node: str
    card: str
    free_units: int
    free_core: int
    held_by_app_units: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsChange:
    """One change of the limits of one app."""

    workload: Workload
    request: RequestedAmounts
    """The new amounts of the changed container."""
    before: RequestedAmounts
    """The amounts that the container has now."""
    pod: NewPod
    """A pod under the changed template."""
    own: tuple[OwnPod, ...] = ()
    rooms: tuple[NodeRoom, ...] = ()
    quota: Quota = NO_QUOTA
    at_most: int | None = None
    """The replicas that a HorizontalPodAutoscaler may ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsVerdict:
    """The verdict. `interrupts`: the change stops pods beyond the app's own update strategy, so it must be allowed."""

    answer: FitResult
    interrupts: bool = False
    text: str = ""
    """Why the limits do not fit, or a hint."""
    stale: bool = False
    """Whether a node's inventory that is not current is among the reasons for NEVER: ask again in a moment."""
    request: RequestedAmounts
    replicas: int
    cards: tuple[CardNumbers, ...] = ()


@dataclass(frozen=True, slots=True)
class _Shortage:
    """Why not all new pods have room; `text` is empty when they have. `stale`: as in the verdict."""

    text: str = ""
    stale: bool = False


def limits_verdict(change: LimitsChange) -> LimitsVerdict:
    """Return the verdict whether an app has room under its new limits.

    fits: all new pods have room while the old ones stay, or a rolling update ends with its surge and unavailable pods.
    fits_after_stop: the new pods have room when old pods have gone. The app stops these anyway (Recreate, StatefulSet,
    no surge), or the change interrupts it, and then `interrupts` is set. An app without replicas fits if an empty
    cluster could hold one. With an autoscaler its maximum must have room as well, unless the change only takes less.
    """
    workload = change.workload
    trial = TrialPlacement(change.rooms, workload.constraints, change.quota)
    count = len(nodes_of_new_pods(trial, workload))
    verdict = LimitsVerdict(answer=FitResult.FITS, request=change.request, replicas=count, cards=_cards(change, trial))
    if not change.pod.containers and not change.pod.problem:
        return verdict  # without a share there is nothing to place
    if workload.kind is not WorkloadKind.DAEMON_SET and workload.replicas == 0:
        return _without_replicas(change, verdict)
    if workload.kind is WorkloadKind.DAEMON_SET and count == 0:
        return replace(verdict, answer=FitResult.NEVER, text=sentence("no node of the cluster takes its pods"))
    verdict = _at_present_replicas(change, trial, verdict)
    if verdict.answer is FitResult.NEVER or change.at_most is None or change.at_most <= workload.replicas:
        return verdict
    return _at_autoscaler_maximum(change, change.at_most, trial, verdict)


def _at_present_replicas(change: LimitsChange, trial: TrialPlacement, verdict: LimitsVerdict) -> LimitsVerdict:
    workload = change.workload
    if fits_beside_old(trial, workload, change.pod):
        return verdict
    if fits_by_update(trial, workload, change.own, change.pod):
        return replace(verdict, answer=FitResult.AFTER_STOP if workload.stops_first else FitResult.FITS)
    short = _why_not(change, without_own_pods(trial, workload, change.own), workload)
    if short.text:
        return replace(verdict, answer=FitResult.NEVER, text=short.text, stale=short.stale)
    why = _why_not(change, trial, workload, own=False).text
    text = sentence("it has room only when its own pods have gone: %(why)s", why=why)
    return replace(verdict, answer=FitResult.AFTER_STOP, interrupts=True, text=cut(text, _MOST_TEXT))


def _without_replicas(change: LimitsChange, verdict: LimitsVerdict) -> LimitsVerdict:
    one = replace(change.workload, replicas=1, partition=0)
    rooms = tuple(replace(room, held={}) for room in change.rooms)
    short = _why_not(change, TrialPlacement(rooms, one.constraints, NO_QUOTA), one, own=False)
    if not short.text:
        return verdict
    text = sentence("it has no replicas now, and none could run: %(why)s", why=short.text)
    return replace(verdict, answer=FitResult.NEVER, text=text, stale=short.stale)


def _at_autoscaler_maximum(
    change: LimitsChange, most: int, trial: TrialPlacement, verdict: LimitsVerdict
) -> LimitsVerdict:
    short = _why_not(
        change, without_own_pods(trial, change.workload, change.own), replace(change.workload, replicas=most)
    )
    if not short.text:
        return verdict
    whole = sentence(
        "fits at its %(now)d replicas now, but not at the %(most)d of its autoscaler: %(why)s",
        now=change.workload.replicas,
        most=most,
        why=short.text,
    )
    text = cut(whole, _MOST_TEXT)
    less = change.request.memory_units <= change.before.memory_units and change.request.core <= change.before.core
    if less:
        return replace(verdict, text=text)
    return replace(verdict, answer=FitResult.NEVER, text=text, stale=short.stale, replicas=most)


def _why_not(change: LimitsChange, trial: TrialPlacement, workload: Workload, *, own: bool = True) -> _Shortage:
    """Place the new pods in a copy of the trial and return why the first fails."""
    trial = trial.copy()
    nodes = nodes_of_new_pods(trial, workload)
    for done, node in enumerate(nodes):
        if not trial.place(change.pod, only=node):
            refusals = trial.refusals(change.pod, only=node)
            text = _words(refusals)
            if done:
                text = sentence(
                    "%(done)d of %(all)d pods have room, the next %(why)s", done=done, all=len(nodes), why=text
                )
            held = sum(_own_units(change).values()) if own and any(one.tells_free for one in refusals) else 0
            if held:
                text = sentence("%(why)s (the %(units)d that it holds itself counted as free)", why=text, units=held)
            return _Shortage(cut(text, _MOST_TEXT), stale=any(one.stale for one in refusals))
    return _Shortage()


def _words(refusals: Sequence[PodRefusal]) -> str:
    """Return the refusals of all nodes as one text, without a node's name where a single reason speaks for itself."""
    if not refusals:
        return sentence("there is no node")
    if len(refusals) == 1:
        name, why = refusals[0].node, refusals[0].why
        itself = not name or why.startswith(("needs ", "asks ", "container ", "with "))
        return why if itself else _at_node(refusals[0])
    return joined([_at_node(one) for one in refusals])


def _at_node(refusal: PodRefusal) -> Sentence:
    return sentence("node %(node)s: %(why)s", node=refusal.node, why=refusal.why)


def _own_units(change: LimitsChange) -> dict[tuple[str, str], int]:
    """Return the units that the app's pods hold, by node and card."""
    held: dict[tuple[str, str], int] = {}
    uids = {one.uid for one in change.own}
    for room in change.rooms:
        for uid in uids & room.held.keys():
            for share in room.held[uid]:
                held[room.name, share.card] = held.get((room.name, share.card), 0) + share.memory_units
    return held


def _cards(change: LimitsChange, trial: TrialPlacement) -> tuple[CardNumbers, ...]:
    held = _own_units(change)
    found = [
        CardNumbers(
            node=room.name,
            card=slot.label,
            free_units=free.memory[at],
            free_core=free.core[at],
            held_by_app_units=held.get((room.name, slot.uuid), 0),
        )
        for room, free in without_own_pods(trial, change.workload, change.own).free_of()
        for at, slot in enumerate(room.slots)
    ]
    return tuple(found[:_MOST_CARDS])


def manual_step(workload: Workload) -> str:
    """Return what a person has to do before pods take new limits; empty when nothing."""
    if workload.paused:
        return "the Deployment is paused: its pods take the limits when it is resumed"
    if workload.strategy is UpdateStrategy.ON_DELETE:
        return "its update strategy is OnDelete: each pod takes the limits when it is deleted"
    return ""
