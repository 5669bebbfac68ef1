"""The install lease's rule: a holder that lives keeps it, whatever clocks say; one that is gone does not for long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_installer.leaserule import DURATION_S, RENEW_S, Holder, Record, Sight, Verdict, verdict

ME = Holder("box-1", 100, "boot-a")
OTHER = Holder("box-2", 7, "boot-b")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ask(record: Record | None, *, watched_s: float = 0.0, first: Record | None = None, alive: bool = True) -> Verdict:
    return verdict(Sight(record, NOW, first or record, watched_s), ME, lambda _: alive)


def a_record(holder: Holder | str = OTHER, version: str = "5", *, silent_s: float = 1.0) -> Record:
    return Record(str(holder), version, since=NOW, renewed=NOW - timedelta(seconds=silent_s))


def test_what_nobody_holds_is_taken() -> None:
    assert ask(None) is Verdict.TAKE
    assert ask(a_record("")) is Verdict.TAKE
    assert ask(a_record(ME)) is Verdict.TAKE


def test_one_that_renews_before_our_eyes_holds_it() -> None:
    assert ask(a_record(version="6"), first=a_record(version="5"), watched_s=12) is Verdict.HELD


def test_one_of_this_node_is_asked_for_by_its_process() -> None:
    mine_once = Holder("box-1", 99, "boot-a")
    assert ask(a_record(mine_once), alive=False) is Verdict.TAKE
    assert ask(a_record(mine_once), alive=True) is Verdict.WAIT


def test_processes_of_other_nodes_are_not_asked_for() -> None:
    assert ask(a_record(OTHER), alive=False) is Verdict.WAIT


@pytest.mark.parametrize(
    ("silent_s", "watched_s", "expected"),
    [
        (1, DURATION_S, Verdict.TAKE),  # the clocks may say what they like
        (DURATION_S + 1, 3 * RENEW_S, Verdict.TAKE),
        (DURATION_S + 1, 3 * RENEW_S - 1, Verdict.WAIT),  # a clock alone is not believed
        (DURATION_S - 1, 3 * RENEW_S, Verdict.WAIT),
        (-9e8, 3 * RENEW_S, Verdict.WAIT),  # its clock is ahead by years
    ],
)
def test_one_that_is_silent_loses_it(silent_s: float, watched_s: float, expected: Verdict) -> None:
    assert ask(a_record(silent_s=silent_s), watched_s=watched_s) is expected


def test_a_server_that_does_not_say_the_time_is_waited_for() -> None:
    record = Record(str(OTHER), "5")
    assert verdict(Sight(record, None, record, DURATION_S - 1), ME, lambda _: True) is Verdict.WAIT
    assert verdict(Sight(record, None, record, DURATION_S), ME, lambda _: True) is Verdict.TAKE


@given(
    skew_s=st.floats(-1e9, 1e9),
    began_s=st.floats(0, 1000),
    looks=st.lists(st.floats(0, 5), min_size=1, max_size=200),
    late_s=st.floats(0, 2 * RENEW_S),
)
def test_a_holder_that_renews_is_never_robbed(skew_s: float, began_s: float, looks: list[float], late_s: float) -> None:
    """Renewals come every 10 s and up to 20 s late, its clock is off by anything, we look when we like."""

    def seen(at_s: float) -> Record:
        count = int(at_s // (RENEW_S + late_s))
        renewed = NOW + timedelta(seconds=count * RENEW_S + skew_s)
        return Record(str(OTHER), str(count), renewed=renewed)

    at_s, first = began_s, seen(began_s)
    for step in looks:
        at_s += step
        sight = Sight(seen(at_s), NOW + timedelta(seconds=at_s), first, at_s - began_s)
        found = verdict(sight, ME, lambda _: True)
        assert found is not Verdict.TAKE
        if found is Verdict.HELD:
            return


@pytest.mark.parametrize("text", ["", "x", "a/b/c", "a/1/", "/1/b", "node"])
def test_foreign_holders_are_not_read(text: str) -> None:
    assert Holder.parse(text) is None


def test_a_holder_is_read_as_it_is_written() -> None:
    assert Holder.parse(str(ME)) == ME
