"""The ledger as a state machine: bindings, kubelet's calls in any order, late watches, deletions and restarts.

It stops between any two of kubelet's calls, 18 000 steps in a run, which processes cannot be made to do: what
the core must say there is its subject, PluginModel only what the core is asked with. The real process has a machine of
its own, tests/chaos/test_plugin_machine.py. That one has not seen an `ambiguous` that never holds; this one does, in
about every second run of 100 examples.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from property.box_model import SHAPES, BoxModel
from property.cases import MODEL
from property.plugin_model import ALLOWED, room, summed

from edgegpu_core.admission import admission_verdict
from edgegpu_core.choices.modes import Capability, PluginIsolation
from edgegpu_core.choices.pod_choice import NO_CHOICE, PodChoice
from edgegpu_core.deviceid import DeviceKind, card_of
from edgegpu_core.placement import Placement, PodPlan, Policy, place, plan_pod
from edgegpu_core.podview import PodView
from edgegpu_core.request import RequestedAmounts
from edgegpu_plugin.extender.bind import ambiguous

REQUESTS = st.one_of(
    st.builds(RequestedAmounts, st.sampled_from([2, 3, 4, 6]), st.sampled_from([10, 30, 50, 80, 100])),
    st.sampled_from(
        [
            RequestedAmounts(0, 100),
            RequestedAmounts(0, 200),
            RequestedAmounts(1, 200),
            RequestedAmounts(5, 200),
            RequestedAmounts(13, 300),
        ]
    ),
)
SHAPE = st.sampled_from(["one"] * 6 + list(SHAPES))
COPIES = st.sampled_from([3, 1, 2])
CHOICES = st.sampled_from(
    [NO_CHOICE, NO_CHOICE, NO_CHOICE, PodChoice(PluginIsolation.NONE), PodChoice("", (Capability.GRAPHICS,))]
)
MOST_WAITING = 6
PICK = st.integers(0, 5)


class LedgerMachine(BoxModel, RuleBasedStateMachine):
    """Rules and invariants; bind holds back pods that may be taken for another, as the extender does."""

    forcing = False

    @initialize(
        units=st.lists(st.sampled_from([12, 8, 6]), min_size=2, max_size=4),
        seed=st.integers(0, 2**32),
        menu=st.lists(REQUESTS, min_size=1, max_size=3),
    )
    def begin(self, units: list[int], seed: int, menu: list[RequestedAmounts]) -> None:
        self.build(units, seed, menu)

    # What the cluster does.

    @precondition(lambda self: len(self.kubelet.queue()) < MOST_WAITING)
    @rule(shape=SHAPE, picks=st.tuples(PICK, PICK), known=st.booleans(), copies=COPIES, choice=CHOICES)
    def bind(self, shape: str, picks: tuple[int, int], known: bool, copies: int, choice: PodChoice) -> None:  # noqa: FBT001
        containers = self.containers(shape, picks)
        plan = plan_pod(containers, MODEL)
        for _ in range(copies):
            pod = self.new(containers, choice)
            held_back = any(self.lacks(uid) and ambiguous(pod, self.api[uid]) for uid in self.bound)
            if not isinstance(plan, PodPlan) or held_back:
                return
            placed = place(plan, room(self.plugin.view(), self.api.values()), Policy.FIRST_FIT)
            if isinstance(placed, Placement):
                self.bound.add(pod.uid)
                if self.due not in self.bound:
                    self.due = ""  # what a forced pod has not got yet is promised to nobody
                self.add(replace(pod, cards=placed.cards), known=known)

    @precondition(lambda self: self.forcing and len(self.kubelet.queue()) < MOST_WAITING)
    @rule(shape=SHAPE, picks=st.tuples(PICK, PICK), known=st.booleans(), copies=COPIES, choice=CHOICES)
    def force(self, shape: str, picks: tuple[int, int], known: bool, copies: int, choice: PodChoice) -> None:  # noqa: FBT001
        containers = self.containers(shape, picks)
        for _ in range(copies):
            if isinstance(plan_pod(containers, MODEL), PodPlan):
                pod = self.new(containers, choice)
                if self.due in self.api and ambiguous(pod, self.api[self.due]):
                    self.due = ""  # its calls can be taken for those of a twin that came meanwhile
                self.add(pod, known=known)

    # What kubelet does.

    @precondition(lambda self: self.kubelet.now is None and self.kubelet.queue())
    @rule(data=st.data(), at_once=st.sampled_from([True, True, False]))
    def admit(self, data: st.DataObject, at_once: bool) -> None:  # noqa: FBT001
        queue = self.kubelet.queue()
        pod = queue[data.draw(st.integers(0, len(queue) - 1))]
        self.due = pod.uid if self._ought_to_start(pod) else ""
        self.kubelet.admit(pod)
        while at_once and self.kubelet.now is not None:
            self._advance()

    @precondition(lambda self: self.kubelet.now is not None)
    @rule(calls=st.integers(1, 9))
    def advance(self, calls: int) -> None:
        for _ in range(calls):
            if self.kubelet.now is not None:
                self._advance()

    def _advance(self) -> None:
        assert self.kubelet.now is not None
        uid = self.kubelet.now.pod.uid
        done = self.kubelet.advance()
        if done == "failed":
            assert uid != self.due, f"{uid} fitted and failed"
            if uid in self.api:
                self.api[uid] = replace(self.api[uid], phase="Failed")
        elif done == "admitted" and uid in self.api:
            self.watch_catches_up()
            self._start(self.api[uid])

    def _ought_to_start(self, pod: PodView) -> bool:
        """Whether bind placed it; among forced ones: whether there is room that is promised to nobody, and no twin."""
        if not self.forcing:
            return pod.uid in self.bound & self.api.keys()
        self.watch_catches_up()
        view = self.plugin.view()
        plan = plan_pod(pod.containers, MODEL)
        others = (self.api[uid] for uid in self.api if uid != pod.uid and self.lacks(uid))
        if view.ledger.grants(pod.uid) or any(ambiguous(pod, other) for other in others):
            return False
        sums = summed(view.holdings().values())
        if any(sums[s.uuid, "memory"] > s.units or sums[s.uuid, "core"] > 100 for s in self.slots):
            return False  # some promise is broken already, and it may be taken for the one that has it
        assert isinstance(plan, PodPlan)
        return isinstance(place(plan, view.free(without=pod.uid), Policy.FIRST_FIT), Placement)

    def _start(self, pod: PodView) -> None:
        """Ask PreStart's question, as kubelet does at each start of a container."""
        view = self.plugin.view()
        verdicts = [admission_verdict(pod, container, view) for container in pod.containers]
        agree = all(len(self.answers()[pod.uid, container.name]) == 1 for container in pod.containers)
        if agree and all(verdict.admitted for verdict in verdicts):
            self.running.add(pod.uid)
            self._is_right(pod)
        else:
            assert pod.uid != self.due, f"{pod.uid} ought to start: {verdicts}"

    def _is_right(self, pod: PodView) -> None:
        view = self.plugin.view()
        for container in pod.containers:
            grant = view.ledger.grant(pod.uid, container.name)
            cards = {kind: {card_of(text) for text in grant.ids.get(kind, ())} for kind in DeviceKind}
            assert cards[DeviceKind.MEMORY] <= cards[DeviceKind.CORE]
            assert len(cards[DeviceKind.CORE]) == max(1, container.request.core // 100)
            (given,) = self.answers()[pod.uid, container.name]
            assert given in {ALLOWED.given_to([pod.choice]), ALLOWED.given_to([])}, "it is held less than it may be"
            if pod.uid in self.bound and not self.forcing:
                assert given == ALLOWED.given_to([pod.choice]), f"{pod.uid} chose {pod.choice}, and was given {given}"
            if pod.uid in self.bound:
                assert set(view.promises[pod.uid][container.name]) == cards[DeviceKind.CORE]

    def kubelet_restarts(self) -> None:
        self.kubelet.restart()
        for uid in self.kubelet.active.keys() - self.api.keys():
            self.end(uid)
        self.plugin.matcher.forget()

    # What the plugin's other threads do.

    @rule(which=st.sampled_from(["release", "kubelet", "plugin", "annotate", "watch"]))
    def meanwhile(self, which: str) -> None:
        match which:
            case "release":
                self.containers_of_deleted_pods_end_and_are_released()
            case "kubelet":
                self.kubelet_restarts()
            case "plugin" if self.kubelet.now is None:
                self.plugin_restarts()
            case "annotate":
                self.annotations_are_corrected()
            case _:
                self.watch_catches_up()

    def plugin_restarts(self) -> None:
        pods = list(self.api.values())
        self.kubelet.rng.shuffle(pods)
        self.plugin.restart(pods)
        self.last = {}  # who had inherited from whom is lost where annotations are not corrected yet,
        # and what an ended pod has may be promised: kubelet frees it before its next admission.
        self.ended_before = frozenset(self.plugin.view().ledger.pods()) - self.api.keys() - self.kubelet.active.keys()

    def watch_catches_up(self) -> None:
        for uid in [uid for uid in self.plugin.pods if uid not in self.api]:
            self.plugin.drop(uid)
        for pod in self.api.values():
            self.plugin.put(pod)

    def annotations_are_corrected(self) -> None:
        self.plugin.adopt()
        for uid, promise in self.plugin.view().promises.items():
            if uid in self.api and not self.api[uid].is_terminal:
                self.api[uid] = replace(self.api[uid], cards=promise)

    def end(self, uid: str) -> None:
        """All containers of a pod end. The watch tells of it before kubelet's next admission: a ghost would inherit."""
        self.kubelet.end(uid)
        self.plugin.drop(uid)

    @precondition(lambda self: len(self.api) > 1)
    @rule(data=st.data(), by_force=st.booleans())
    def delete(self, data: st.DataObject, by_force: bool) -> None:  # noqa: FBT001
        uid = data.draw(st.sampled_from(sorted(self.api)))
        if uid not in self.kubelet.admitted and self.kubelet.now is not None:
            return  # its twin's first call may have been taken for it a millisecond ago; then PreStart refuses the twin
        del self.api[uid]
        if not by_force or uid not in self.kubelet.admitted:
            self.end(uid)

    def containers_of_deleted_pods_end_and_are_released(self) -> None:
        for uid in [uid for uid in self.kubelet.active if uid not in self.api]:
            if self.kubelet.now is None or self.kubelet.now.pod.uid != uid:
                self.kubelet.end(uid)
        self.watch_catches_up()
        self.kubelet.collect()
        listed = {uid for uid, _, _ in self.kubelet.in_use()}
        live = {uid for uid, pod in self.api.items() if not pod.is_terminal}
        self.plugin.released = frozenset({e.pod_uid for e in self.kubelet.checkpoint} - listed - live)
        self.annotations_are_corrected()  # in the same step of the reconciler

    # What must hold.

    @invariant()
    def nothing_is_overbooked_and_swaps_leave_the_sums(self) -> None:
        held = self.holdings()
        sums = summed(shares for uid, shares in held.items() if uid not in self.ended_before)
        if not self.forcing:
            for slot in self.slots:
                assert sums[slot.uuid, "memory"] <= slot.units, f"{slot.uuid} holds {sums[slot.uuid, 'memory']} units"
                assert sums[slot.uuid, "core"] <= 100, f"{slot.uuid} holds {sums[slot.uuid, 'core']} core"
        now = {uid: shares for uid, shares in held.items() if uid in self.api}
        if not self.forcing and now.keys() == self.last.keys():
            assert summed(now.values()) == summed(self.last.values()), f"{now}, before {self.last}"
        self.last = now

    @invariant()
    def those_who_run_do_not_overlap(self) -> None:
        view = self.plugin.view()
        sums = summed(view.ledger.held(uid, self.slots) for uid in self.running & self.kubelet.active.keys())
        for slot in self.slots:
            assert sums[slot.uuid, "memory"] <= slot.units
            assert sums[slot.uuid, "core"] <= 100

    @invariant()
    def the_ledger_holds_what_kubelet_booked(self) -> None:
        view = self.plugin.view()
        for (uid, container, kind), ids in self.kubelet.in_use().items():
            if self.kubelet.now is None and uid in self.kubelet.active:
                assert set(view.ledger.grant(uid, container).ids.get(kind, ())) == set(ids)


class Placed(LedgerMachine):
    """Only pods that the extender placed."""


class Forced(LedgerMachine):
    """Pods with nodeName among them."""

    forcing = True


TestPlaced = Placed.TestCase
TestPlaced.settings = settings(max_examples=125, stateful_step_count=40)
TestForced = Forced.TestCase
TestForced.settings = settings(max_examples=100, stateful_step_count=40)
