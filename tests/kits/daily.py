"""Which part of a long table a run takes: another one each day, so that some days see all of it."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")


def today() -> int:
    """Return the number of the day that chooses: BOX_DAY, else the date's."""
    return int(os.environ.get("BOX_DAY") or dt.datetime.now(tz=dt.UTC).date().toordinal())


def turns() -> int:
    """Return in how many days the files of a long tier are run, by TEST_TURNS: CI runs a part of them each day."""
    return int(os.environ.get("TEST_TURNS") or 1)


def files_of_the_day(files: Iterable[str]) -> set[str]:
    """Return the files whose turn it is: every one of so many in the order of their names, counted from today's."""
    return set(sorted(set(files))[today() % turns() :: turns()])


def of_the_day(items: Sequence[T], parts: int) -> list[T]:
    """Return every one of so many items, counted from today's; with TEST_FULL=1 all of them.

    Where files have their turns too, a file sees other items each time that its turn comes.
    """
    return list(items) if os.environ.get("TEST_FULL") else list(items[today() // turns() % parts :: parts])


def how_many(a_day: int, whole: int) -> int:
    """Return how many examples a run takes: those of a day; with TEST_FULL=1 the whole."""
    return whole if os.environ.get("TEST_FULL") else a_day


def how_many_in_turn(at_once: int, whole: int) -> int:
    """Return how many examples a run takes: the whole where its file has one day of several, or with TEST_FULL=1."""
    return whole if turns() > 1 else how_many(at_once, whole)
