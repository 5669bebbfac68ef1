"""The saved inventory."""

import json
from pathlib import Path

import pytest

from edgegpu_base.errors import EdgegpuError
from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.inventory_store import InventoryStore, SavedInventory

CARDS = (
    Card(uuid="GPU-1", index=0, name="T4", memory_mib=15360, pci="00000000:01:00.0", minor=0),
    Card(
        uuid="MIG-1",
        index=1,
        name="A100 MIG 1g.5gb",
        memory_mib=4864,
        pci="00000000:02:00.0",
        minor=1,
        mig=2,
        parent="GPU-2",
        caps=(12, 13),
    ),
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    store = InventoryStore(tmp_path / "state")
    saved = SavedInventory(CARDS, CARDS[:1], 256)
    assert store.load() == SavedInventory()
    assert store.save(saved)
    assert store.load() == saved
    assert not store.save(saved)


def test_health_is_not_saved(tmp_path: Path) -> None:
    store = InventoryStore(tmp_path)
    store.save(SavedInventory((Card(uuid="GPU-1", index=0, name="T4", memory_mib=1, pci="p", minor=0, healthy=False),)))
    assert store.load().cards[0].healthy


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 9, "cards": []}', '{"version": 1, "cards": [{}]}'])
def test_an_unreadable_inventory_counts_as_none(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "inventory.json").write_text(text)
    assert InventoryStore(tmp_path).load() == SavedInventory()
    assert "cannot read the saved inventory" in caplog.text


def test_an_unwritable_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(EdgegpuError, match="cannot save the inventory: cannot write "):
        InventoryStore(tmp_path / "state").save(SavedInventory(CARDS))


def test_nothing_is_left_of_a_write_that_failed(tmp_path: Path) -> None:
    (tmp_path / "inventory.json").mkdir()
    with pytest.raises(EdgegpuError):
        InventoryStore(tmp_path).save(SavedInventory(CARDS))
    assert [path.name for path in tmp_path.iterdir()] == ["inventory.json"]


HUGE = "1" + "0" * 400


@pytest.mark.parametrize("number", [HUGE, "-1"])
@pytest.mark.parametrize("name", ["memory_mib", "index", "minor", "mig"])
def test_a_number_that_no_card_has_is_no_inventory(tmp_path: Path, name: str, number: str) -> None:
    """With a card of so much memory the plugin would count its units for ever."""
    store = InventoryStore(tmp_path)
    store.save(SavedInventory(CARDS[1:], (), 256))
    saved = json.loads((tmp_path / "inventory.json").read_text())
    saved["cards"][0][name] = 4711
    (tmp_path / "inventory.json").write_text(json.dumps(saved).replace("4711", number))
    assert store.load() == SavedInventory(unit_mib=256)


@pytest.mark.parametrize("unit", [HUGE, "0", "-1", "true", "1.5", '"1"'])
def test_a_unit_that_cannot_be_is_none(tmp_path: Path, unit: str) -> None:
    (tmp_path / "inventory.json").write_text(f'{{"version": 1, "cards": [], "unit_mib": {unit}}}')
    assert InventoryStore(tmp_path).load() == SavedInventory()
