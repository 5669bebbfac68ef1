"""Simulation of a rollout by the placement rules: whether it ends, whichever old pods go first."""

from collections.abc import Iterator, Sequence

from edgegpu_core.limits.capacity import NewPod, OwnPod, TrialPlacement
from edgegpu_core.limits.workload import UpdateStrategy, Workload, WorkloadKind

_MOST_STATES = 2_000
"""Up to this number of states every order in which old pods may go is tried; beyond it only one pod at each step.

Apps on edge boxes are small.
"""


def fits_by_update(trial: TrialPlacement, workload: Workload, own: Sequence[OwnPod], pod: NewPod) -> bool:
    """Return whether the workload's own way of replacing its pods brings all new ones to a card.

    Args:
        trial: what is held now; it stays unchanged.
        workload: how pods are replaced.
        own: the app's pods; a terminating one holds its units until a controller has to wait for its end.
        pod: the pod that replaces each of them.
    """
    if workload.kind is WorkloadKind.DAEMON_SET:
        return _each_node(trial, workload, own, pod)
    if workload.kind is WorkloadKind.STATEFUL_SET:
        return _in_turn(trial, workload, own, pod)
    if workload.strategy is UpdateStrategy.RECREATE:
        return fits_after_stop(trial, workload, own, pod)
    return _rolling(trial, workload, own, pod)


def fits_beside_old(trial: TrialPlacement, workload: Workload, pod: NewPod) -> bool:
    """Return whether all new pods have room while all old ones stay."""
    return _place_all(trial.copy(), workload, pod)


def fits_after_stop(trial: TrialPlacement, workload: Workload, own: Sequence[OwnPod], pod: NewPod) -> bool:
    """Return whether all new pods have room once all pods that they replace have gone."""
    return _place_all(without_own_pods(trial, workload, own), workload, pod)


def without_own_pods(trial: TrialPlacement, workload: Workload, own: Sequence[OwnPod]) -> TrialPlacement:
    """Return a trial in which the app's pods have gone; those below a StatefulSet's partition stay."""
    empty = trial.copy()
    for one in own:
        if one.terminating or one.ordinal >= workload.partition:
            empty.end(one)
    return empty


def nodes_of_new_pods(trial: TrialPlacement, workload: Workload) -> tuple[str, ...]:
    """Return a node name for each new pod: for a DaemonSet the nodes, otherwise empty (any node)."""
    if workload.kind is WorkloadKind.DAEMON_SET:
        return trial.open_nodes()
    return ("",) * max(0, workload.replicas - workload.partition)


def _place_all(trial: TrialPlacement, workload: Workload, pod: NewPod) -> bool:
    return all(trial.place(pod, only=node) for node in nodes_of_new_pods(trial, workload))


def _each_node(trial: TrialPlacement, workload: Workload, own: Sequence[OwnPod], pod: NewPod) -> bool:
    """Return whether a DaemonSet's update ends; without surge a node's old pod goes first."""
    trial = trial.copy()
    for node in nodes_of_new_pods(trial, workload):
        there = [one for one in own if one.node == node]
        if not workload.surge:
            _end_all(trial, there)
        if not trial.place(pod, only=node):
            return False
        if workload.surge:
            _end_all(trial, there)
    return True


def _end_all(trial: TrialPlacement, pods: Sequence[OwnPod]) -> None:
    for one in pods:
        trial.end(one)


def _in_turn(trial: TrialPlacement, workload: Workload, own: Sequence[OwnPod], pod: NewPod) -> bool:
    """Return whether a StatefulSet's update ends: pods are replaced one by one, from the last to the partition."""
    trial = trial.copy()
    _end_all(trial, [one for one in own if one.terminating])
    old = [one for one in own if not one.terminating and one.ordinal >= workload.partition]
    wanted = len(nodes_of_new_pods(trial, workload))
    for one in sorted(old, key=lambda one: -one.ordinal):
        trial.end(one)
        if wanted and not trial.place(pod):
            return False
        wanted = max(0, wanted - 1)
    return all(trial.place(pod) for _ in range(wanted))


def _rolling(trial: TrialPlacement, workload: Workload, own: Sequence[OwnPod], pod: NewPod) -> bool:
    """Return whether a Deployment's rolling update ends in every order in which old pods may go.

    The controller makes new pods while there are fewer in all than replicas plus surge. It ends old pods while more
    are available than must be. A new pod that waits for a card counts as a pod, and not as available.
    """
    left = tuple(one for one in own if not one.terminating)
    states = [(trial.copy(), left, 0)]
    seen: set[tuple[object, ...]] = set()
    while states:
        now, old, placed = states.pop()
        while placed < workload.replicas and len(old) + placed < workload.replicas + workload.surge:
            if not now.place(pod):
                break
            placed += 1
        if not old:
            if placed < workload.replicas:
                return False
            continue
        if len(old) + placed - 1 < workload.replicas - workload.unavailable:
            return False
        for after, rest in _next_states(now, old, only_one=len(seen) >= _MOST_STATES):
            key = (tuple(sorted(one.uid for one in rest)), placed, *after.state_key())
            if key not in seen:
                seen.add(key)
                states.append((after, rest, placed))
    return True


def _next_states(
    trial: TrialPlacement, old: tuple[OwnPod, ...], *, only_one: bool
) -> Iterator[tuple[TrialPlacement, tuple[OwnPod, ...]]]:
    """Yield each next state: the trial without one old pod, and the old pods left; equal pods make one state."""
    kinds: set[tuple[object, ...]] = set()
    for at, one in enumerate(old):
        kind = trial.holding(one)
        if kind in kinds or (only_one and kinds):
            continue
        kinds.add(kind)
        after = trial.copy()
        after.end(one)
        yield after, (*old[:at], *old[at + 1 :])
