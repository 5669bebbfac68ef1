"""What `make nightly` runs, and what a run of `.ci/run` sees of it: a part is a step, or a day's turn of one."""

from __future__ import annotations

from dataclasses import dataclass

TURNS = 5
"""In so many days `.ci/run` takes all files of the steps that have turns."""
WEEK = 7


@dataclass(frozen=True, slots=True)
class Part:
    """One command of the night; `turns` is in how many runs `.ci/run` sees all that it covers, 0 if in none."""

    name: str
    command: str
    limit_min: int
    turns: int = 1
    env: tuple[tuple[str, str], ...] = ()


ALL_TURNS = (("TEST_TURNS", "1"),)
# A further step is one line here and one in .ci/run: a part of turns=0 is in no run of .ci/run, and the night's alone.
PARTS = (
    Part("lint", "make lint", 10),
    Part("bundle", "make bundle", 15),
    Part("test", "make test", 30),
    Part("demo", "make demo ONCE=1", 15),
    Part("e2e", "make e2e", 120, TURNS, ALL_TURNS),
    Part("churn", "make churn SECONDS=1800", 60),
    Part("restarts", "make restarts PODS=600", 90, 0),
    Part("versions", "make versions FULL=1", 120, 0),  # each is another 10 minutes of building
    Part("schedulers", "make schedulers", 120, 0),  # an API server and five schedulers are built the first time
    Part("box", "make box FULL=1", 480, TURNS, ALL_TURNS),
    Part("vm", "make vm FULL=1", 240, 0),  # an emulated processor: minutes for what else takes seconds
    Part("cloud", "make cloud FULL=1", 240, TURNS, ALL_TURNS),
    Part("bugs", "make bugs FULL=1", 120, TURNS, ALL_TURNS),
    Part("driver", "make driver", 20),
    Part("native", "make native", 30),
    Part("chaos", "make chaos COMMANDS=2000", 60),
    Part("fuzz", "make fuzz MESSAGES=20000", 30),
    Part("shares", "make shares FULL=1", 60, WEEK),
    Part("bench", "make bench SLACK=2", 60),
)


def rows_of(name: str, turns: int) -> list[str]:
    """Return the names under which parts of a step are remembered: one for each of its turns."""
    return [name] if turns < 2 else [f"{name} {turn} of {turns}" for turn in range(1, turns + 1)]  # noqa: PLR2004


def seen_by_ci(name: str, *, day: int, turns: int) -> list[str]:
    """Return what a step of `.ci/run` sees on a day: the whole, or a turn."""
    part = next((part for part in PARTS if part.name == name), None)
    if part is None:
        return [name]
    if part.turns == WEEK:
        return [rows_of(name, WEEK)[day % WEEK]]
    if part.turns != TURNS:
        return [name]
    if turns == 1:
        return rows_of(name, TURNS)
    return [rows_of(name, TURNS)[day % TURNS]] if turns == TURNS else []
