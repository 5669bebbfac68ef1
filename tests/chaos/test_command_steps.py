"""kill -9 of the agent at steps of the commands that no booted box strikes, and of limits: a third a day."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from itertools import chain, zip_longest
from typing import TYPE_CHECKING

import pytest
from kits.agent import until
from kits.daily import of_the_day
from kits.step import IN_THE_BOX, LIMITS, Site, steps_of, struck, wrong

from edgegpu_agent.worker.steps import STEPS
from edgegpu_sync.rules.ops import OPS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ALL = (*sorted(OPS.keys() - IN_THE_BOX), LIMITS)


@pytest.mark.chaos
@pytest.mark.timeout(2_400)
def test_every_command_killed_at_each_of_its_steps_ends_once_and_right(tmp_path: Path, short_tmp: Path) -> None:
    with Site(tmp_path, short_tmp) as site:
        steps = {op: steps_of(site, op) for op in ALL}
        seen = {step.partition("-")[2] for step in chain(*steps.values())}
        assert seen == set(STEPS)
        rows = zip_longest(*([(step, op) for step in found] for op, found in steps.items()))
        cells = apart(of_the_day([cell for row in rows for cell in row if cell is not None], parts=3))
        bad = []
        for one in struck(site, cells):
            print(f"{one.op:<18} {one.step:<16} {one.ends[0].split()[0]:<10} done {one.done} {one.wrong}", flush=True)  # noqa: T201  (long work)
            bad += [one.wrong] if one.wrong else []
    assert {op for _, op in cells} == set(ALL)
    assert not bad


def apart(cells: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return cells in an order in which no two of one op follow each other."""
    left, found = list(cells), list[tuple[str, str]]()
    while left:
        of = Counter(op for _, op in left)
        others = [one for one in left if not found or one[1] != found[-1][1]]
        found.append(max(others, key=lambda one: of[one[1]]))
        left.remove(found[-1])
    return found


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("op", "program"),
    [("plugin.restart", ("systemctl", "restart", "edgegpu-plugin.service")), ("doctor.run", ("edgegpu", "doctor"))],
)
def test_a_second_time_is_counted(tmp_path: Path, short_tmp: Path, op: str, program: tuple[str, ...]) -> None:
    with Site(tmp_path, short_tmp) as site:
        asked = site.ask(op)
        until(asked.ends, lambda: site.agent.log)
        assert wrong("before-act", asked, asked.ends(), asked.done()) == ""
        env = {**os.environ, "BOX": str(short_tmp), "FAKE": str(short_tmp / "fake"), "FAKE_ROOT": str(short_tmp)}
        subprocess.run([short_tmp / "bin" / program[0], *program[1:]], env=env, check=False, capture_output=True)
        assert wrong("before-act", asked, asked.ends(), asked.done()).startswith(f"{op} at before-act: done 2 times")
