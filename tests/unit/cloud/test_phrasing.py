"""Times and sentences in the words of a screen."""

import pytest

from edgegpu_cloud.console.phrasing import NONE, Phrasing, clock_time, date_time
from edgegpu_cloud.phrases import Verbatim, phrase

NOON_S = 1_790_000_000.0  # 2026-09-21 14:13:20


@pytest.mark.parametrize(
    ("at_s", "text"),
    [
        (NOON_S - 3_600, "13:13:20"),
        (NOON_S + 60, "14:14:20"),
        (NOON_S - 86_400, "2026-09-20 14:13"),
        (None, NONE),
        (0, NONE),
        (2.0**53, NONE),
    ],
)
def test_a_time_of_another_day_has_its_day(at_s: float | None, text: str) -> None:
    phrasing = Phrasing(str, lambda one, many, number: one if number == 1 else many, lambda: NOON_S)
    assert phrasing.moment(at_s) == text


@pytest.mark.parametrize("at_s", [2**53, 10**400, -(2**60), float("nan"), float("inf")])
def test_a_time_that_no_calendar_has_is_a_dash(at_s: float) -> None:
    assert (date_time(at_s), clock_time(at_s)) == (NONE, NONE)


@pytest.mark.parametrize("marked", [False, True])
def test_a_command_of_ours_is_code_and_backticks_of_others_are_not(marked: bool) -> None:  # noqa: FBT001  (a parameter of the test)
    phrasing = Phrasing(str, lambda one, many, number: one if number == 1 else many, lambda: NOON_S, marked=marked)
    told = phrase("look at `edgegpu-cloud box %(box)s`: %(why)s", box="<a`b`>", why=phrase("run `it`"))
    assert phrasing.said(told) == "look at <code>edgegpu-cloud box &lt;a`b`&gt;</code>: run <code>it</code>"
    assert "<code>" not in phrasing.said(phrase("the box said: %(words)s", words=Verbatim("run `rm`")))
    assert phrasing.said("a `text`") == "a `text`"
