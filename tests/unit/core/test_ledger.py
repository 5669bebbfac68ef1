"""Who holds what: kubelet's records as a ledger, init containers' reuse, whole cards, and what is free after it."""

from property.cases import MODEL, Book, slots_of

from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.ledger import CheckpointEntry, Grant, Ledger, free_after
from edgegpu_core.placement import Share

SLOTS = slots_of(29, 29)


def test_built_from_the_checkpoint_without_other_resources() -> None:
    ledger = Ledger.of_entries(
        [
            CheckpointEntry("u", "c", MODEL.memory_resource, ("GPU-0::m0001", "GPU-0::m0002")),
            CheckpointEntry("u", "c", MODEL.core_resource, ("GPU-0::c07",)),
            CheckpointEntry("u", "c", "example.org/other", ("x",)),
            CheckpointEntry("v", "c", "example.org/other", ("x",)),
        ],
        MODEL,
    )
    assert ledger.pods() == ("u",)
    assert ledger.grant("u", "c").cards() == ("GPU-0",)
    assert ledger.held("u", SLOTS) == (Share("GPU-0", 2, 1),)
    assert ledger.held("v", SLOTS) == ()
    assert ledger.grants("v") == {}
    assert Grant().cards() == ()


def test_ids_that_an_init_container_handed_on_count_once() -> None:
    book = Book(SLOTS)
    ids = book.give("u", "init", DeviceKind.MEMORY, {"GPU-0": 20})
    book.ledger.add("u", "main", DeviceKind.MEMORY, ids[:12])
    book.share("u", "GPU-0", 4, 30, container="sidecar")
    assert book.ledger.held("u", SLOTS) == (Share("GPU-0", 24, 30),)


def test_a_whole_card_counts_whole_and_hundred_hundredths_of_two_containers_do_not() -> None:
    book = Book(SLOTS)
    book.share("u", "GPU-0", 4, 100)
    book.share("v", "GPU-1", 4, 60, container="a")
    book.share("v", "GPU-1", 4, 40, container="b")
    assert book.ledger.held("u", SLOTS) == (Share("GPU-0", 29, 100),)
    assert book.ledger.held("v", SLOTS) == (Share("GPU-1", 8, 100),)


def test_cutting_down_leaves_the_first_ledger_alone() -> None:
    book = Book(SLOTS)
    book.share("u", "GPU-0", 4, 10)
    book.share("v", "GPU-0", 4, 10)
    kept = book.ledger.only(["u", "w"])
    kept.add("u", "main", DeviceKind.MEMORY, ("GPU-1::m0001",))
    assert kept.pods() == ("u",)
    assert book.ledger.pods() == ("u", "v")
    assert book.ledger.grant("u", "main").cards() == ("GPU-0",)


def test_the_owners_of_exactly_these_ids() -> None:
    book = Book(SLOTS)
    ids = book.give("u", "main", DeviceKind.MEMORY, {"GPU-0": 4})
    book.give("v", "main", DeviceKind.MEMORY, {"GPU-0": 5})
    assert book.ledger.owners_of(DeviceKind.MEMORY, reversed(ids)) == [("u", "main")]
    assert book.ledger.owners_of(DeviceKind.MEMORY, ids[:3]) == []
    assert book.ledger.owners_of(DeviceKind.CORE, ids) == []
    book.ledger.add("u", "second", DeviceKind.MEMORY, ids)
    assert book.ledger.owners_of(DeviceKind.MEMORY, ids) == [("u", "main"), ("u", "second")]


def test_what_is_free_after_holdings() -> None:
    free = free_after(SLOTS, [(Share("GPU-0", 4, 10), Share("GPU-9", 29, 100)), (Share("GPU-0", 30, 10),)])
    assert (free.memory, free.core) == ([0, 29], [80, 100])
