from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from chaos.run import Outcome, Plan, run
from kits.mqtt import need_mosquitto
from kits.postgres import MISSING, programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1_800)]


@pytest.fixture
def chaos() -> Iterator[Callable[[Plan], Outcome]]:
    need_mosquitto()
    place = Path(tempfile.mkdtemp(prefix="chaos-"))  # a path that a socket's name may have
    yield lambda plan: run(plan, place)
    shutil.rmtree(place, ignore_errors=True)


def test_a_small_run_ends_with_both_ledgers_agreeing(chaos: Callable[[Plan], Outcome]) -> None:
    outcome = chaos(Plan(commands=50, boxes=2, seed=11))
    assert outcome.verdict.clean, outcome.report()["words"]
    assert outcome.report()["commands"] == 50
    assert outcome.report()["asked"] == {"booted": 0, "stand-in": 50}
    assert outcome.report()["stand_ins_cannot_show"]
    assert sum(outcome.faults.values()) > 5
    assert outcome.died == {}, "something ended by itself"


def test_three_controllers_on_one_database_lose_nothing_and_do_nothing_twice(
    chaos: Callable[[Plan], Outcome],
) -> None:
    if programs() is None:
        pytest.skip(MISSING)
    outcome = chaos(Plan(commands=60, boxes=2, seed=14, controllers=3, lost_s=3.0))
    assert outcome.verdict.clean, outcome.report()["words"]
    assert outcome.report()["controllers"] == 3


def test_agents_that_are_put_together_by_hand_are_as_good_while_their_journal_is(
    chaos: Callable[[Plan], Outcome],
) -> None:
    outcome = chaos(Plan(commands=60, boxes=2, seed=12, aimed=0.5, bug="no-bug"))
    assert outcome.verdict.clean, outcome.report()["words"]


@pytest.mark.parametrize("bug", ["ack-before-journal", "forget-ids"])
def test_a_bug_is_found(chaos: Callable[[Plan], Outcome], bug: str) -> None:
    outcome = chaos(Plan(commands=80, boxes=2, seed=13, aimed=0.5, bug=bug, settle_s=30))
    assert outcome.verdict.twice, "nothing was seen to be done twice"
