"""The rules of shares: what containers may have of a card, and what they are charged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_plugin.compute.shares import (
    LEAST_PERMILLE,
    WHOLE_PERMILLE,
    BusyContainer,
    goals,
    next_part,
    permille,
    targets,
)

PERCENT = st.floats(0, 100)
CONTAINERS = st.builds(
    BusyContainer,
    core=st.integers(1, 99),
    elastic=st.booleans(),
    used=PERCENT,
    wants=st.booleans(),
    known=st.booleans(),
    mean=PERCENT,
)


@given(st.dictionaries(st.integers(), CONTAINERS, min_size=1, max_size=5), PERCENT)
def test_nobody_gets_less_than_is_guaranteed_and_strict_ones_no_more(
    busy: dict[int, BusyContainer], others: float
) -> None:
    found = targets(busy, others)
    assert found.keys() == busy.keys()
    for key, one in busy.items():
        assert one.core <= found[key] <= 100
        assert one.elastic or found[key] == one.core


@given(st.dictionaries(st.integers(), CONTAINERS, min_size=2, max_size=5), PERCENT)
def test_what_elastic_ones_get_beyond_is_what_nobody_wants(busy: dict[int, BusyContainer], others: float) -> None:
    beyond = sum(target - busy[key].core for key, target in targets(busy, others).items())
    wanted = sum(one.core for one in busy.values() if one.wants or not one.known)
    assert beyond <= max(0.0, 100 - wanted - others) + 1e-6


@given(st.dictionaries(st.integers(), CONTAINERS, min_size=1, max_size=5), PERCENT)
def test_only_who_has_less_than_its_share_of_late_is_let_to_more_and_on_a_full_card_alone(
    busy: dict[int, BusyContainer], others: float
) -> None:
    wanted = targets(busy, others)
    found = goals(busy, wanted)
    assert found.keys() == busy.keys()
    for key, one in busy.items():
        assert wanted[key] <= found[key] <= max(wanted[key], min(100, one.core + 3))
        is_let = sum(each.core for each in busy.values()) > 97 and one.wants and one.known
        if not is_let or one.used >= one.core or one.mean >= one.core:
            assert found[key] == wanted[key]


def test_who_lacks_some_of_its_share_on_a_full_card_is_let_to_more_until_it_has_had_it() -> None:
    lacking = BusyContainer(70, elastic=False, used=66, wants=True, mean=67)
    other = BusyContainer(30, elastic=False, used=30, wants=True, mean=30)
    assert goals({"a": lacking, "b": other}, {"a": 70, "b": 30}) == {"a": 73, "b": 30}
    rested = BusyContainer(70, elastic=False, used=40, wants=True, mean=71)
    assert goals({"a": rested, "b": other}, {"a": 70, "b": 30}) == {"a": 70, "b": 30}
    assert goals({"a": lacking}, {"a": 70}) == {"a": 70}


def test_an_elastic_container_alone_may_have_the_card() -> None:
    alone = {"a": BusyContainer(30, elastic=True, used=30, wants=True)}
    assert targets(alone, 0) == {"a": 100}
    assert targets(alone, 40) == {"a": 30 + 97 - 30 - 45}


def test_of_what_is_guaranteed_to_one_that_wants_less_it_keeps_what_it_uses_and_a_margin() -> None:
    taking = BusyContainer(30, elastic=True, used=30, wants=True)
    resting = BusyContainer(60, elastic=False, used=20, wants=False)
    assert targets({"a": taking, "b": resting}, 0) == {"a": 97 - (20 + 5), "b": 60}


def test_an_elastic_container_takes_more_once_it_is_near_its_guarantee() -> None:
    for used, target in ((24, 30), (26, 100)):
        assert targets({"a": BusyContainer(30, elastic=True, used=used, wants=False)}, 0) == {"a": target}


def test_a_newcomer_has_its_guarantee_before_anything_is_known_of_it() -> None:
    grown = BusyContainer(30, elastic=True, used=95, wants=True)
    newcomer = BusyContainer(60, elastic=False, used=0, wants=False, known=False)
    assert targets({"a": grown, "b": newcomer}, 0) == {"a": 37, "b": 60}


def test_spare_time_goes_by_the_guarantees() -> None:
    first, second = (BusyContainer(core, elastic=True, used=core, wants=True) for core in (20, 40))
    found = targets({1: first, 2: second}, 0)
    assert abs(found[1] - 97 / 3) < 1e-6
    assert abs(found[2] - 97 * 2 / 3) < 1e-6


@given(st.floats(0.15, 1), CONTAINERS, st.floats(1, 100), PERCENT)
def test_a_part_is_never_more_than_all_nor_less_than_others_can_explain(
    part: float, one: BusyContainer, target: float, rest: float
) -> None:
    found = next_part(part, one, target=target, rest=rest)
    assert min(part, 0.15) <= found <= 1
    if found < part:
        assert one.wants
        assert one.used < target
        assert found >= 0.9 * one.used / (one.used + rest) - 1e-6 or found >= part


@given(part=st.floats(0.15, 0.99), core=st.integers(1, 99), wants=st.booleans())
def test_who_has_more_than_its_target_is_charged_more(part: float, core: int, *, wants: bool) -> None:
    """Whatever the container writes of its own wishes: the driver's count decides."""
    one = BusyContainer(core, elastic=False, used=core + 3, wants=wants)
    assert next_part(part, one, target=core, rest=30) > part


