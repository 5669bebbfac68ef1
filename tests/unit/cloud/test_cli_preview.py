"""What a preview says of new limits: by the reports of all boxes of a cluster, in the box's own words."""

from __future__ import annotations

from typing import Any

import pytest
from kits.details import box, card, pod, view

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.preview.limits import Preview, preview
from edgegpu_cloud.fleet.preview.live import PodChange
from edgegpu_cloud.fleet.specs import ContainerLimits
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_core.limits.verdict import FitResult
from edgegpu_sync.messages.spec import Spec


def ask(
    here: BoxDetails, *others: BoxDetails, units: int, core: int = 1, app: str = "asr", live: bool = False
) -> Preview:
    wanted = ContainerLimits(namespace="default", app=app, container="main", memory_units=units, core=core, live=live)
    return preview(here, others, wanted)


ASR = {"u1": pod("asr-7d9cb5f6d8-x2x4z", ("main", "0", 1, 1)), "u2": pod("plate-0", ("main", "0", 20, 1))}


def test_an_app_that_has_room_beside_itself() -> None:
    found = ask(box(pods=ASR), units=10)
    assert (found.answer, found.fits, found.replicas) == (FitResult.FITS, True, 1)
    assert "the last word" in found.notes[0]
    assert found.words().startswith("fits: 10 units, core 1")
    assert ask(box(pods=ASR), units=1).words().partition("\n")[0].endswith(": 1 unit, core 1")


def test_an_app_that_has_room_when_its_pods_have_gone() -> None:
    pods = {"u1": pod("asr-7d9cb5f6d8-x2x4z", ("main", "0", 9, 1)), "u2": pod("a-0", ("main", "1", 29, 1))}
    found = ask(box(pods=pods), units=29)
    assert found.answer is FitResult.AFTER_STOP
    assert "own pods have gone" in found.words()
    assert [(one.card, one.free_units, one.held_by_app_units) for one in found.cards] == [("0", 29, 9), ("1", 0, 0)]


def test_an_app_that_never_fits_is_told_with_the_numbers() -> None:
    pods = {**ASR, "u3": pod("b-0", ("main", "1", 25, 1))}
    found = ask(box(pods=pods), units=10)
    assert found.answer is FitResult.NEVER
    assert not found.fits
    assert "  node box1 card 0: 9 units, core 99 free, 1 of them held by the app" in found.words()
    assert "  node box1 card 1: 4 units" in found.words()


def test_the_other_nodes_of_the_cluster_count() -> None:
    full = box(pods={"u": pod("b-0", ("main", "0", 29, 1)), "v": pod("b-1", ("main", "1", 29, 1))})
    assert not ask(full, units=10).fits
    assert ask(full, box("box2"), units=10).fits


def test_two_replicas_need_room_twice() -> None:
    pods = {
        "u1": pod("asr-7d9cb5f6d8-x2x4z", ("main", "0", 1, 1)),
        "u2": pod("asr-7d9cb5f6d8-vvvvv", ("main", "1", 1, 1)),
    }
    found = ask(box(pods=pods), units=29)
    assert (found.answer, found.replicas) == (FitResult.AFTER_STOP, 2)
    assert not ask(
        box(cards=(card("0"),), pods={"u1": pods["u1"], "u2": pod("asr-1", ("main", "0", 1, 1))}), units=29
    ).fits


def test_its_other_containers_stay_as_they_are() -> None:
    pods = {"u1": pod("asr-7d9cb5f6d8-x2x4z", ("main", "0", 1, 1), ("side", "1", 20, 1))}
    assert ask(box(pods=pods), units=29).fits
    assert not ask(
        box(cards=(card("0"),), pods={"u1": pod("asr-0", ("main", "0", 1, 1), ("side", "0", 20, 1))}), units=10
    ).fits
    found = ask(box(pods={"u1": pod("asr-0", ("other", "0", 1, 1))}), units=1)
    assert any("those that do: other" in note for note in found.notes)


