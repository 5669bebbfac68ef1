"""Amounts for any cards: what the scenarios say of them must hold by first fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgegpu_agent.cli.clients.document import CardRow
from edgegpu_agent.demo import plan
from edgegpu_agent.demo.model import uuids

CARDS = st.lists(st.tuples(st.integers(0, 600), st.booleans()), max_size=8)
GPU = "GPU 0: NVIDIA A100 (UUID: GPU-1)\n"


def cards(*free: int, healthy: bool = True) -> list[CardRow]:
    return [
        CardRow(
            index=str(i), uuid=f"GPU-{i}", name="", units=units + 3, units_free=units, core_free=90, healthy=healthy
        )
        for i, units in enumerate(free)
    ]


def placed(free: list[int], *amounts: int) -> list[int]:
    left, found = list(free), []
    for amount in amounts:
        card = next(i for i, room in enumerate(left) if room >= amount)
        left[card] -= amount
        found.append(card)
    return found


def test_the_fields_cards_get_the_fields_amounts() -> None:
    assert plan.three_for(cards(29, 29)) == plan.FIELD_THREE
    assert plan.pair_for(cards(16, 16)) == plan.FIELD_PAIR
    filling = plan.filling_for(cards(94))
    assert filling is not None
    assert (filling.first, filling.second, filling.third) == (50, 40, 1)


def test_where_there_is_no_room_there_is_no_plan() -> None:
    for none in ([], cards(0), cards(2), cards(94, healthy=False)):
        assert plan.filling_for(none) is None
        assert plan.three_for(none) is None
        assert plan.pair_for(none) is None
    assert plan.three_for(cards(29)) is None
    assert plan.pair_for(cards(94, 10)) is None


@given(st.lists(st.integers(1, 600), min_size=1, max_size=8))
def test_whatever_is_planned_comes_out_as_the_scenarios_say(free: list[int]) -> None:
    rows = cards(*free)
    filling, three, pair = plan.filling_for(rows), plan.three_for(rows), plan.pair_for(rows)
    if filling is not None:
        placed(free, filling.first, filling.second, filling.third)
        assert filling.too_much > sum(free) - filling.first - filling.second
    if three is not None:
        _, one, other = placed(free, three.small, three.large, three.large)
        assert one != other
    if pair is not None:
        assert len(set(placed(free, pair.small, pair.small))) == 1
        assert len(set(placed(free, pair.small, pair.larger))) == 2
        assert pair.small + pair.larger > max(free)


def test_what_nvidia_smi_lists() -> None:
    assert uuids("") == uuids("No devices found.\n") == ()
    assert uuids(GPU) == ("GPU-1",)
    assert uuids(GPU + "GPU 1: NVIDIA A100 (UUID: GPU-2)\n") == ("GPU-1", "GPU-2")
    assert uuids(GPU + "  MIG 1g.10gb     Device  0: (UUID: MIG-3)\n") == ("MIG-3",)