@pytest.mark.parametrize(
    ("part", "used", "mean", "on_its_way", "step"),
    [
        (0.8, 66.5, 0, 1, 0.95**0.3),  # near: gently
        (0.8, 56, 0, 1, 0.8**0.6),
        (0.8, 20, 0, 1, (2 / 3) ** 0.6),  # however far
        (0.4, 91, 0, 1, 1.3**0.6),
        (0.4, 10, 77, 1, 1.1**0.3),  # it had more of late
        (0.8, 56, 0, 1.1, 0.88**0.3),  # it comes to some of it by itself
        (0.8, 56, 0, 2, 1),  # and to too much once that is seen: then it has
        (0.4, 91, 0, 0.9, 1.17**0.6),
        (0.4, 91, 0, 0.5, 1),
        (0.4, 77, 84, 0.5, 1.2**0.6),
    ],
)
def test_a_part_follows_what_was_had_in_steps_that_are_bounded(
    part: float, used: float, mean: float, on_its_way: float, step: float
) -> None:
    one = BusyContainer(70, elastic=False, used=used, wants=True, mean=mean, on_its_way=on_its_way)
    assert next_part(part, one, target=70, rest=150) == pytest.approx(part * step)


def test_a_charge_is_less_where_the_target_is_above_the_guarantee() -> None:
    assert permille(0.5, BusyContainer(30, elastic=True, used=60, wants=True), target=60) == 250


@pytest.mark.parametrize("own", [0.3, 0.6, 0.9])
def test_a_part_that_is_found_is_not_overshot(own: float) -> None:
    """A model: of what is measured so much is its own, and what it has is seen with a delay."""
    core, part, used, charged, had = 60, 1.0, 60.0 * own, 1.0, [60.0 * own]
    for _ in range(60):
        used, charged = used + (had[-1] - used) * 0.2, charged + (part - charged) * 0.2
        one = BusyContainer(core, elastic=False, used=used, wants=True, on_its_way=charged / part)
        part = next_part(part, one, target=core, rest=150)
        had.append(core * own / part)
    assert max(had) <= core + 0.5
    assert min(had[30:]) >= core - 2


@pytest.mark.parametrize("pause", [4, 10, 20, 30])
def test_who_left_its_share_for_a_while_gains_nothing_by_it(pause: int) -> None:
    """It says that it is held back, takes less for some seconds and then all that it can."""
    core, part, used, mean, charged, had = 20, 1.0, 2.0, 2.0, 1.0, []
    for tick in range(3000):
        now = min(15.0 if tick % 40 < pause else 100.0, core / part)
        used, mean = used + (now - used) * 0.2, mean + (now - mean) * 0.03
        charged += (part - charged) * 0.2
        one = BusyContainer(core, elastic=False, used=used, wants=True, mean=mean, on_its_way=charged / part)
        part = next_part(part, one, target=core, rest=80)
        had.append(now)
    assert sum(had) / len(had) <= core + 1


def test_who_says_that_it_is_held_back_and_computes_nothing_is_charged_for_all() -> None:
    part, lying = 0.5, BusyContainer(50, elastic=False, used=1, wants=True)
    for _ in range(200):
        part = next_part(part, lying, target=50, rest=40)
    assert part > 0.99


def test_who_wants_no_more_is_slowly_charged_for_all_again() -> None:
    part, idle = 0.5, BusyContainer(50, elastic=False, used=10, wants=False)
    for _ in range(200):
        part = next_part(part, idle, target=50, rest=40)
    assert part > 0.99


@given(st.floats(0.15, 1), CONTAINERS, PERCENT)
def test_a_charge_is_within_what_the_limiter_takes(part: float, one: BusyContainer, more: float) -> None:
    target = min(100.0, one.core + more)
    found = permille(part, one, target=target)
    assert LEAST_PERMILLE <= found <= WHOLE_PERMILLE
    if not more:
        assert found == round(1000 * part)


def test_competing_containers_come_to_their_shares() -> None:
    """A model: each is charged for half of the other's time too, and gets what its bucket lets through."""
    cores = {"a": 30, "b": 60}
    parts = dict.fromkeys(cores, 1.0)
    used = {"a": 22.0, "b": 50.0}
    for _ in range(60):
        measured = {key: used[key] + 0.5 * (sum(used.values()) - used[key]) for key in cores}
        for key, core in cores.items():
            one = BusyContainer(core, elastic=False, used=used[key], wants=True)
            parts[key] = next_part(parts[key], one, target=core, rest=sum(used.values()) - used[key])
        used = {key: used[key] * (core / (measured[key] * parts[key])) ** 0.3 for key, core in cores.items()}
    assert all(abs(used[key] - core) < 1 for key, core in cores.items()), used
