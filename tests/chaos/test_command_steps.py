"""kill -9 of the agent at every step of every command that the booted box does not strike, and of app limits."""

from __future__ import annotations

from collections import Counter
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

import pytest
from kits.step import IN_THE_BOX, LIMITS, Site, steps_of, struck

from edgegpu_agent.worker.steps import STEPS
from edgegpu_sync.rules.ops import OPS

if TYPE_CHECKING:
    from pathlib import Path

ALL = (*sorted(OPS.keys() - IN_THE_BOX), LIMITS)


@pytest.mark.chaos
@pytest.mark.timeout(1_200)
def test_every_command_killed_at_each_of_its_steps_ends_once_and_right(tmp_path: Path, short_tmp: Path) -> None:
    with Site(tmp_path, short_tmp) as site:
        steps = {op: steps_of(site, op) for op in ALL}
        seen = {step.partition("-")[2] for step in chain(*steps.values())}
        assert seen == set(STEPS)
        rows = zip_longest(*([(step, op) for step in found] for op, found in steps.items()))
        cells = [cell for row in rows for cell in row if cell is not None]
        wrong = []
        for one in struck(site, cells):
            print(f"{one.op:<18} {one.step:<16} {one.ends[0].split()[0]:<10} done {one.done} {one.wrong}", flush=True)  # noqa: T201  (long work)
            wrong += [one.wrong] if one.wrong else []
    assert Counter(op for _, op in cells) == {op: len(found) for op, found in steps.items()}
    assert not wrong
