"""Boxes of which a process holds many: they have what their profile says, apply what fits, and refuse what does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgegpu_sim.manyboxes.enrolled import devices_of
from edgegpu_sim.manyboxes.profiles import PROFILES, shop_floor_box
from edgegpu_sim.manyboxes.simbox import Said, SimBox

PRESS = 1  # a box with two cards of 29 units


def box(number: int) -> SimBox:
    made = SimBox(devices_of(number)[-1], shop_floor_box(number))
    made.will()
    return made


def bodies(said: list[Said]) -> dict[str, Any]:
    """Return what a box says, by the last word of the topic."""
    return {topic.rpartition("/")[2]: json.loads(payload.partition(b"\n")[2]) for topic, payload, _ in said}


def limits(units: int, *, rev: int = 1) -> bytes:
    item = {
        "rev": rev,
        "cluster": "3c8f2c55-0d0e-4a57-9a0e-000000000001",
        "namespace": "baetyl-edge",
        "app": "counter",
        "container": "main",
        "memory_units": units,
        "core": 2,
    }
    return b"signature\n" + json.dumps({"rev": rev, "spec": {"app_limits": [item]}}).encode()


def test_limits_that_fit_are_applied_and_shown() -> None:
    told = bodies(box(PRESS).desired(limits(10)))
    assert [item["state"] for item in told["reported"]["items"].values()] == ["Applied"]
    pieces = [pod["pieces"][0] for pod in told["alloc"]["pods"].values() if pod["name"].startswith("counter")]
    assert [(one["memory_units"], one["core"]) for one in pieces] == [(10, 2)]


def test_limits_without_room_are_refused_with_the_free_units() -> None:
    told = bodies(box(PRESS).desired(limits(18)))
    assert set(told) == {"reported"}
    (item,) = told["reported"]["items"].values()
    assert (item["state"], item["code"]) == ("Rejected", "NO_ROOM")
    assert item["text"] == "needs 18 vcuda-memory on one card; card 0 has 17 free"


def test_the_same_document_says_nothing_again() -> None:
    made = box(PRESS)
    assert made.desired(limits(10))
    assert made.desired(limits(10)) == []


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_the_apps_of_a_profile_fit_on_its_cards(profile: str) -> None:
    names = set()
    for number in range(1, 301):
        made = PROFILES[profile](number)
        names.add(made.name)
        for card in range(made.cards):
            assert sum(one.units for one in made.apps if one.card == card) <= made.units
    assert len(names) == 300


def test_a_shop_floor_has_boxes_that_differ_are_ill_and_leave() -> None:
    boxes = [shop_floor_box(number) for number in range(1, 301)]
    assert 0 < sum(bool(one.trouble) for one in boxes) < 10
    assert 0 < sum(one.leaves for one in boxes) < 10
    amounts = {app.units for one in boxes for app in one.apps if app.name == "counter"}
    assert amounts == {2, 4}


def test_measurements_move() -> None:
    made = box(PRESS)
    used = {
        bodies([made.metrics(at_s, 60.0)])["metrics"]["samples"][0]["cards"][0]["core_used"] for at_s in (0, 300, 600)
    }
    assert len(used) == 3
