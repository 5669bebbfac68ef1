"""The answers to kubelet's calls: which devices a container should get, what it is given, whether it may start."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edgegpu_core.admission import AdmissionVerdict, admission_failure, admission_verdict, is_split_share
from edgegpu_core.allocation_matching import AllocationTarget, pick
from edgegpu_core.choices.pod_choice import GivenChoice
from edgegpu_core.deviceid import DeviceKind, card_of
from edgegpu_core.nodeview import NodeView
from edgegpu_core.podview import PodView
from edgegpu_plugin.kubelet.starts import StartMatcher
from edgegpu_plugin.pb import Allocation, CallRefusedError, PreferredRequest, WouldWaitError
from edgegpu_plugin.records.node_state import NodeState

_LOG = logging.getLogger(__name__)

WATCH_GRACE_S = 0.5
"""How long a call waits until our watch shows the pod; kubelet may see a binding before we do."""

_TURNED_AWAY = (
    "The pod came past edgegpu's scheduler and has no controller: delete it, and create it again without nodeName, or "
    "when there is room"
)


class CardInjector(Protocol):
    """The injection of cards into containers, by CDI, the nvidia runtime or device nodes."""

    @property
    def answers_at_once(self) -> bool:
        """Whether `allocation` can answer now without disk or network."""

    def allocation(self, cards: Sequence[str], ids: Sequence[str], given: GivenChoice) -> Allocation:
        """Return what kubelet shall give a container with these ids of one resource, which lie on these cards.

        The answer is frozen for the pod's life. `given` says what shall hold the container.
        """

    def prepare(self, cards: Sequence[str], uid: str, *containers: str) -> None:
        """Make all files that the allocations of a container refer to; this may wait for the driver after a boot.

        Args:
            cards: the container's cards.
            uid: kubelet's UID of its pod.
            *containers: its name; several where the start may be of each of them.

        Raises:
            PluginError: a card is missing or cannot be injected, or the container cannot be held to its memory.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """The answers to kubelet's calls for both resources, from one node's state."""

    state: NodeState
    injector: CardInjector
    kubelet_pods: Callable[[], Iterable[PodView] | None]
    clock: Callable[[], float] = time.monotonic
    _starts: StartMatcher = field(default_factory=StartMatcher, init=False)

    def preferred(self, kind: DeviceKind, request: PreferredRequest, *, may_wait: bool = True) -> list[str]:
        """Answer GetPreferredAllocation: exactly `size` ids that contain `must_include`.

        Raises:
            WouldWaitError: the answer would be a guess, which first needs a wait and a question to kubelet.
        """
        must = list(request.must_include)
        target = self._target(kind, request.size, must, may_wait=may_wait)
        ids = pick(request.available, must, request.size, target)
        who = (
            "a container of no known pod" if target.want is None else _name(target.want.pod, target.want.container.name)
        )
        _LOG.debug(
            "prefer %d %s for %s on %s%s", request.size, kind.name, who, target.cards, " (own choice)" * target.guessed
        )
        return ids

    def allocate(self, kind: DeviceKind, ids: Sequence[str], *, may_wait: bool = True) -> Allocation:
        """Answer Allocate.

        Raises:
            CallRefusedError: the pod shall fail (`admission_failure` says why); an error here is final for it.
            WouldWaitError: the injector's answer needs disk or network; nothing is recorded.
        """
        if not may_wait and not self.injector.answers_at_once:
            raise WouldWaitError
        with self.state.lock:
            given = tuple(ids)
            view = self.state.snapshot().view
            asking = self.state.matcher.asking(kind, len(given), view, now_s=self.clock())
            reasons = {admission_failure(one, view) for one in asking}
            if len(reasons) == 1 and (reason := reasons.pop()):  # else the second call or the start refuses it
                _LOG.warning("%s fails: %s", " or ".join(one.pod.full_name for one in asking), reason)
                raise CallRefusedError(f"edgegpu: {reason}. {_TURNED_AWAY}")
            choices = self.state.matcher.choices(kind, len(given), view, now_s=self.clock())
            want = self.state.matcher.allocated(kind, given, view, now_s=self.clock())
            self.state.invalidate()
        cards = sorted({card_of(text) for text in given})
        who = "a container of no known pod" if want is None else _name(want.pod, want.container.name)
        _LOG.info("%s gets %d %s on %s", who, len(given), kind.name.lower(), ", ".join(cards))
        return self.injector.allocation(cards, given, view.allowed.given_to(choices))

    def pre_start(self, kind: DeviceKind, ids: Sequence[str]) -> None:
        """Answer PreStartContainer.

        Raises:
            CallRefusedError: the container may not start; kubelet shows the text and asks again.
        """
        with self.state.lock:
            view = self.state.snapshot().view
            owners = [one for one in view.ledger.owners_of(kind, ids) if one in view.given]
            if not owners:
                why = self.state.checkpoint_problem or "it does not hold these devices yet"
                raise CallRefusedError(f"edgegpu: kubelet's checkpoint: {why}; kubelet asks again")
            uid = owners[-1][0]
            names = [name for owner, name in owners if owner == uid]
            starting = self._starts.starting(kind, uid, names, view.ledger, now_s=self.clock())
            for name in starting:
                self._check_start(uid, name, view)
        self.injector.prepare(sorted({card_of(text) for text in ids}), uid, *starting)
        with self.state.lock:
            self._starts.answered(uid, now_s=self.clock())

    def _check_start(self, uid: str, name: str, view: NodeView) -> None:
        """Check that a container may start. Raises CallRefusedError."""
        pod = view.pods.get(uid)
        if pod is None:
            if is_split_share(view.ledger.grant(uid, name)):
                raise CallRefusedError(
                    "edgegpu: refused: the container's devices lie on several cards, and its pod is not known yet; see "
                    "that the API server is up; kubelet asks again"
                )
            if view.given[uid, name].replaced:
                raise CallRefusedError(
                    "edgegpu: refused: the container was given less than this node's isolation, as a pod may choose, "
                    "and its pod is not known yet; see that the API server is up; kubelet asks again"
                )
            return
        if not view.slots:
            raise CallRefusedError("edgegpu: the cards of this node are not known yet; kubelet asks again")
        verdict = self._verdict(pod, name, view)
        if not verdict.admitted:
            raise CallRefusedError(f"edgegpu: refused: {verdict.reason}")
        self.state.admit(uid, name, verdict.cards)

    def _verdict(self, pod: PodView, name: str, view: NodeView) -> AdmissionVerdict:
        container = next((one for one in pod.containers if one.name == name), None)
        if container is None:
            return AdmissionVerdict((), f"container {name} asks for nothing of edgegpu")
        return admission_verdict(pod, container, view)

    def _target(self, kind: DeviceKind, size: int, must: list[str], *, may_wait: bool) -> AllocationTarget:
        """Return the target of a call; where our watch may be late, kubelet's pods are read before any guess.

        A known pod that asks for the same amount and has no promise proves nothing: the call may be for a placed pod
        that our watch does not show yet, or the guess would take the card that such a pod is promised.
        """
        state = self.state
        with state.lock:
            deadline = self.clock() + WATCH_GRACE_S
            while True:
                target = self._prefer(kind, size, must)
                left = deadline - self.clock()
                if target.want is not None or left <= 0:
                    break
                if not may_wait:
                    raise WouldWaitError
                state.pods_changed.wait(left)
        if target.want is not None and not target.guessed:
            return target
        if not may_wait:
            raise WouldWaitError
        pods = self.kubelet_pods()
        if pods is None:
            _LOG.warning("a guess for %d %s: kubelet's pod list cannot be read", size, kind.name)
            return target
        with state.lock:
            state.learn_pods(pods)
            return self._prefer(kind, size, must)

    def _prefer(self, kind: DeviceKind, size: int, must: list[str]) -> AllocationTarget:
        view = self.state.snapshot().view
        return self.state.matcher.prefer(kind, size, must, view, now_s=self.clock())


def _name(pod: PodView, container: str) -> str:
    return f"{pod.full_name}/{container}"
