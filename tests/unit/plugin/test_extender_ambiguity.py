import pytest
from hypothesis import given
from hypothesis import strategies as st
from integration.extender_world import MODEL, Json, pod

from edgegpu_core.podview import PodView, pod_view
from edgegpu_plugin.extender.bind import ambiguous


def view(item: Json) -> PodView:
    found = pod_view(item, MODEL)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pod("a", (4, 1)), pod("b", (4, 1)), False),
        (pod("a", (4, 1)), pod("b", (20, 1)), True),
        (pod("a", (4, 1)), pod("b", (4, 30)), True),
        (pod("a", (4, 10)), pod("b", (20, 30)), False),
        (pod("a", (4, 0)), pod("b", (20, 0)), False),
        (pod("a", (0, 100)), pod("b", (0, 200)), False),
        (pod("a", (0, 100)), pod("b", (0, 100)), False),
        (pod("a", (0, 100)), pod("b", (4, 100)), True),
        (pod("a", (4, 1), policy="spread"), pod("b", (4, 1)), True),
        (pod("a", (4, 1), policy="spread"), pod("b", (4, 1), policy="spread"), False),
        (pod("a", (4, 1), isolation="none"), pod("b", (4, 1)), True),
        (pod("a", (4, 1), isolation="none"), pod("b", (4, 1), isolation="none"), False),
        (pod("a", (4, 1), isolation="none"), pod("b", (8, 5)), False),
        (pod("a", (4, 1), init=(4, 1)), pod("b", (4, 1)), True),
        (pod("a", (4, 1), init=(2, 9)), pod("b", (8, 5)), False),
        (pod("a", (4, 10), (20, 30)), pod("b", (4, 10)), False),
        (pod("a", (4, 10), (20, 30)), pod("b", (4, 30)), True),
    ],
)
def test_who_could_be_mistaken_for_whom(one: Json, other: Json, expected: bool) -> None:  # noqa: FBT001
    assert ambiguous(view(one), view(other)) is expected


ASKS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 30, 100])).filter(any), min_size=1, max_size=3)


@given(ASKS, ASKS, st.sampled_from([None, "spread"]))
def test_it_is_the_same_from_either_side(one: list[tuple[int, int]], other: list[tuple[int, int]], policy: str) -> None:
    a, b = view(pod("a", *one, policy=policy)), view(pod("b", *other))
    assert ambiguous(a, b) is ambiguous(b, a)


@given(st.tuples(st.integers(1, 9), st.integers(1, 99)))
def test_replicas_of_one_container_never_wait_for_each_other(ask: tuple[int, int]) -> None:
    assert not ambiguous(view(pod("a", ask)), view(pod("b", ask)))
