"""What is wrong with a command whose agent was killed at a step: a second time, no time, another end, two ends."""

from __future__ import annotations

import pytest
from kits.step import DONE_AND_NOT_WRITTEN, IDEMPOTENT, LIMITS, Ask, wrong

from edgegpu_sync.rules.ops import OPS

ALL = (*sorted(OPS), LIMITS)


def ask(op: str) -> Ask:
    return Ask(op, ends=list, done=lambda: 0)


@pytest.mark.parametrize("op", ALL)
def test_done_a_second_time_or_not_at_all_is_wrong(op: str) -> None:
    right = [ask(op).right]
    assert [done for done in range(4) if not wrong("before-act", ask(op), right, done)] == [1]


@pytest.mark.parametrize("op", ALL)
def test_only_what_may_be_repeated_is_done_again_where_its_end_was_not_written(op: str) -> None:
    right = [ask(op).right]
    often = 2 if op in IDEMPOTENT else 1
    assert [done for done in range(4) if not wrong(DONE_AND_NOT_WRITTEN, ask(op), right, done)] == [often]
    assert "plugin.restart" not in IDEMPOTENT


@pytest.mark.parametrize("op", ALL)
@pytest.mark.parametrize("ends", [[], ["FAILED io.error disk"], ["UNKNOWN"]])
def test_another_end_or_none_is_wrong(op: str, ends: list[str]) -> None:
    assert wrong("before-act", ask(op), ends, 1) == f"{op} at before-act: done 1 times, {ends}"


@pytest.mark.parametrize("op", ALL)
def test_two_ends_are_wrong(op: str) -> None:
    assert wrong("before-act", ask(op), [ask(op).right] * 2, 1)
