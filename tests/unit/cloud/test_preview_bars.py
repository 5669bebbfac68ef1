"""The preview of new limits as bars: the cards that the pods would get, or what each card lacks."""

from __future__ import annotations

from kits.details import box, card, pod

from edgegpu_cloud.fleet.card_views import BoxCards
from edgegpu_cloud.fleet.limits.preview_bars import BarsPreview, CardPlace, bars_preview
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_core.limits.verdict import FitResult


def ask(here: BoxDetails, *others: BoxDetails, units: int, core: int = 1, app: str = "asr") -> BarsPreview:
    wanted = ContainerLimits(namespace="default", app=app, container="main", memory_units=units, core=core)
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
