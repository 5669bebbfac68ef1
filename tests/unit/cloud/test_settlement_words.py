"""What became of a request, in words: one state has one name on every screen, and the remedy is what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edgegpu_cloud.cli.requests.settlements import WAITS_FOR_SHARING, first_line, fix, needs_person, state_word, words
from edgegpu_sync.messages.uplink import ItemReport, ItemState
from edgegpu_sync.rules.settle import NO_SHARING
from edgegpu_sync.states import ResultCode

if TYPE_CHECKING:
    from edgegpu_sync.rules.settle import Settlement

LIMITS = "app_limits/default/asr/main"


def report(state: ItemState, code: str | None = None, text: str | None = None) -> ItemReport:
    return ItemReport(state=state, rev=1, hash="0" * 64, retry=0, code=code, text=text)


def reported(settlement: Settlement) -> ItemReport:
    return report(settlement.state, settlement.code, settlement.text)


def test_a_request_that_waits_for_sharing_is_called_so_everywhere() -> None:
    one = reported(NO_SHARING)
    assert words(one) == f"{WAITS_FOR_SHARING}: GPU sharing is not installed on this box"
    assert first_line(one).partition(":")[0] == state_word(one) == WAITS_FOR_SHARING


@pytest.mark.parametrize(
    ("item", "taken_back"),
    [
        (LIMITS, "edgegpu-cloud limits forget hall-1 default/asr --container main"),
        ("policy", "edgegpu-cloud sharing forget hall-1 policy"),
    ],
)
def test_its_remedy_is_the_install_and_it_can_be_dropped(item: str, taken_back: str) -> None:
    assert (
        fix("hall-1", item, reported(NO_SHARING)) == f"Fix: edgegpu-cloud install hall-1; or take it back: {taken_back}"
    )
    refused = report(ItemState.REJECTED, ResultCode.NO_ROOM)
    assert fix("hall-1", item, refused) == f"Fix: ask for something else, or take it back: {taken_back}"


@pytest.mark.parametrize(
    ("one", "needed"),
    [
        (reported(NO_SHARING), True),
        (report(ItemState.REJECTED, ResultCode.NO_ROOM), True),
        (report(ItemState.FAILED, ResultCode.ERROR), True),
        (report(ItemState.APPLIED), False),
        (report(ItemState.OPEN), False),
    ],
)
def test_who_has_to_act(one: ItemReport, *, needed: bool) -> None:
    assert needs_person(one) is needed
