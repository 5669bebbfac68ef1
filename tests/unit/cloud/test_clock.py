"""The controller's clock: no leap ahead is told to boxes, whose floors never go back."""

import pytest

from edgegpu_cloud.controller.clock import AWAY_S, LEAP_S, SteadyClock, check_away
from edgegpu_cloud.errors import CloudError

NOW_S = 1_795_000_000.0
IN_2099_S = 4_080_000_000.0


class Clocks:
    """A machine's clock, CLOCK_BOOTTIME, and what was said of leaps."""

    def __init__(self, wall_s: float = NOW_S) -> None:
        self.wall_s, self.boot_s = wall_s, 100.0
        self.said: list[str] = []

    def steady(self, last_s: float = 0.0) -> SteadyClock:
        return SteadyClock(
            last_s=last_s, wall_s=lambda: self.wall_s, boot_s=lambda: self.boot_s, leapt=self.said.append
        )

    def go_on(self, seconds: float) -> None:
        self.wall_s += seconds
        self.boot_s += seconds


def test_the_time_goes_on_from_before_a_leap_until_the_clock_is_right_again() -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clocks.go_on(10)
    assert clock() == NOW_S + 10
    clocks.wall_s = IN_2099_S
    assert clock() == NOW_S + 10
    clocks.go_on(60)
    assert clock() == NOW_S + 70
    assert len(clocks.said) == 1
    assert "2099" in clocks.said[0]
    clocks.wall_s = NOW_S + 75
    assert clock() == NOW_S + 75
    clocks.wall_s = IN_2099_S
    assert clock() == NOW_S + 75
    assert len(clocks.said) == 2


@pytest.mark.parametrize("step_s", [-LEAP_S, -60.0, 60.0, LEAP_S])
def test_small_steps_and_steps_back_are_followed(step_s: float) -> None:
    clocks = Clocks()
    clock = clocks.steady()
    clocks.wall_s += step_s
    assert clock() == NOW_S + step_s
    clocks.wall_s = NOW_S
    assert clock() == NOW_S
    assert not clocks.said


def test_a_machine_that_began_in_1970_gets_the_time_right_without_a_leap() -> None:
    clocks = Clocks(wall_s=100.0)
    clock = clocks.steady(last_s=NOW_S - 3_600)
    assert clock() == 100.0
    clocks.wall_s = NOW_S
    assert clock() == NOW_S
    assert not clocks.said


def test_years_since_boxes_were_told_a_time_want_a_person() -> None:
    check_away(last_s=0, now_s=IN_2099_S)
    check_away(last_s=NOW_S, now_s=NOW_S + AWAY_S)
    check_away(last_s=NOW_S, now_s=100.0)
    with pytest.raises(CloudError, match=r"2099.*--clock-is-right"):
        check_away(last_s=NOW_S, now_s=IN_2099_S)
