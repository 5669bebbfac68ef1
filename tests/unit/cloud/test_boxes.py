"""How `edgegpu-cloud boxes` sees a box: what is free, whether it is there, and what a person has to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kits.details import STAMP, box, card, pod
from kits.stores import open_store

from edgegpu_cloud.fleet.preview.capacity import capacity_of
from edgegpu_cloud.fleet.summaries import refresh
from edgegpu_cloud.fleet.views import PRESENT_S, BoxView, box_views
from edgegpu_cloud.store.records import BoxRecord, Latest
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.ids import DeviceId, device_id
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW_S = 1_790_000_000.0
DEVICE: DeviceId = device_id("0" * 16)
ITEM = {"rev": 1, "hash": "0" * 16, "retry": 0}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControllerStore]:
    made = open_store(tmp_path / "controller.db")
    yield made
    made.close()


def seen(store: ControllerStore, *, ago_s: float = 0.0, online: bool = True, **bodies: dict[str, Any]) -> BoxView:
    """Return the view of a box that has said this and that."""
    stamp = Stamp(enrolment=1, epoch=Epoch(1, "0" * 16), n=1)
    sequence = CommandSequence(enrolment=1, instance="ab" * 32)
    one = BoxRecord(
        device=DEVICE, name="hall", public="A" * 43, sequence=sequence, online=online, seen_at_s=NOW_S - ago_s
    )
    latest = [
        Latest(device=DEVICE, kind=TopicKind[kind.upper()], stamp=stamp, at_s=NOW_S, body=body)
        for kind, body in bodies.items()
    ]
    with store.write() as tx:
        tx.boxes.add(one)
        tx.boxes.add_latest(latest)
        refresh(tx, [one], heard={DEVICE: {message.kind: message for message in latest}})
        return box_views(tx, [one], now_s=NOW_S)[0]


def test_what_is_free_is_what_can_be_had() -> None:
    cards = (card("0"), card("1"), card("2", healthy=False), card("3", excluded=True))
    pods = {
        "a": pod("a-0", ("main", "0", 9, 1)),
        "b": pod("b-0", ("main", "1", 0, 100)),
        "c": pod("c-0", ("m", "3", 5, 1)),
    }
    found = capacity_of(box(cards=cards, pods=pods).latest)
    assert found is not None
    assert (found.cards, found.shared_cards, found.units, found.free_units) == (4, 2, 58, 20)


def test_nothing_is_free_where_nothing_is_shared_and_unknown_where_nothing_was_told() -> None:
    found = capacity_of(box(sharing=False).latest)
    assert found is not None
    assert (found.cards, found.sharing, found.units, found.free_units) == (2, False, 0, 0)
    assert capacity_of({}) is None


def test_a_box_that_was_not_heard_for_long_is_not_online(store: ControllerStore) -> None:
    """Its link may stand in the store for ever: the broker was killed, or its disk was put back."""
    assert not seen(store, ago_s=PRESENT_S).online


def test_a_box_that_was_heard_is_online(store: ControllerStore) -> None:
    assert seen(store, ago_s=PRESENT_S - 1).online


@pytest.mark.parametrize(
    ("body", "left"), [({"state": "bye", "why": "uninstall"}, "uninstall"), ({"state": "will"}, "lost")]
)
def test_why_a_box_has_gone(store: ControllerStore, body: dict[str, Any], left: str) -> None:
    assert seen(store, online=False, status=body).left == left


def test_problems_are_what_a_person_has_to_look_at(store: ControllerStore) -> None:
    states = {
        "a": {"state": "Applied"},
        "b": {"state": "Rejected", "code": "NO_ROOM"},
        "c": {"state": "Rejected", "code": "NOT_INSTALLED"},
        "d": {"state": "Elsewhere"},
        "e": {"state": "Failed", "code": "ERROR"},
        "f": {"state": "Unsupported"},
        "g": {"state": "Open"},
        "h": {"state": "Pending"},
    }
    items = {name: {**ITEM, **one} for name, one in states.items()}
    view = seen(store, reported={**STAMP, "items": items, "cluster": "c", "holder": True})
    assert (view.problems, view.waiting, view.holder) == (3, 2, True)


def test_the_states_of_a_box_are_one_word(store: ControllerStore) -> None:
    from edgegpu_cloud.cli.common import standing  # noqa: PLC0415

    view = seen(store)
    words = [
        standing(replace(view, **more)) for more in ({}, {"online": False}, {"online": False, "left": "uninstall"})
    ]
    assert words == ["online", "offline", "uninstalled"]
