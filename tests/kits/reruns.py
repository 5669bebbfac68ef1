"""Which tests CI never runs a second time, and why: what a test of these subjects found once, counts.

`.ci/run` runs a failed test once more when the machine is quiet, and calls it unsteady where it passes then. A test of
the subjects below is left out: its failure may be a rare fault of the product, which a second run would hide.
A test belongs to a subject if its file's path or its own name has a word of the subject's. What no word tells has the
marker `no_rerun(reason)` of its own. A test of any subject that fails of starvation is run again all the same.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
MARKER = "no_rerun"
RERUN = "TEST_RERUN"
STARVED = "starved"


class StarvationError(AssertionError):
    """A program got less of the machine or of a card than its due, or did not come to its end in time.

    A busy machine does that too, so the failure is no fault of the test's subject by itself: `.ci/run` runs the test
    once more, when the machine is quiet. What a container got beyond its share is never told by this.
    """


def not_starved(took: float, most: float, unit: str) -> None:
    """Raise StarvationError where work that nothing holds took `most` or longer."""
    if took >= most:
        raise StarvationError(f"what nothing holds took {took:g} {unit}, {most:g} and more are of a busy machine")


@dataclass(frozen=True, slots=True)
class Subject:
    """What tests of one subject are known by, and why none of them gets a second run."""

    reason: str
    phrases: tuple[str, ...]


def _subject(reason: str, words: str, *phrases: str) -> Subject:
    return Subject(reason=reason, phrases=(*words.split(), *phrases))


CHANCE = "its faults come by chance: another run has others"
SUBJECTS = {
    "ledger": _subject(
        "a unit that is given twice once in a thousand runs is given twice",
        "ledger ledgers allocation allocator admission checkpoint placement preemption bind orders",
    ),
    "isolation": _subject(
        "a container that passed its limit once is not held",
        "isolation limiter bypass seccomp usage selftest slots uncounted compute competing shares mps injector cdi",
        *("live limits", "limits policy", "limits live", "limits verdicts"),
    ),
    "signing": _subject(
        "a message that was believed without its signature once is believed",
        "signing signed signature sealing replay replayed replays forged keys secrets identity acl tls ca crl",
    ),
    "power cuts": _subject(
        "what a cut tears is seen by the run that cuts there, and by no other",
        "power cut cuts faults transaction transactions recover recovery rollback",
        "box test commands",
    ),
    "chaos": _subject(CHANCE, "chaos fuzz lossy"),
    "churn": _subject(CHANCE, "churn"),
    "restarts": _subject(
        "what is lost over a restart is lost in the moment in which it came",
        "restart restarts restarted reboot reboots kill kills killed lease leases leaders leadership takeover",
    ),
}


def words_of(text: str) -> str:
    """Return the words of a path or a test's name, in their order: what slashes, dots and underscores part."""
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def subjects_of(path: str, name: str = "") -> list[str]:
    """Return the subjects of a test by its file's path below the folder of tests, and by its name (not parameters)."""
    named = _subjects_in(path) | _subjects_in(name.partition("[")[0])
    return [key for key in SUBJECTS if key in named]


@cache  # 7 000 tests have 500 paths and 4 000 names, and each process that runs tests asks for all
def _subjects_in(text: str) -> frozenset[str]:
    words = f" {words_of(text)} "
    return frozenset(
        key for key, subject in SUBJECTS.items() if any(f" {phrase} " in words for phrase in subject.phrases)
    )


def _below(item: pytest.Item) -> str:
    base = TESTS if item.path.is_relative_to(TESTS) else item.config.rootpath
    return item.path.relative_to(base).as_posix() if item.path.is_relative_to(base) else item.path.name


def mark(items: list[pytest.Item]) -> None:
    """Give the marker `no_rerun` to the tests of our subjects, with the subject and the reason."""
    for item in items:
        for subject in subjects_of(_below(item), getattr(item, "originalname", None) or item.name):
            item.add_marker(pytest.mark.no_rerun(f"{subject}: {SUBJECTS[subject].reason}"))


def reason_of(item: pytest.Item, error: BaseException | None = None) -> str:
    """Return why a test gets no second run; empty where it may have one.

    Args:
        item: the test.
        error: of what it failed.
    """
    if isinstance(error, StarvationError):
        return ""
    marker = item.get_closest_marker(MARKER)
    return "" if marker is None else str(marker.args[0] if marker.args else "it is marked so")


def is_rerun() -> bool:
    """Return whether this is the second run of a test that has failed: `.ci/run` sets TEST_RERUN then."""
    return bool(os.environ.get(RERUN))


def may_run_again(item: pytest.Item) -> bool:
    """Return whether a second run takes a test: TEST_RERUN is STARVED where it has failed of starvation."""
    return os.environ.get(RERUN) == STARVED or not reason_of(item)
