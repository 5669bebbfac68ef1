"""A controller that is killed around each commit of a rollout: the next one goes on exactly where it was."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from kits.controller import Killer
from kits.rolloutbed import QUICK, EachCommit, OneCommit, RolloutBed
from kits.todaysstores import TodaysStores

from edgegpu_cloud.rollouts.strategy import FailurePolicy, Gate, WaveSize
from edgegpu_cloud.store.rollouts.records import RolloutState
from edgegpu_cloud.store.store import Watcher

SMALL = replace(QUICK, sizes=(WaveSize(2),), gate=Gate(soak_s=4), max_unavailable=1, retries=1, retry_after_s=3)
SMALL = replace(SMALL, timeout_s=3_600)  # a process that hardly lives makes boxes late
pytestmark = pytest.mark.timeout(600)
STEP_S = 2.0


@dataclass(frozen=True)
class Ended:
    """What must be the same however often the process was killed."""

    state: RolloutState
    boxes: tuple[tuple[str, str, int, str], ...]
    settings: Any
    documents: Any
    logs: tuple[tuple[Any, ...], ...]
    revisions: tuple[int, ...]


def _run(
    stores: TodaysStores, make: Callable[[RolloutBed], Watcher], *, on_failure: FailurePolicy = FailurePolicy.RETURN
) -> Ended:
    with stores.url() as url:
        return _run_on(RolloutBed(stores.new_file().with_suffix(""), url=url, boxes=4), make, on_failure)


def _run_on(bed: RolloutBed, make: Callable[[RolloutBed], Watcher], on_failure: FailurePolicy) -> Ended:
    bed.connect_all()
    bed.book(3).fails = True
    number = bed.start(replace(SMALL, on_failure=on_failure))
    bed.watcher = make(bed)
    bed.until(lambda: bed.rollouts.show(number).ended, step_s=STEP_S, within_s=4_000)
    bed.watcher = lambda _: None
    bed.settle(5)
    ended = Ended(
        state=bed.rollouts.show(number).state,
        boxes=tuple((box.name, box.state, box.attempts, box.message) for box in bed.rollouts.boxes(number)),
        settings=bed.settings(),
        documents=bed.documents(),
        logs=tuple(tuple(book.log) for book in bed.books.values()),
        revisions=tuple(bed.fleet.box(device).rev for device in bed.devices),
    )
    bed.store.close()
    return ended


def _never(_: RolloutBed) -> Watcher:
    return lambda _: None


@pytest.mark.parametrize("on_failure", [FailurePolicy.RETURN, FailurePolicy.STOP])
def test_kills_at_every_commit_change_nothing(todays_stores: TodaysStores, on_failure: FailurePolicy) -> None:
    whole = _run(todays_stores, _never, on_failure=on_failure)
    returns = on_failure is FailurePolicy.RETURN
    assert whole.state is (RolloutState.RETURNED if returns else RolloutState.STOPPED)
    assert whole.settings["0000000000000001"]["policy"] == ("first-fit" if returns else "spread")
    killers = list[EachCommit]()

    def make(bed: RolloutBed) -> Watcher:
        killers.append(EachCommit(bed))
        return killers[0]

    assert _run(todays_stores, make, on_failure=on_failure) == whole
    assert killers[0].kills >= 20


def test_a_kill_at_one_commit_changes_nothing(todays_stores: TodaysStores) -> None:
    killers = list[OneCommit]()

    def at(moment: int) -> Callable[[RolloutBed], Watcher]:
        def make(bed: RolloutBed) -> Watcher:
            killers.append(OneCommit(bed, moment))
            return killers[-1]

        return make

    whole = _run(todays_stores, at(0))
    moments = killers[0].moments
    for moment in random.Random(1).sample(range(1, moments + 1), 8):
        assert _run(todays_stores, at(moment)) == whole, f"killed at commit moment {moment} of {moments}"
        assert killers[-1].kills == 1


def test_a_process_whose_controller_is_killed_too_comes_to_the_end(todays_stores: TodaysStores) -> None:
    whole = _run(todays_stores, _never)
    rng = random.Random(1)
    killer = Killer(lambda _: rng.random() < 0.06)
    often = _run(todays_stores, lambda _: killer)
    assert (often.settings, often.documents, often.state) == (whole.settings, whole.documents, whole.state)
    assert killer.kills > 10
