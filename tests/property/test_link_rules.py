"""The link's rules under anything: back within seconds, never silent for ever, nothing held for ever."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from edgegpu_sync.link.rules import (
    DAY_S,
    EARLY_CLOSES,
    V5,
    V311,
    ConnectionEnd,
    KeepAlive,
    Message,
    MqttVersionChoice,
    Quarantine,
    ReconnectBackoff,
)

ENDINGS = st.sampled_from(list(ConnectionEnd))
ROLLS = st.floats(0, 1, exclude_max=True)
MESSAGE = st.builds(Message, st.sampled_from(["in", "out"]), st.sampled_from("abc"), st.integers(0, 3))


@given(st.lists(st.tuples(ENDINGS, st.floats(0, 1e6)), max_size=50), ENDINGS, ROLLS)
def test_a_wait_is_never_none_and_never_more_than_its_cause_allows(
    past: list[tuple[ConnectionEnd, float]], ending: ConnectionEnd, roll: float
) -> None:
    backoff = ReconnectBackoff()
    for _, up_s in past:
        backoff = backoff.after(up_s=up_s)
    wait_s = backoff.after(up_s=0).wait_s(ending, roll)
    assert 0.05 <= wait_s <= (300 if ending in {ConnectionEnd.REFUSED, ConnectionEnd.OVERSIZE} else 30)
    if ending in {ConnectionEnd.ABSENT, ConnectionEnd.LOST}:
        assert wait_s <= 4


@given(st.integers(0, 2**32), st.floats(0.0, 100_000.0))
@settings(max_examples=30)
def test_however_long_the_broker_was_away_all_are_back_in_four_seconds(seed: int, away_s: float) -> None:
    rng = random.Random(seed)
    late = []
    for _ in range(200):
        backoff, now = ReconnectBackoff().after(up_s=3600), 0.0
        tries = 0
        while True:
            now += backoff.wait_s(ConnectionEnd.ABSENT, rng.random())
            tries += 1
            if now >= away_s or tries > 30:  # the waits are as long as they get by then
                break
            backoff = backoff.after(up_s=0)
        late.append(now - away_s if tries <= 30 else backoff.wait_s(ConnectionEnd.ABSENT, rng.random()))
    assert max(late) <= 4.0


@given(st.lists(st.tuples(ENDINGS, st.booleans(), st.floats(-1e9, 1e9)), max_size=60))
def test_the_version_is_one_of_two_and_3_1_1_needs_a_reason(steps: list[tuple[ConnectionEnd, bool, float]]) -> None:
    version = MqttVersionChoice()
    for ending, taken, now in steps:
        tried = version.to_try(now)
        version = tried.accepted() if taken else tried.failed(ending, now)
        if tried.protocol == V5 and version.protocol == V311:
            assert not taken
            assert ending is ConnectionEnd.UNSUPPORTED or tried.closes == EARLY_CLOSES - 1
        assert version.closes < EARLY_CLOSES
        assert version.to_try(now).protocol == version.protocol or version.since > now or now - version.since >= DAY_S


@given(st.lists(st.tuples(MESSAGE, st.booleans(), st.floats(0, 100)), max_size=80))
def test_nothing_is_held_without_two_strikes_in_a_row_nor_longer_than_a_day(
    steps: list[tuple[Message, bool, float]],
) -> None:
    rule, now = Quarantine(), 0.0
    strikes: dict[Message, int] = {}
    for message, ends, pause_s in steps:
        now += pause_s
        rule = rule.ended([(message, now)], now) if ends else rule.passed(message)
        strikes[message] = strikes.get(message, 0) + 1 if ends else 0
        for name, count in strikes.items():
            assert not rule.holds(name, now) or count >= 2
            assert not rule.holds(name, now + DAY_S)
        assert rule.holds(message, now) == (strikes[message] >= 2)


@given(
    st.floats(1, 600), st.lists(st.tuples(st.sampled_from(["hear", "ask", "answer"]), st.floats(0, 700)), max_size=40)
)
def test_silence_ends_in_a_question_and_then_in_the_end(keepalive_s: float, steps: list[tuple[str, float]]) -> None:
    pulse, now = KeepAlive(keepalive_s, heard=0.0, acked_at=0.0), 0.0
    for what, pause_s in steps:
        now += pause_s
        match what:
            case "hear":
                pulse = pulse.packet_received(now, proof=False)
            case "ask":
                pulse = pulse.awaiting_ack(now)
            case _:
                pulse = pulse.packet_received(now, proof=True).awaiting_ack(None)
    soon = now + pulse.next_s(now) + 1e-6
    assert pulse.heartbeat_due(soon) or pulse.timed_out(soon)
    assert not (pulse.heartbeat_due(soon) and pulse.timed_out(soon))
    if pulse.heartbeat_due(soon):
        assert pulse.awaiting_ack(soon).timed_out(soon + keepalive_s + 1e-3)
    assert pulse.next_s(now) <= keepalive_s + 1e-6
