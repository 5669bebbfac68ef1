"""The verdict over a change of limits against a rollout played through in the plainest way, each order of old pods."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from kits.limitscases import asks, change, node, own, recreate, rolling, stateful

from edgegpu_core.ledger import free_after
from edgegpu_core.limits.capacity import NodeRoom
from edgegpu_core.limits.verdict import FitResult, LimitsChange, limits_verdict
from edgegpu_core.limits.workload import UpdateStrategy, WorkloadKind, pods_of
from edgegpu_core.placement import Placement, Policy, place, plan_pod

CARDS = st.lists(st.integers(4, 12), min_size=1, max_size=2)


class Board:
    """The cards and who holds what, pod by pod."""

    def __init__(self, case: LimitsChange) -> None:
        [room] = case.rooms
        self.room: NodeRoom = room
        self.held = dict(room.held)
        self.case = case
        self.count = 0

    def add(self) -> bool:
        plan = plan_pod(self.case.pod.containers, self.room.model)
        free = free_after(self.room.slots, self.held.values())
        placed = place(plan, free, Policy.FIRST_FIT)  # type: ignore[arg-type]
        if not isinstance(placed, Placement):
            return False
        self.count += 1
        self.held[f"n{self.count}"] = placed.held
        return True


def rolls(case: LimitsChange, order: tuple[str, ...]) -> bool:
    """Play a Deployment's rolling update in which old pods go in this order."""
    board, old, new, work = Board(case), list(order), 0, case.workload
    while old or new < work.replicas:
        made = False
        while new < work.replicas and len(old) + new < work.replicas + work.surge and board.add():
            new, made = new + 1, True
        if old and len(old) + new > work.replicas - work.unavailable:
            del board.held[old.pop(0)]
            made = True
        if not made:
            return False
    return True


@st.composite
def cases(draw: st.DrawFn) -> tuple[LimitsChange, list[str]]:
    """Draw a node with own and foreign pods, and a rolling change."""
    units = draw(CARDS)
    replicas = draw(st.integers(1, 3))
    room = dict(enumerate(units))
    held: dict[str, tuple[int, int]] = {}
    names = [f"a{at}" for at in range(replicas)]
    for name in [*names, *(f"x{at}" for at in range(draw(st.integers(0, 2))))]:
        card = draw(st.sampled_from(sorted(room)))
        amount = draw(st.integers(0, room[card]))
        if amount:
            held[name] = (card, amount)
            room[card] -= amount
    surge = draw(st.integers(0, 2))
    unavailable = draw(st.integers(0 if surge else 1, replicas))
    work = rolling(replicas, surge, unavailable)
    return change(work, asks(draw(st.integers(1, 12))), node("box-1", units, held), pods=own(*names)), names


def fits_empty(case: LimitsChange, without: list[str]) -> bool:
    board = Board(case)
    for name in without:
        board.held.pop(name, None)
    return all(board.add() for _ in range(case.workload.replicas))


@given(cases())
def test_the_verdict_is_what_every_way_of_the_rollout_comes_to(drawn: tuple[LimitsChange, list[str]]) -> None:
    case, names = drawn
    [room] = case.rooms
    for name in names:  # a pod that holds nothing is there as well
        room.held.setdefault(name, ())  # type: ignore[attr-defined]
    verdict = limits_verdict(case)
    board = Board(case)
    beside = all(board.add() for _ in range(case.workload.replicas))
    through = all(rolls(case, order) for order in permutations(names))
    if beside or (through and case.workload.surge):
        assert verdict.answer is FitResult.FITS
    elif through:
        assert (verdict.answer, verdict.interrupts) == (FitResult.AFTER_STOP, False)
    elif fits_empty(case, names):
        assert (verdict.answer, verdict.interrupts) == (FitResult.AFTER_STOP, True)
    else:
        assert verdict.answer is FitResult.NEVER


@given(cases())
def test_less_is_never_worse(drawn: tuple[LimitsChange, list[str]]) -> None:
    case, _ = drawn
    rank = {FitResult.FITS: 0, FitResult.AFTER_STOP: 1, FitResult.NEVER: 2}
    answers = [
        rank[limits_verdict(change(case.workload, asks(units), *case.rooms, pods=case.own)).answer]
        for units in range(1, case.request.memory_units + 1)
    ]
    assert answers == sorted(answers)


@given(cases())
def test_recreate_asks_for_less_than_in_turn_and_in_turn_for_less_than_beside(
    drawn: tuple[LimitsChange, list[str]],
) -> None:
    case, _ = drawn
    replicas = case.workload.replicas
    answers = {
        (work.kind, work.strategy): limits_verdict(change(work, case.pod, *case.rooms, pods=case.own))
        for work in (recreate(replicas), stateful(replicas), case.workload)
    }
    never = {verdict.answer is FitResult.NEVER for verdict in answers.values()}
    assert len(never) == 1, "whether it fits after a stop does not depend on how pods are replaced"
    assert not answers[WorkloadKind.DEPLOYMENT, UpdateStrategy.RECREATE].interrupts


@given(st.integers(0, 200), st.integers(0, 100))
def test_percentages_are_rounded_as_they_should(share: int, replicas: int) -> None:
    exact = share * replicas / 100
    assert 0 <= pods_of(f"{share}%", replicas, up=True) - exact < 1
    assert 0 <= exact - pods_of(f"{share}%", replicas, up=False) < 1
    assert pods_of(share, replicas, up=True) == share


def test_a_hundred_pods_are_judged_in_time() -> None:
    held = {f"a{at}": (at % 2, 1 + at % 3) for at in range(100)}
    case = change(rolling(100, 25, 25), asks(3), node("box-1", [300, 300], held), pods=own(*held))
    assert limits_verdict(case).answer is FitResult.FITS