def test_a_whole_card_holds_each_of_its_units() -> None:
    pods = {"u": pod("b-0", ("main", "0", 0, 100))}
    assert ask(box(cards=(card("0"), card("1", 10)), pods=pods), units=10).fits
    assert not ask(box(cards=(card("0"), card("1", 10)), pods=pods), units=11).fits
    two = {"u1": pod("asr-0", ("main", "0", 29, 100), ("main", "1", 29, 100))}
    assert ask(box(pods=two), units=58, core=200).fits


@pytest.mark.parametrize("bad", [{"healthy": False}, {"excluded": True}])
def test_a_card_that_is_not_offered_counts_for_nothing(bad: dict[str, Any]) -> None:
    assert not ask(box(cards=(card("0", **bad),)), units=1).fits


def test_where_sharing_is_not_installed_nothing_fits_and_taking_limits_away_does() -> None:
    found = ask(box(sharing=False), units=1)
    assert "not installed" in found.text
    assert not found.fits
    assert ask(box(pods=ASR), units=0, core=0).fits


HELD = {
    "a": {**pod("asr-0", ("main", "0", 8, 1)), "enforced": "enforced"},
    "b": pod("plate-0", ("main", "0", 21, 1)),
}
"""An app that the limiter holds on a card without a free unit."""


def test_a_change_that_the_running_pods_follow_is_told() -> None:
    here = box(cards=(card("0", excluded=True),), pods=HELD)
    live = ask(here, units=2, live=True)
    assert (live.pods, live.answer, live.live, live.not_live) == (PodChange.HELD, FitResult.FITS, True, "")
    assert live.words().startswith("at once, without a new pod: 2 units, core 1\n  now 8 units, core 1\n  note: ")
    anew = ask(here, units=2)
    assert (anew.pods, anew.answer, anew.live, anew.not_live) == (PodChange.NEW, FitResult.NEVER, True, "")
    assert "  with --live at once: no pod is made anew" in anew.words().splitlines()


def test_why_the_running_pods_cannot_follow_is_told_who_asks_for_that() -> None:
    here = box(pods=HELD)
    live, anew = ask(here, units=9, live=True), ask(here, units=9)
    assert (live.pods, live.live, live.not_live) == (PodChange.NEW, False, "asr-0 holds fewer units")
    assert "  not at once: asr-0 holds fewer units" in live.words().splitlines()
    assert (anew.live, anew.not_live, anew.live_words()) == (False, "", "")


def test_limits_that_the_pods_have_change_nothing() -> None:
    found = ask(box(cards=(card("0", excluded=True),), pods=HELD), units=8)
    assert (found.pods, found.fits, found.live) == (PodChange.NONE, True, True)
    assert found.words().startswith("its pods hold just that: 8 units, core 1")


def test_what_means_nothing_is_told() -> None:
    found = ask(box(), units=1, core=0)
    assert not found.fits
    assert found.text


@pytest.mark.parametrize(
    ("name", "is_its"),
    [
        ("asr-7d9cb5f6d8-x2x4z", True),
        ("asr-0", True),
        ("asr-x2x4z", True),
        ("asr", False),
        ("asr-worker-0", False),
        ("asr-worker-x2x4z", False),
        ("asr-worker-7d9cb5f6d8-x2x4z", False),
        ("other-7d9cb5f6d8-x2x4z", False),
    ],
)
def test_which_pods_are_an_apps(name: str, *, is_its: bool) -> None:
    found = ask(box(pods={"u": pod(name, ("main", "0", 7, 1))}), units=1)
    assert any(one.held_by_app_units == 7 for one in found.cards) is is_its
    assert any("no pod of" in note for note in found.notes) is not is_its


def test_a_box_that_has_told_nothing() -> None:
    silent = BoxDetails(box=view("box1"), spec=Spec(), latest={}, orphans=())
    with pytest.raises(CloudError, match="has not told yet what cards"):
        ask(silent, box("box2"), units=1)
