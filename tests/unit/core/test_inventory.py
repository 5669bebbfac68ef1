"""Cards, units and device ids: sizes, reserve, exclusion, MIG, and how many devices kubelet carries."""

from dataclasses import replace

import pytest

from edgegpu_core.deviceid import (
    MAX_ID_LENGTH,
    DeviceId,
    DeviceKind,
    card_of,
    core_ids,
    count_by_card,
    memory_ids,
    parse,
)
from edgegpu_core.inventory import Card, FreeAmounts, kept_as_before, offer_text, slots, usable
from edgegpu_core.model import ModelError, ResourceModel, short_name

UUID = "GPU-5cd4f6f4-3a5b-4e0c-9d5e-0123456789ab"


def card(index: int, mib: int = 7611, *, mig: int | None = None, pci: str = "", healthy: bool = True) -> Card:
    gpu = f"GPU-{index:08d}-0000-0000-0000-000000000000"
    return Card(
        uuid=gpu if mig is None else f"MIG-{index:04d}{mig:04d}-0000-0000-0000-000000000000",
        index=index,
        name="T4",
        memory_mib=mib,
        pci=pci or f"00000000:{index + 1:02X}:00.0",
        minor=index,
        mig=mig,
        parent=None if mig is None else gpu,
        healthy=healthy,
    )


@pytest.mark.parametrize(
    ("mib", "unit", "reserve", "units"),
    [
        (7611, 256, 0, 29),
        (24259, 256, 0, 94),
        (4096, 256, 0, 16),
        (4095, 256, 0, 15),
        (7611, 256, 512, 27),
        (7611, 1000, 0, 7),
        (100, 256, 0, 0),
        (100, 256, 512, 0),
    ],
)
def test_units_of_a_card(mib: int, unit: int, reserve: int, units: int) -> None:
    assert ResourceModel(unit_mib=unit, reserve_mib=reserve).units_of(mib) == units


def test_a_reserve_of_auto_is_what_the_driver_keeps_where_it_says_that() -> None:
    model = ResourceModel(reserve_mib=None)
    assert [model.units_of(15360, kept_mib=kept) for kept in (0, 444, None)] == [60, 58, 60]
    assert ResourceModel(reserve_mib=0).units_of(15360, kept_mib=444) == 60
    model.check_device_count([15360])


def test_what_is_offered_of_a_card_is_said_with_what_the_driver_keeps() -> None:
    t4, auto = card(0, 15360), ResourceModel(reserve_mib=None)
    assert offer_text(t4, ResourceModel()) == "card 0 T4 15360 MiB"
    assert offer_text(t4, auto) == "card 0 T4 15360 MiB (all of them: the driver does not say what it keeps)"
    assert offer_text(replace(t4, kept_mib=444), auto) == "card 0 T4 15360 MiB (444 MiB of them kept by the driver)"


def test_too_many_devices_are_refused_with_the_smallest_size_that_works() -> None:
    memories = [141 * 1024] * 8
    with pytest.raises(ModelError, match=r"resources\.unit_mib: 8 MiB makes 144384 devices .* set unit_mib to 47 or"):
        ResourceModel(unit_mib=8).check_device_count(memories)
    ResourceModel(unit_mib=47).check_device_count(memories)
    with pytest.raises(ModelError, match="set unit_mib to 47"):
        ResourceModel(unit_mib=46).check_device_count(memories)
    ResourceModel().check_device_count(memories)
    ResourceModel().check_device_count([])


def test_the_reserve_counts_when_the_smallest_size_is_found() -> None:
    ResourceModel(unit_mib=1, reserve_mib=1).check_device_count([25_000])
    with pytest.raises(ModelError, match="set unit_mib to 2 or more"):
        ResourceModel(unit_mib=1).check_device_count([25_000])


def test_cards_come_in_pci_order_and_mig_devices_by_number() -> None:
    cards = [
        card(1, pci="00000000:0A:00.0"),
        card(0, mig=1, pci="00000000:0b:00.0"),
        card(0, mig=0, pci="00000000:0B:00.0"),
    ]
    assert [one.label for one in usable(cards)] == ["1", "0:0", "0:1"]


