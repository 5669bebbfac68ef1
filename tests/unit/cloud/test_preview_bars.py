"""The preview of new limits as bars: the cards that the pods would get, or what each card lacks."""

from __future__ import annotations

from typing import Any

import pytest
from kits.details import box, card, pod

from edgegpu_cloud.fleet.card_views import BoxCards
from edgegpu_cloud.fleet.limits.preview_bars import BarsPreview, CardPlace, bars_preview
from edgegpu_cloud.fleet.preview.live import PodChange
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_core.limits.verdict import FitResult


def ask(
    here: BoxDetails, *others: BoxDetails, units: int, core: int = 1, app: str = "asr", live: bool = False
) -> BarsPreview:
    wanted = ContainerLimits(namespace="default", app=app, container="main", memory_units=units, core=core, live=live)
    return bars_preview(here, others, wanted)


def drawn(cards: BoxCards) -> list[list[tuple[str, int, int, bool]]]:
    return [[(one.app, one.first_unit, one.units, one.planned) for one in bar.pieces] for bar in cards.cards]


FIELD = {
    "u1": pod("asr-0", ("main", "0", 1, 1)),
    "u2": pod("plate-0", ("main", "0", 25, 1)),
    "u3": pod("count-0", ("main", "1", 25, 1)),
}


def test_one_to_ten_is_refused_with_what_each_card_lacks() -> None:
    found = ask(box(pods=FIELD), units=10)
    assert found.preview.answer is FitResult.NEVER
    told = [(one.card, one.free_units, one.missing_units, one.missing_core) for one in found.missing]
    assert told == [("0", 4, 6, 0), ("1", 4, 6, 0)]
    assert (found.places, found.beside, found.after_stop) == ((), None, None)
    assert found.after == found.before
    assert drawn(found.overfull[0]) == [
        [("plate", 0, 25, False), ("asr", 25, 10, True)],
        [("count", 0, 25, False), ("asr", 25, 10, True)],
    ]
    assert [bar.too_many_units for bar in found.overfull[0].cards] == [6, 6]


def test_four_and_twenty_and_twenty_on_two_cards() -> None:
    pods = {"a": pod("small-0", ("main", "0", 4, 1)), "b": pod("first-0", ("main", "0", 20, 1))}
    found = ask(box(pods=pods), units=20, app="second")
    assert found.places == (CardPlace("box1", "1"),)
    assert drawn(found.before[0]) == [[("small", 0, 4, False), ("first", 4, 20, False)], []]
    assert drawn(found.after[0]) == [[("small", 0, 4, False), ("first", 4, 20, False)], [("second", 0, 20, True)]]
    assert "no pod of default/second" in found.preview.notes[1]


def test_a_piece_grows_where_it_stood() -> None:
    pods = {"a": pod("asr-0", ("main", "0", 4, 1)), "b": pod("plate-0", ("main", "0", 10, 1))}
    found = ask(box(cards=(card("0"),), pods=pods), units=15)
    assert found.preview.answer is FitResult.FITS
    assert drawn(found.after[0]) == [[("asr", 0, 15, True), ("plate", 15, 10, False)]]


def test_beside_its_old_pod_and_after_a_stop_may_be_two_cards() -> None:
    pods = {"a": pod("asr-0", ("main", "0", 1, 1)), "b": pod("plate-0", ("main", "0", 20, 1))}
    found = ask(box(pods=pods), units=9)
    assert (found.beside, found.after_stop) == ((CardPlace("box1", "1"),), (CardPlace("box1", "0"),))
    assert found.places == found.beside


def test_what_fits_after_a_stop_alone_is_drawn_so() -> None:
    pods = {"a": pod("asr-0", ("main", "0", 9, 1)), "b": pod("full-0", ("main", "1", 29, 1))}
    found = ask(box(pods=pods), units=29)
    assert (found.preview.answer, found.beside) == (FitResult.AFTER_STOP, None)
    assert found.places == found.after_stop == (CardPlace("box1", "0"),)
    assert drawn(found.after[0])[0] == [("asr", 0, 29, True)]


def test_a_second_pod_of_two_finds_what_the_first_has_left() -> None:
    pods = {"a": pod("asr-0", ("main", "0", 1, 1)), "b": pod("asr-1", ("main", "0", 1, 1))}
    found = ask(box(cards=(card("0", 20),), pods=pods), units=15)
    [missing] = found.missing
    assert (missing.free_units, missing.missing_units) == (5, 10)


def test_missing_core_is_told_beside_enough_memory() -> None:
    found = ask(box(cards=(card("0"),), pods={"b": pod("plate-0", ("main", "0", 1, 80))}), units=2, core=30)
    [missing] = found.missing
    assert (missing.missing_units, missing.missing_core, missing.in_use) == (0, 10, False)


def test_a_whole_card_needs_an_empty_one() -> None:
    found = ask(box(pods=FIELD), units=0, core=100)
    assert [(one.card, one.in_use) for one in found.missing] == [("0", True), ("1", True)]
    empty = ask(box(), units=0, core=200)
    assert empty.places == (CardPlace("box1", "0"), CardPlace("box1", "1"))
    assert drawn(empty.after[0]) == [[("asr", 0, 29, True)], [("asr", 0, 29, True)]]


