"""The words in which a field engineer reads why a pod does not fit."""

from property.cases import MODEL, slots_of

from edgegpu_core.inventory import CardCapacity, FreeAmounts
from edgegpu_core.reasons import grouped, need, no_card
from edgegpu_core.request import PlaceableRequest

SHARE = PlaceableRequest(1, 20, 30, whole=False)


def test_needs() -> None:
    assert need(PlaceableRequest(1, 20, 1, whole=False), MODEL) == "20 vcuda-memory on one card"
    assert need(PlaceableRequest(1, 20, 0, whole=False), MODEL) == "20 vcuda-memory on one card"
    assert need(SHARE, MODEL) == "20 vcuda-memory and 30 vcuda-core on one card"
    assert need(PlaceableRequest(1, 0, 100, whole=True), MODEL) == "one whole empty card"
    assert need(PlaceableRequest(1, 9, 100, whole=True), MODEL) == "one whole empty card with 9 vcuda-memory"
    assert need(PlaceableRequest(2, 9, 100, whole=True), MODEL) == "2 whole empty cards with 9 vcuda-memory"


def test_memory_alone_is_told_while_core_is_not_what_lacks() -> None:
    free = FreeAmounts(slots_of(29, 29))
    free.take(0, 20, 1)
    free.take(1, 24, 1)
    assert no_card(PlaceableRequest(1, 20, 1, whole=False), free, MODEL) == (
        "needs 20 vcuda-memory on one card; card 0 has 9 free, card 1 has 5 free"
    )


def test_core_is_told_where_it_is_what_lacks() -> None:
    free = FreeAmounts(slots_of(29, 29))
    free.take(0, 1, 80)
    free.take(1, 24, 1)
    assert no_card(SHARE, free, MODEL, who="container a ") == (
        "container a needs 20 vcuda-memory and 30 vcuda-core on one card; "
        "card 0 has 28 vcuda-memory and 20 vcuda-core free, card 1 has 5 vcuda-memory and 99 vcuda-core free"
    )


def test_cards_in_use_out_of_order_and_mig_devices_by_their_names() -> None:
    free = FreeAmounts(
        (CardCapacity("a", "0", 29), CardCapacity("b", "1", 29, healthy=False), CardCapacity("c", "2:1", 16))
    )
    free.take(0, 4, 10)
    assert no_card(PlaceableRequest(2, 0, 100, whole=True), free, MODEL) == (
        "needs 2 whole empty cards; card 0 is in use (4 vcuda-memory, 10 vcuda-core), card 1 is out of order, "
        "card 2:1 is empty (16 vcuda-memory)"
    )


def test_many_cards_are_not_listed_and_an_event_always_holds_the_reason() -> None:
    assert no_card(SHARE, FreeAmounts(slots_of(*[10] * 9)), MODEL) == (
        "needs 20 vcuda-memory and 30 vcuda-core on one card; no card has that"
    )
    full = FreeAmounts(slots_of(*[10_000] * 8))
    for position in range(8):
        full.take(position, 1, 99)
    assert len(no_card(PlaceableRequest(4, 10_000, 100, whole=True), full, MODEL)) < 1024
    assert len(no_card(SHARE, full, MODEL)) < 1024
    assert no_card(SHARE, FreeAmounts(()), MODEL).endswith("; the node has no card")


def test_without_numbers_for_many_nodes() -> None:
    assert grouped(SHARE, MODEL, who="container a ") == (
        "container a needs 20 vcuda-memory and 30 vcuda-core on one card; no card has that free"
    )
