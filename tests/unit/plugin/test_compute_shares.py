"""The rules of shares: what containers may have of a card, and what they are charged."""

from hypothesis import given
from hypothesis import strategies as st

from edgegpu_plugin.compute.shares import (
    LEAST_PERMILLE,
    WHOLE_PERMILLE,
    BusyContainer,
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
)


@given(st.dictionaries(st.integers(), CONTAINERS, min_size=1, max_size=5), PERCENT)
def test_nobody_gets_less_than_is_guaranteed_and_strict_ones_more_while_they_lack_some_of_a_full_card(
    busy: dict[int, BusyContainer], others: float
) -> None:
    found = targets(busy, others)
    assert found.keys() == busy.keys()
    is_full = sum(one.core for one in busy.values()) > 97
    for key, one in busy.items():
        assert one.core <= found[key] <= 100
        more = 3 if is_full and one.known and one.wants and one.used < one.core else 0
        assert one.elastic or found[key] == min(100, one.core + more)


@given(st.dictionaries(st.integers(), CONTAINERS, min_size=2, max_size=5), PERCENT)
def test_what_elastic_ones_get_beyond_is_what_nobody_wants(busy: dict[int, BusyContainer], others: float) -> None:
    beyond = sum(max(0, target - busy[key].core - 3) for key, target in targets(busy, others).items())
    wanted = sum(one.core for one in busy.values() if one.wants or not one.known)
    assert beyond <= max(0.0, 100 - wanted - others) + 1e-6


def test_an_elastic_container_alone_may_have_the_card() -> None:
    alone = {"a": BusyContainer(30, elastic=True, used=30, wants=True)}
    assert targets(alone, 0) == {"a": 100}
    assert targets(alone, 40) == {"a": 30 + 97 - 30 - 45}


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


def test_who_left_its_share_for_a_while_gains_nothing_by_it() -> None:
    """It says that it is held back, takes less for some seconds and then all that it can: the worst rhythm found."""
    core, part, used, mean, had = 20, 1.0, 2.0, 2.0, []
    for tick in range(3000):
        now = min(15.0 if tick % 40 < 20 else 100.0, core / part)
        used, mean = used + (now - used) * 0.3, mean + (now - mean) * 0.03
        one = BusyContainer(core, elastic=False, used=used, wants=True, mean=mean)
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