def test_a_card_out_of_order_lacks_nothing_that_could_be_given() -> None:
    [missing] = ask(box(cards=(card("0", healthy=False),)), units=1).missing
    assert (missing.healthy, missing.missing_units, missing.missing_core) == (False, 0, 0)


def test_where_room_is_not_the_matter_no_card_lacks_anything() -> None:
    assert ask(box(), units=1, core=0).missing == ()
    assert ask(box(sharing=False), units=1).missing == ()


def test_limits_taken_away_leave_the_card() -> None:
    found = ask(box(pods=FIELD), units=0, core=0)
    assert found.preview.fits
    assert drawn(found.after[0])[0] == [("plate", 0, 25, False)]


def test_the_cards_of_the_whole_cluster_are_shown() -> None:
    found = ask(box(pods=FIELD), box("box2", cards=(card("9"),)), units=10)
    assert [one.node for one in found.before] == ["box1", "box2"]
    assert found.places == (CardPlace("box2", "9"),)
    assert drawn(found.after[0])[0] == [("plate", 0, 25, False)]


def held(name: str, *pieces: tuple[str, str, int, int], to: int | None = None) -> dict[str, Any]:
    """Return a pod that the limiter holds, perhaps to fewer units."""
    made = pod(name, *pieces)
    shares = [{**one, "live_units": to} if to is not None else one for one in made["pieces"]]
    return {**made, "enforced": "enforced", "pieces": shares}


FULL = {"a": held("asr-0", ("main", "1", 8, 1)), "b": pod("plate-0", ("main", "1", 21, 1))}
"""An app that is held on a card without a free unit."""


def test_fewer_units_live_stay_taken_and_no_pod_moves() -> None:
    found = ask(box(pods=FULL), units=2, live=True)
    assert (found.preview.pods, found.places, found.preview.not_live, found.preview.fits) == (
        PodChange.HELD,
        (CardPlace("box1", "1"),),
        "",
        True,
    )
    [_, bar] = found.after[0].cards
    [mine, _] = bar.pieces
    assert (mine.first_unit, mine.units, mine.live_units, mine.idle_units, mine.planned) == (0, 8, 2, 6, True)
    assert (bar.held_units, bar.free_units) == (29, 0)
    anew = ask(box(pods=FULL), units=2)
    assert (anew.preview.pods, anew.after[0].cards[0].held_units) == (PodChange.NEW, 2)


def test_a_live_limit_goes_up_again_to_all_that_is_held() -> None:
    low = box(pods=FULL | {"a": held("asr-0", ("main", "1", 8, 1), to=2)})
    for units, idle in ((5, 3), (8, 0)):
        found = ask(low, units=units, live=True)
        mine = found.after[0].cards[1].pieces[0]
        assert (found.preview.pods, mine.units, mine.idle_units) == (PodChange.HELD, 8, idle)
    assert ask(low, units=9, live=True).preview.not_live == "asr-0 holds fewer units"


def test_what_holds_already_needs_no_stop() -> None:
    found = ask(box(cards=(card("1"),), pods=FULL), units=8)
    assert (found.preview.pods, found.places) == (PodChange.NONE, (CardPlace("box1", "1"),))
    assert drawn(found.after[0]) == [[("asr", 0, 8, True), ("plate", 8, 21, False)]]


def test_a_live_limit_needs_no_card_for_new_pods() -> None:
    closed = box(cards=(card("0"), card("1", excluded=True)), pods=FULL)
    assert ask(closed, units=2, live=True).preview.pods is PodChange.HELD
    alone = box(cards=(card("1", excluded=True),), pods=FULL)
    assert [ask(alone, units=2, live=live).preview.fits for live in (True, False)] == [True, False]


@pytest.mark.parametrize(
    ("pods", "core", "why"),
    [
        ({}, 1, "no pod of the app holds a share"),
        ({"a": pod("asr-0", ("main", "0", 8, 1))}, 1, "nothing holds asr-0 to its memory"),
        ({"a": held("asr-0", ("main", "0", 8, 1), ("main", "1", 8, 1))}, 1, "asr-0 does not hold just one card"),
        ({"a": held("asr-0", ("main", "0", 8, 1))}, 7, "asr-0 has core 1, and core needs new pods"),
        ({"a": held("asr-0", ("main", "0", 8, 1))}, 100, "whole cards need new pods"),
        ({"a": held("asr-0", ("main", "0", 1, 1))}, 1, "asr-0 holds fewer units"),
        ({"a": held("asr-0", ("other", "0", 8, 1))}, 1, "asr-0 does not hold just one card"),
    ],
)
def test_it_is_said_why_limits_are_not_set_live(pods: dict[str, Any], core: int, why: str) -> None:
    found = ask(box(pods=pods), units=2, core=core, live=True)
    assert (found.preview.pods, found.preview.not_live) == (PodChange.NEW, why)


def test_a_pod_on_another_box_of_the_cluster_is_made_anew() -> None:
    there = box("box2", pods={"z": held("asr-1", ("main", "0", 8, 1))})
    here = box(pods={"a": held("asr-0", ("main", "0", 8, 1))})
    assert ask(here, there, units=2, live=True).preview.not_live == "asr-1 is on another box of the cluster"
    assert ask(here, units=2, live=True).preview.pods is PodChange.HELD
