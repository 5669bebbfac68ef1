"""The cards of a box as bars: each piece in its place, what is free, what is held beyond the card, what is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kits.details import STAMP, box, card, pod, saying, view

from edgegpu_cloud.fleet.card_views import BoxCards, CardState, UsedMemory, box_cards
from edgegpu_cloud.fleet.preview.capacity import capacity_of
from edgegpu_cloud.store.records import Latest
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from edgegpu_cloud.fleet.views import BoxDetails


def cards(details: BoxDetails) -> BoxCards:
    found = box_cards(details.latest)
    assert found is not None
    return found


def test_each_share_is_a_piece_beside_the_one_before() -> None:
    pods = {"b": pod("asr-0", ("main", "0", 20, 30)), "a": pod("plate-7d9cb5f6d8-x2x4z", ("main", "0", 4, 10))}
    first, second = cards(box(pods=pods)).cards
    placed = [(one.app, one.first_unit, one.units, one.first_core, one.core) for one in first.pieces]
    assert placed == [("plate", 0, 4, 0, 10), ("asr", 4, 20, 10, 30)]
    assert (first.free_units, first.free_core, first.held_units, first.state) == (5, 60, 24, CardState.SHARED)
    assert (second.pieces, second.free_units) == ((), 29)
    assert first.pieces[0].owner == "default/plate-7d9cb5f6d8-x2x4z/main"


def test_a_pod_that_goes_leaves_the_others_in_their_order() -> None:
    pods = {uid: pod(f"{uid}-0", ("main", "0", 2, 1)) for uid in ("c", "a", "b")}
    before = [one.uid for one in cards(box(pods=pods)).cards[0].pieces]
    pods.pop("b")
    after = [one.uid for one in cards(box(pods=dict(reversed(pods.items())))).cards[0].pieces]
    assert (before, after) == (["a", "b", "c"], ["a", "c"])


def test_a_whole_card_is_one_piece_over_all_of_it() -> None:
    first, _ = cards(box(pods={"u": pod("train-0", ("main", "0", 0, 100))})).cards
    [piece] = first.pieces
    assert (piece.whole, piece.units, piece.asked_units, piece.core) == (True, 29, 0, 100)
    assert (first.free_units, first.free_core) == (0, 0)


def test_more_than_the_card_has_lengthens_the_bar() -> None:
    first, _ = cards(box(pods={"u": pod("a-0", ("main", "0", 25, 80)), "v": pod("b-0", ("main", "0", 8, 40))})).cards
    assert (first.too_many_units, first.too_much_core, first.drawn_units, first.drawn_core) == (4, 20, 33, 120)
    assert (first.free_units, first.free_core) == (0, 0)


@pytest.mark.parametrize(
    ("reported", "state"),
    [
        ({"healthy": False, "text": "XID 79"}, CardState.UNHEALTHY),
        ({"excluded": True, "units": 0}, CardState.EXCLUDED),
        ({"excluded": True, "healthy": False}, CardState.EXCLUDED),
    ],
)
def test_a_card_that_is_not_offered_keeps_its_length_and_has_nothing_free(
    reported: dict[str, Any], state: CardState
) -> None:
    [found] = cards(box(cards=({**card("0"), **reported},), pods={"u": pod("a-0", ("main", "0", 3, 1))})).cards
    assert (found.state, found.units, found.free_units, found.free_core, len(found.pieces)) == (state, 29, 0, 0, 1)


def test_a_card_that_is_gone_is_shown_with_the_pods_that_hold_it() -> None:
    *_, gone = cards(box(cards=(card("0"),), pods={"u": pod("a-0", ("main", "7", 3, 1))})).cards
    assert (gone.state, gone.uuid, gone.units, gone.drawn_units) == (CardState.GONE, "GPU-7", 0, 3)
    assert gone.pieces[0].pod == "a-0"


def test_without_sharing_no_unit_is_known_and_nothing_is_divided_by_zero() -> None:
    found = cards(box(cards=(card("0", 0, memory_mib=8192),), sharing=False, unit_mib=0))
    [one] = found.cards
    assert (one.state, one.units, one.drawn_units, one.free_units) == (CardState.UNSHARED, 0, 1, 0)
    assert not found.sharing


def test_a_box_that_has_reported_nothing_has_no_cards() -> None:
    assert box_cards({}) is None


@pytest.mark.parametrize(("cards_at_s", "pods_at_s", "newer"), [(500.0, 100.0, None), (100.0, 500.0, 500.0)])
def test_each_report_has_its_own_age_and_quiet_pods_are_as_old_as_the_cards(
    cards_at_s: float, pods_at_s: float, newer: float | None
) -> None:
    latest = {**box().latest}
    for kind, at_s in ((TopicKind.INVENTORY, cards_at_s), (TopicKind.ALLOC, pods_at_s)):
        latest[kind] = replace(latest[kind], at_s=at_s)
    found = box_cards(latest)
    assert found is not None
    assert (found.cards_at_s, found.pods_at_s, found.newer_pods_at_s) == (cards_at_s, pods_at_s, newer)
    assert (found.as_of_s, found.age_s(cards_at_s + 60.0), found.age_s(50.0)) == (cards_at_s, 60.0, 0.0)


def test_without_sharing_nothing_is_held_beyond_a_card() -> None:
    held = {"u1": pod("asr-0", ("main", "0", 16, 120))}
    off = box(cards=(card("0", 0),), pods=held, sharing=False, unit_mib=0)
    for found in (cards(off), cards(box(cards=(), pods=held))):
        [one] = found.cards
        assert (one.held_units, one.too_many_units, one.too_much_core) == (16, 0, 0)


def test_the_newest_measurement_of_each_card_is_taken() -> None:
    details = box()
    samples = [
        {"at": 30, "cards": [{"uuid": "GPU-0", "core_used": 40.0, "memory_used_mib": 900}]},
        {"at": 90, "cards": [{"uuid": "GPU-0", "core_used": 50.0, "memory_used_mib": 1000}]},
        {"at": 60, "cards": [{"uuid": "GPU-1", "core_used": 7.0, "memory_used_mib": 5}]},
    ]
    stamp = details.latest[TopicKind.INVENTORY].stamp
    body = {**STAMP, "period_s": 30, "samples": samples}
    metrics = Latest(device=view("box1").device, kind=TopicKind.METRICS, stamp=stamp, at_s=100.0, body=body)
    found = box_cards({**details.latest, TopicKind.METRICS: metrics})
    assert found is not None
    told = [(one.sample_at, one.sample.core_used if one.sample else None) for one in found.cards]
    assert told == [(90, 50.0), (60, 7.0)]


PODS = {"u": pod("asr-0", ("main", "0", 4, 10), ("side", "0", 2, 1)), "w": pod("train-0", ("main", "1", 0, 100))}


def measured(
    *uses: dict[str, Any], at: int = 90, heard_s: float = 100.0, pods: dict[str, Any] | None = None
) -> BoxCards:
    """Return the cards of a box that was heard to measure what containers use."""
    details = saying(
        box(pods=PODS if pods is None else pods),
        TopicKind.METRICS,
        period_s=60,
        samples=[{"at": at - 60, "cards": []}, {"at": at, "cards": [], "memory_use": list(uses)}],
    )
    metrics = replace(details.latest[TopicKind.METRICS], at_s=heard_s)
    return cards(replace(details, latest={**details.latest, TopicKind.METRICS: metrics}))


def use(
    card: str, uid: str | None = None, container: str | None = None, *, n: int = 1, mib: int | None = 0
) -> dict[str, Any]:
    whole = {"card": f"GPU-{card}", "uid": uid, "container": container, "processes": n, "memory_mib": mib}
    return {name: value for name, value in whole.items() if value is not None}


def test_each_piece_has_what_its_container_uses_of_what_it_was_given() -> None:
    first, second = measured(use("0", "u", "main", mib=1_025), use("1", "w", "main", n=2, mib=7_424)).cards
    main, side = first.pieces
    assert (main.given_mib, main.used, main.uses_too_much) == (1_024, UsedMemory(1, 1_025), True)
    assert (side.given_mib, side.used, side.uses_too_much) == (512, None, False)
    assert (main.usable_mib, replace(main, live_units=1).usable_mib) == (1_024, 256)
    [whole] = second.pieces
    assert (whole.given_mib, whole.used, whole.uses_too_much) == (7_424, UsedMemory(2, 7_424), False)
    assert (first.use_at_s, first.others) == (90, ())


def test_memory_that_the_driver_does_not_report_is_not_too_much_and_not_nothing() -> None:
    first, second = measured(use("0", "u", "main", mib=None)).cards
    assert (first.pieces[0].used, first.pieces[0].uses_too_much) == (UsedMemory(1, None), False)
    assert (second.use_at_s, second.pieces[0].used) == (None, None), "not a word of this card"


def test_what_holds_no_share_of_the_card_stands_apart() -> None:
    first, _ = measured(
        use("0", mib=110, n=2), use("0", "w", "main", mib=5), use("0", "x", mib=7), use("0", "y", "z", n=0)
    ).cards
    assert [(one.owner, one.used.memory_mib) for one in first.others] == [("", 110), ("default/train-0", 5), ("x", 7)]


def test_an_older_box_tells_of_no_use() -> None:
    details = saying(box(pods=PODS), TopicKind.METRICS, period_s=60, samples=[{"at": 90, "cards": []}])
    for one in cards(details).cards:
        assert (one.use_at_s, one.others, {piece.used for piece in one.pieces}) == (None, (), {None})


@pytest.mark.parametrize(("at", "at_s"), [(99_990, 99_990), (5, 100_000), (2**53 - 1, 100_000)])
def test_the_age_of_the_use_is_told_by_the_controllers_clock_where_the_boxs_is_wrong(at: int, at_s: float) -> None:
    [first, _] = measured(use("0", "u", "main"), at=max(60, at), heard_s=100_000.0).cards
    assert first.use_at_s == at_s


PIECES = st.tuples(st.just("main"), st.sampled_from("012"), st.integers(0, 40), st.integers(0, 200))


@given(
    pods=st.dictionaries(
        st.text("abcdef", min_size=1, max_size=4), st.lists(PIECES, min_size=1, max_size=3), max_size=5
    ),
    units=st.lists(st.integers(1, 40), min_size=1, max_size=3),
)
def test_pieces_neither_overlap_nor_are_lost_and_what_is_free_is_the_capacitys(
    pods: dict[str, list[tuple[str, str, int, int]]], units: list[int]
) -> None:
    held = {uid: pod(f"{uid}-0", *pieces) for uid, pieces in pods.items()}
    there = tuple(card(str(at), count) for at, count in enumerate(units))
    details = box(cards=there, pods=held)
    found = cards(details)
    assert sum(len(one.pieces) for one in found.cards) == sum(map(len, pods.values()))
    for one in found.cards:
        end = core = 0
        for piece in one.pieces:
            assert (piece.first_unit, piece.first_core) == (end, core)
            end, core = end + piece.units, core + piece.core
        assert one.drawn_units >= end
        assert one.drawn_core >= core
        assert one.free_units == max(0, one.units - end)
    capacity = capacity_of(details.latest)
    assert capacity is not None
    whole_is_all = all(
        share[2] <= units[int(share[1])] or share[3] < 100
        for shares in pods.values()
        for share in shares
        if int(share[1]) < len(units)
    )
    if whole_is_all:
        assert capacity.free_units == sum(one.free_units for one in found.cards)
