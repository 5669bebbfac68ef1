"""What users, boxes in the field and the cloud rely on is as it was recorded; README.md says how that changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import boxstate, doors, wire
from golden.surfaces import SURFACES

DATA = Path(__file__).parent / "data"


def recorded(path: str) -> str:
    return (DATA / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SURFACES)
def test_it_is_as_it_was_recorded(name: str, short_tmp: Path) -> None:
    made = SURFACES[name](short_tmp)
    assert sorted(made) == sorted(path.name for path in (DATA / name).iterdir())
    for file, text in made.items():
        assert text == recorded(f"{name}/{file}"), f"data/{name}/{file}"


def test_no_data_without_a_surface() -> None:
    assert sorted(path.name for path in DATA.iterdir()) == sorted(SURFACES)


# what was written by the recorded code is read by the present one


@pytest.mark.parametrize("path", sorted(DATA.glob("wire/*.message")), ids=lambda path: path.stem)
def test_a_recorded_message_is_taken_and_says_the_same(path: Path) -> None:
    topic, payload = path.read_bytes().removesuffix(b"\n").split(b"\n", 1)
    body = payload.split(b"\n", 1)[1]
    assert wire.opened(topic.decode(), payload) == body


def test_each_field_of_each_message_is_in_an_example() -> None:
    assert wire.unshown() == []


def test_a_recorded_journal_of_the_agent_is_read(tmp_path: Path) -> None:
    found, wanted = boxstate.journal_from(recorded("boxstate/journal.sql"), tmp_path / "journal.db")
    assert found == wanted


def test_a_recorded_inventory_is_read(tmp_path: Path) -> None:
    (tmp_path / "inventory.json").write_text(recorded("boxstate/inventory.json"))
    store = doors.InventoryStore(tmp_path)
    plain, mig = boxstate.example_cards()
    assert store.load() == doors.SavedInventory((plain, mig), (plain,), 256)


def test_recorded_annotations_are_read() -> None:
    found = json.loads(recorded("boxstate/annotations.json"))
    assert doors.read_report(*found["node"].values()) == boxstate.node_report()
    cards = {"main": ("GPU-1",), "side": ("GPU-1", "GPU-2")}
    (text,) = found["pod"].values()
    assert doors.read_cards(text, "uid-a", "box-1") == cards


def test_a_recorded_note_of_app_limits_is_read() -> None:
    kept = boxstate.Kept(json.loads(recorded("boxstate/notes.json"))["app limits"])
    note = doors.LimitsNote.read(kept)
    assert note == boxstate.limits_note()


def test_recorded_items_that_were_begun_are_read() -> None:
    begun = json.loads(recorded("boxstate/notes.json"))["items begun"]
    assert [doors.asked_of(json.dumps(one)) for one in begun] == [one for one in boxstate.items() if one.item]


def test_a_recorded_join_token_is_taken() -> None:
    found = doors.unpack(recorded("boxstate/join-token.txt"))
    assert (found.server, found.token) == ("https://10.0.0.1:6443", "t")