def test_exclusion_by_label_index_and_uuid() -> None:
    cards = [card(0), card(1, mig=0), card(1, mig=1), card(2)]

    def kept(*exclude: str) -> list[str]:
        return [one.label for one in usable(cards, frozenset(exclude))]

    assert kept() == ["0", "1:0", "1:1", "2"]
    assert kept("0") == ["1:0", "1:1", "2"]
    assert kept("1") == ["0", "2"]
    assert kept("1:1", "2") == ["0", "1:0"]
    assert kept(cards[0].uuid, cards[2].uuid) == ["1:0", "2"]
    assert kept("GPU-00000001-0000-0000-0000-000000000000") == ["0", "2"]


def test_a_card_whose_ids_would_be_too_long_is_left_out() -> None:
    long = Card(uuid="GPU-" + "x" * 60, index=0, name="", memory_mib=7611, pci="0", minor=0)
    assert usable([long]) == ()


def test_slots_of_mixed_cards() -> None:
    found = slots([card(0), card(1, 24259, healthy=False), card(2, 9728, mig=0)], ResourceModel())
    assert [(slot.label, slot.units, slot.healthy) for slot in found] == [
        ("0", 29, True),
        ("1", 94, False),
        ("2:0", 38, True),
    ]
    free = FreeAmounts(found)
    assert (free.memory, free.core) == ([29, 0, 38], [100, 0, 100])
    assert [free.is_empty(position) for position in range(3)] == [True, False, True]


def test_booking_more_than_there_is_leaves_nothing() -> None:
    free = FreeAmounts(slots([card(0)], ResourceModel()))
    twin = free.copy()
    twin.take(0, 30, 101)
    assert (twin.memory, twin.core) == ([0], [0])
    assert (free.memory, free.core) == ([29], [100])
    assert free.position("GPU-none") is None


def test_device_ids_round_trip_and_are_short_enough() -> None:
    ids = memory_ids(UUID, 24_999) + core_ids(UUID)
    assert ids[7] == f"{UUID}::m0007"
    assert ids[-58] == f"{UUID}::c42"
    assert len(set(ids)) == 24_999 + 100
    assert all(str(parse(text)) == text and len(text) <= MAX_ID_LENGTH for text in ids)
    assert parse(f"{UUID}::c42") == DeviceId(UUID, DeviceKind.CORE, 42)
    assert {card_of(text) for text in ids} == {UUID}
    assert DeviceKind.MEMORY.other is DeviceKind.CORE
    assert DeviceKind.CORE.other is DeviceKind.MEMORY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "::",
        "GPU-1",
        "GPU-1::",
        "GPU-1::m",
        "GPU-1::x1",
        "::m0001",
        "GPU-1::m-1",
        "GPU-1::m 1",
        "GPU-1::m²",
        "GPU-1::m٣",
        "GPU-1:m1",
    ],
)
def test_foreign_ids_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a device id of edgegpu"):
        parse(text)


def test_count_by_card() -> None:
    assert count_by_card(["A::m0001", "B::c01", "A::m0002"]) == {"A": 2, "B": 1}


def test_short_names() -> None:
    assert (short_name("baidu.com/vcuda-core"), short_name("cores")) == ("vcuda-core", "cores")


def test_the_smallest_size_is_found_at_once_whatever_a_driver_says_of_its_memory() -> None:
    with pytest.raises(ModelError, match=r"set unit_mib to 703687441777 or more"):
        ResourceModel(unit_mib=1).check_device_count([1 << 44] * 1000)


def test_what_the_driver_kept_counts_on_where_it_does_not_say_it_and_the_card_is_as_large() -> None:
    past = Card(uuid="GPU-1", index=0, name="T4", memory_mib=15360, pci="p", minor=0, kept_mib=444)
    silent = replace(past, kept_mib=None)
    assert kept_as_before(silent, past).kept_mib == 444
    assert kept_as_before(replace(silent, memory_mib=15109), past).kept_mib is None  # as a driver before 510 shows it
    assert kept_as_before(replace(silent, kept_mib=300), past).kept_mib == 300
    assert kept_as_before(silent, None).kept_mib is None
