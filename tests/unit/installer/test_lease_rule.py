"""The install lease's rule: a holder that lives keeps it, whatever clocks say; one that is gone does not for long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegpu_installer.cluster.lease_rule import (
    DURATION_S,
    RENEW_S,
    InstallLeaseRecord,
    LeaseAction,
    LeaseHolder,
    LeaseObservation,
    verdict,
)

ME = LeaseHolder("box-1", 100, "boot-a")
OTHER = LeaseHolder("box-2", 7, "boot-b")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ask(
    record: InstallLeaseRecord | None,
    *,
    watched_s: float = 0.0,
    first: InstallLeaseRecord | None = None,
    alive: bool = True,
) -> LeaseAction:
    return verdict(LeaseObservation(record, NOW, first or record, watched_s), ME, lambda _: alive)


def a_record(holder: LeaseHolder | str = OTHER, version: str = "5", *, silent_s: float = 1.0) -> InstallLeaseRecord:
    return InstallLeaseRecord(str(holder), version, since=NOW, renewed=NOW - timedelta(seconds=silent_s))


def test_what_nobody_holds_is_taken() -> None:
    assert ask(None) is LeaseAction.TAKE
    assert ask(a_record("")) is LeaseAction.TAKE
    assert ask(a_record(ME)) is LeaseAction.TAKE


def test_one_that_renews_before_our_eyes_holds_it() -> None:
    assert ask(a_record(version="6"), first=a_record(version="5"), watched_s=12) is LeaseAction.HELD


def test_one_of_this_node_is_asked_for_by_its_process() -> None:
    mine_once = LeaseHolder("box-1", 99, "boot-a")
    assert ask(a_record(mine_once), alive=False) is LeaseAction.TAKE
    assert ask(a_record(mine_once), alive=True) is LeaseAction.WAIT


def test_processes_of_other_nodes_are_not_asked_for() -> None:
    assert ask(a_record(OTHER), alive=False) is LeaseAction.WAIT


@pytest.mark.parametrize(
    ("silent_s", "watched_s", "expected"),
    [
        (1, DURATION_S, LeaseAction.TAKE),  # the clocks may say what they like
        (DURATION_S + 1, 3 * RENEW_S, LeaseAction.TAKE),
        (DURATION_S + 1, 3 * RENEW_S - 1, LeaseAction.WAIT),  # a clock alone is not believed
        (DURATION_S - 1, 3 * RENEW_S, LeaseAction.WAIT),
        (-9e8, 3 * RENEW_S, LeaseAction.WAIT),  # its clock is ahead by years
    ],
)
def test_one_that_is_silent_loses_it(silent_s: float, watched_s: float, expected: LeaseAction) -> None:
    assert ask(a_record(silent_s=silent_s), watched_s=watched_s) is expected


def test_a_server_that_does_not_say_the_time_is_waited_for() -> None:
    record = InstallLeaseRecord(str(OTHER), "5")
    assert verdict(LeaseObservation(record, None, record, DURATION_S - 1), ME, lambda _: True) is LeaseAction.WAIT
    assert verdict(LeaseObservation(record, None, record, DURATION_S), ME, lambda _: True) is LeaseAction.TAKE


@given(
    skew_s=st.floats(-1e9, 1e9),
    began_s=st.floats(0, 1000),
    looks=st.lists(st.floats(0, 5), min_size=1, max_size=200),
    late_s=st.floats(0, 2 * RENEW_S),
)
def test_a_holder_that_renews_is_never_robbed(skew_s: float, began_s: float, looks: list[float], late_s: float) -> None:
    """Renewals come every 10 s and up to 20 s late, its clock is off by anything, we look when we like."""

    def seen(at_s: float) -> InstallLeaseRecord:
        count = int(at_s // (RENEW_S + late_s))
        renewed = NOW + timedelta(seconds=count * RENEW_S + skew_s)
        return InstallLeaseRecord(str(OTHER), str(count), renewed=renewed)

    at_s, first = began_s, seen(began_s)
    for step in looks:
        at_s += step
        sight = LeaseObservation(seen(at_s), NOW + timedelta(seconds=at_s), first, at_s - began_s)
        found = verdict(sight, ME, lambda _: True)
        assert found is not LeaseAction.TAKE
        if found is LeaseAction.HELD:
            return


@pytest.mark.parametrize("text", ["", "x", "a/b/c", "a/1/", "/1/b", "node"])
def test_foreign_holders_are_not_read(text: str) -> None:
    assert LeaseHolder.parse(text) is None


def test_a_holder_is_read_as_it_is_written() -> None:
    assert LeaseHolder.parse(str(ME)) == ME
