"""Bars of units: whose piece is how long."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from kits.cli import CARD_0, CARD_1, card, document, pod

from edgegpu_agent.cli.clients.document import StatusDocument, read_document
from edgegpu_agent.cli.views.bars import LETTERS, MANY, BarPiece, PodLetter, holders, holding, pieces, widths
from edgegpu_agent.cli.views.pod_letters import letters_of


def on_first_card(doc: StatusDocument) -> list[tuple[str, int]]:
    found = pieces(doc.cards[0], doc.pods, named(doc))
    return [(letter(piece), piece.units) for piece in found]


def named(doc: StatusDocument) -> dict[str, PodLetter]:
    return holders(doc.pods, letters_of(holding(doc.pods), Path("/nonexistent")))


def letter(piece: BarPiece) -> str:
    return "?" if piece.holder is None else piece.holder.letter


def one_card(free: int, *pods: dict[str, object], units: int = 29) -> StatusDocument:
    return read_document(document(cards=[card(CARD_0, units=units, free=free)], pods=list(pods)))


def test_each_pod_has_a_letter_in_the_documents_order_and_a_piece_as_long_as_its_units() -> None:
    doc = one_card(5, pod("a", 4, CARD_0), pod("lone", 30), pod("b", 20, CARD_0))
    assert on_first_card(doc) == [("A", 4), ("B", 20)]


def test_units_that_nobody_names_are_a_piece_too() -> None:
    assert on_first_card(one_card(5, pod("a", 4, CARD_0))) == [("A", 4), ("?", 20)]


def test_a_whole_card_counts_entirely() -> None:
    assert on_first_card(one_card(0, pod("a", 3, CARD_0, core=100))) == [("A", 29)]


def test_units_over_several_cards_are_spread_evenly() -> None:
    doc = read_document(
        document(cards=[card(CARD_0, free=0), card(CARD_1, free=0)], pods=[pod("a", 9, CARD_0, CARD_1)])
    )
    found = [pieces(each, doc.pods, named(doc))[0].units for each in doc.cards]
    assert found == [5, 4]


def test_units_that_lie_badly_count_where_they_lie() -> None:
    """A refused pod's devices lie on two cards as kubelet chose them."""
    row = pod("forced", 15, CARD_0, CARD_1, state="refused")
    row["cards"] = [{**ref, "units": units} for ref, units in zip(row["cards"], (9, 6), strict=True)]
    rows = [row, pod("left", 20, CARD_0), pod("right", 20, CARD_1)]
    doc = read_document(document(cards=[card(CARD_0, free=0), card(CARD_1, free=3)], pods=rows))
    found = [[piece.units for piece in pieces(each, doc.pods, named(doc))] for each in doc.cards]
    assert found == [[9, 20], [6, 20]]


def test_containers_of_a_pod_are_one_piece_and_reuse_is_not_counted_twice() -> None:
    twice = [pod("a", 10, CARD_0, container="init"), pod("a", 8, CARD_0), pod("b", 5, CARD_0)]
    assert on_first_card(one_card(14, *twice)) == [("A", 10), ("B", 5)]
    assert on_first_card(one_card(6, *twice)) == [("A", 18), ("B", 5)]


def test_a_refused_pod_gives_way_where_more_is_said_than_held() -> None:
    doc = one_card(19, pod("r", 20, CARD_0, state="refused"), pod("a", 10, CARD_0))
    assert on_first_card(doc) == [("A", 0), ("B", 10)]


def test_the_sixty_third_pod_shares_a_letter() -> None:
    doc = one_card(0, *(pod(f"p{number}", 1, CARD_0) for number in range(len(LETTERS) + 1)), units=63)
    letters = [holder.letter for holder in named(doc).values()]
    assert letters == [*LETTERS, MANY]


def test_one_character_per_unit_where_there_is_room() -> None:
    assert widths([4, 20], 29, 29) == (4, 20)


@given(st.lists(st.integers(0, 200), max_size=12), st.integers(0, 300), st.integers(10, 200))
def test_a_bar_never_passes_its_width_and_nothing_vanishes_where_there_is_room(
    units: list[int], free: int, width: int
) -> None:
    total = sum(units) + free
    found = widths(units, total, width)
    assert sum(found) <= min(total, width)
    if len(units) < width:
        assert all((length > 0) == (amount > 0) for length, amount in zip(found, units, strict=True))
    if free and len(units) < width:
        assert sum(found) < min(total, width)
