"""The link's rules, each by an example."""

from __future__ import annotations

import pytest
from kits.linkrun import held_in

from edgegpu_sync.link.rules import (
    DAY_S,
    V5,
    V311,
    ConnectionEnd,
    KeepAlive,
    Message,
    MqttVersionChoice,
    Quarantine,
    ReconnectBackoff,
    SpokenVersion,
    heartbeat_topic,
    remembered,
)

BIG = Message.of("out", "edgegpu/v1/k3f9x2m7q1w8e5r4/up/metrics", bytes(60_000))
SMALL = Message.of("out", "edgegpu/v1/k3f9x2m7q1w8e5r4/up/metrics", bytes(100))


def failing(ending: ConnectionEnd, times: int) -> list[float]:
    """The longest wait after each of so many tries."""
    backoff, waits = ReconnectBackoff(), []
    for _ in range(times):
        backoff = backoff.after(up_s=0)
        waits.append(backoff.wait_s(ending, 0.999_999))
    return waits


@pytest.mark.parametrize(
    ("ending", "waits"),
    [
        (ConnectionEnd.ABSENT, [1, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4]),
        (ConnectionEnd.BUSY, [1, 2, 4, 8, 16, 30, 30, 30, 30, 30, 30]),
        (ConnectionEnd.REFUSED, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
    ],
)
def test_the_wait_grows_as_far_as_the_cause_allows(ending: ConnectionEnd, waits: list[float]) -> None:
    assert failing(ending, len(waits)) == pytest.approx(waits, rel=1e-4)


def test_a_connection_that_held_begins_the_waits_anew_and_a_short_one_does_not() -> None:
    tired = ReconnectBackoff(7)
    assert tired.after(up_s=60).failures == 1
    assert tired.after(up_s=2).failures == 8


def test_an_unsupported_version_is_the_other_one_at_once() -> None:
    assert MqttVersionChoice().failed(ConnectionEnd.UNSUPPORTED, 100.0) == MqttVersionChoice(V311, since=100.0)


def test_two_closes_before_connack_are_the_other_version() -> None:
    once = MqttVersionChoice().failed(ConnectionEnd.CLOSED_EARLY, 100.0)
    assert once.protocol == V5
    assert once.failed(ConnectionEnd.CLOSED_EARLY, 101.0) == MqttVersionChoice(V311, since=101.0)
    assert once.accepted().failed(ConnectionEnd.CLOSED_EARLY, 101.0).protocol == V5


def test_silence_counts_as_a_close_does() -> None:
    assert (
        MqttVersionChoice().failed(ConnectionEnd.SILENT, 1.0).failed(ConnectionEnd.CLOSED_EARLY, 2.0).protocol == V311
    )


def test_where_neither_version_is_taken_they_are_tried_in_turns() -> None:
    version, spoken = MqttVersionChoice(), []
    for now in range(8):
        spoken.append(version.protocol)
        version = version.failed(ConnectionEnd.CLOSED_EARLY, float(now))
    assert spoken == [V5, V5, V311, V311, V5, V5, V311, V311]


@pytest.mark.parametrize(
    "ending",
    [ConnectionEnd.ABSENT, ConnectionEnd.BUSY, ConnectionEnd.REFUSED, ConnectionEnd.LOST, ConnectionEnd.OVERSIZE],
)
def test_nothing_else_changes_the_version(ending: ConnectionEnd) -> None:
    assert MqttVersionChoice(closes=1).failed(ending, 5.0) == MqttVersionChoice(closes=1)


def test_5_is_tried_again_after_a_day_and_one_close_is_then_enough() -> None:
    version = remembered(SpokenVersion(since=1_000.0))
    assert version.to_try(1_000.0 + DAY_S - 1).protocol == V311
    again = version.to_try(1_000.0 + DAY_S)
    assert again.protocol == V5
    assert again.failed(ConnectionEnd.CLOSED_EARLY, 90_000.0).spoken == SpokenVersion(since=90_000.0)
    assert again.accepted().spoken is None


def test_a_clock_that_fell_back_by_years_tries_5_again_rather_than_never() -> None:
    assert remembered(SpokenVersion(since=2_000_000_000.0)).to_try(1_000.0).protocol == V5


def test_a_message_that_ends_the_connection_twice_is_left_alone_a_while() -> None:
    once = Quarantine().ended([(BIG, 99.0)], 100.0)
    assert not once.holds(BIG, 100.0)
    twice = once.ended([(BIG, 104.0)], 105.0)
    assert twice.holds(BIG, 119.9)
    assert not twice.holds(BIG, 120.0)
    assert not twice.holds(SMALL, 105.0)
    assert held_in(twice) == [BIG]


def test_a_third_time_holds_twice_as_long_and_none_longer_than_a_day() -> None:
    rule = Quarantine()
    for _ in range(3):
        rule = rule.ended([(BIG, 100.0)], 100.0)
    assert rule.holds(BIG, 129.9)
    for _ in range(40):
        rule = rule.ended([(BIG, 100.0)], 100.0)
    assert rule.holds(BIG, 100.0 + DAY_S - 1)
    assert not rule.holds(BIG, 100.0 + DAY_S)


def test_what_was_acknowledged_between_is_not_suspected() -> None:
    rule = Quarantine().ended([(BIG, 99.0)], 100.0).passed(BIG).ended([(BIG, 104.0)], 105.0)
    assert not rule.holds(BIG, 105.0)


def test_what_waited_long_before_the_end_is_not_suspected() -> None:
    rule = Quarantine()
    for _ in range(5):
        rule = rule.ended([(BIG, 80.0)], 100.0)
    assert held_in(rule) == []


def test_the_list_of_suspects_is_bounded() -> None:
    rule = Quarantine()
    for number in range(1_000):
        rule = rule.ended([(Message("in", f"t/{number}", 3), 1.0)], 1.0)
    assert len(rule.strikes) == 256


def test_who_is_silent_is_asked_and_who_does_not_answer_is_gone() -> None:
    pulse = KeepAlive(30, heard=100.0, acked_at=100.0)
    assert not pulse.heartbeat_due(123.9)
    assert pulse.heartbeat_due(124.0)
    asked = pulse.awaiting_ack(124.0)
    assert not asked.heartbeat_due(130.0)
    assert not asked.timed_out(153.9)
    assert asked.timed_out(154.0)
    assert asked.next_s(124.0) == 30.0
    assert not asked.packet_received(150.0, proof=False).timed_out(154.0)


def test_a_long_publish_is_no_death_while_anything_comes() -> None:
    pulse = KeepAlive(30, heard=100.0, acked_at=0.0).awaiting_ack(50.0)
    assert not pulse.timed_out(129.9)
    assert pulse.timed_out(130.0)


def test_what_only_comes_proves_not_that_we_are_heard() -> None:
    pulse = KeepAlive(30, heard=100.0, acked_at=100.0).packet_received(123.0, proof=False)
    assert pulse.heartbeat_due(124.0)
    assert not pulse.packet_received(123.5, proof=True).heartbeat_due(124.0)


def test_the_heartbeat_is_no_topic_that_controllers_read() -> None:
    assert heartbeat_topic("k3f9x2m7q1w8e5r4") == "edgegpu/v1/k3f9x2m7q1w8e5r4/beat"
