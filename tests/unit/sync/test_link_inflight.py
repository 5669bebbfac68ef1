"""What the link's thread shares with others: nothing is taken while down, nothing outlives its connection."""

from __future__ import annotations

import pytest
from kits.linkrun import held_in

from edgegpu_sync.errors import TooLargeError
from edgegpu_sync.link.events import MessageArrived, PublishAcknowledged
from edgegpu_sync.link.inflight import AckRequest, Inflight, PublishRequest

TOPIC = "edgegpu/v1/k3f9x2m7q1w8e5r4/up/health"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(clock: Clock) -> Inflight:
    return Inflight(clock, max_inflight=2)


def publish(desk: Inflight, turn: int | None = None) -> int | None:
    return desk.publish(TOPIC, b"x", retain=False, turn=turn)


def arrived(turn: int, mid: int = 1, payload: bytes = b"x") -> MessageArrived:
    return MessageArrived("edgegpu/v1/k3f9x2m7q1w8e5r4/down/receipt", payload, retained=False, mid=mid, turn=turn)


def connect(desk: Inflight, window: int = 100) -> int:
    turn = desk.begin()
    desk.open(window)
    return turn


def test_takes_publishes_between_open_and_end_as_many_as_may_be(desk: Inflight) -> None:
    assert publish(desk) is None
    turn = connect(desk)
    first, second = publish(desk, turn), publish(desk)
    assert first != second
    assert publish(desk) is None
    assert [todo.token for todo in desk.take() if isinstance(todo, PublishRequest)] == [first, second]
    desk.sent(first or 0, 7)
    assert desk.acked(7, "") == PublishAcknowledged(first or 0)
    assert publish(desk) is not None
    desk.end(suspect=False)
    assert publish(desk) is None
    assert desk.take() == []


def test_the_brokers_window_counts_where_it_is_smaller(desk: Inflight) -> None:
    connect(desk, window=1)
    assert publish(desk) is not None
    assert publish(desk) is None


def test_what_is_meant_for_an_earlier_connection_is_not_taken_by_the_next(desk: Inflight) -> None:
    turn = connect(desk)
    came = arrived(turn)
    desk.came(came)
    desk.end(suspect=False)
    again = connect(desk)
    desk.came(arrived(again))
    assert publish(desk, turn) is None
    assert not desk.ack(came)
    assert desk.ack(arrived(again))
    assert not desk.ack(arrived(again))
    assert desk.take() == [AckRequest(1)]


def test_counts_the_bytes_that_are_not_acknowledged(desk: Inflight) -> None:
    turn = connect(desk)
    for mid in (1, 2, 2):
        desk.came(arrived(turn, mid, bytes(1000)))
    assert desk.unacked_bytes == 2000
    desk.ack(arrived(turn, 2))
    assert desk.unacked_bytes == 1000
    desk.end(suspect=False)
    assert desk.unacked_bytes == 0


def heard(desk: Inflight) -> None:
    """Let the broker acknowledge something."""
    token = desk.publish(f"{TOPIC}/first", b"", retain=False, turn=None)
    assert token is not None
    desk.take()
    desk.sent(token, 1)
    assert desk.acked(1, "") == PublishAcknowledged(token)


def test_one_that_is_not_acknowledged_to_the_broker_counts_until_it_is_taken(desk: Inflight) -> None:
    turn = connect(desk)
    desk.came(arrived(turn, -1, bytes(1000)))
    assert desk.unacked_bytes == 1000
    assert desk.ack(arrived(turn, -1))
    assert (desk.unacked_bytes, desk.take()) == (0, [])


@pytest.mark.parametrize("blamed", [True, False])
def test_the_oldest_under_way_at_two_ends_is_held_and_answered(desk: Inflight, *, blamed: bool) -> None:
    for _ in range(2):
        connect(desk)
        if not blamed:
            heard(desk)
        publish(desk)
        desk.publish(f"{TOPIC}2", b"x", retain=False, turn=None)
        desk.end(suspect=True, blamed=blamed)
    connect(desk)
    token = publish(desk)
    (answer,) = desk.take()
    assert isinstance(answer, PublishAcknowledged)
    assert (answer.token, bool(answer.refused)) == (token, True)
    assert [one.topic for one in held_in(desk.quarantine)] == [TOPIC]
    assert desk.publish(f"{TOPIC}2", b"x", retain=False, turn=None) is not None


def test_a_connection_on_which_nothing_was_acknowledged_proves_nothing(desk: Inflight) -> None:
    for _ in range(5):
        connect(desk)
        publish(desk)
        desk.end(suspect=True)
    assert held_in(desk.quarantine) == []


def test_after_an_end_with_messages_under_way_they_go_one_at_a_time_for_a_while(desk: Inflight) -> None:
    connect(desk)
    assert (publish(desk), publish(desk)) == (1, 2)
    desk.end(suspect=True)
    connect(desk)
    for mid in range(3):
        token = publish(desk)
        assert token is not None
        assert publish(desk) is None
        desk.sent(token, mid)
        desk.acked(mid, "")
    assert publish(desk) is not None
    assert publish(desk) is not None


def test_an_end_of_our_own_doing_makes_nobody_suspect(desk: Inflight) -> None:
    for _ in range(5):
        connect(desk)
        publish(desk)
        desk.end(suspect=False)
    assert held_in(desk.quarantine) == []


def test_one_that_came_before_two_ends_is_acknowledged_at_once_and_still_handed_on(desk: Inflight) -> None:
    for _ in range(2):
        turn = connect(desk)
        heard(desk)
        desk.came(arrived(turn))
        desk.end(suspect=True)
    turn = connect(desk)
    desk.came(arrived(turn))
    assert desk.take() == [AckRequest(1)]
    assert not desk.ack(arrived(turn))


def test_a_heartbeat_is_nobodys_and_never_suspected(desk: Inflight, clock: Clock) -> None:
    for _ in range(3):
        connect(desk)
        desk.beat("edgegpu/v1/k3f9x2m7q1w8e5r4/beat")
        assert desk.waits_since == clock.now
        (send,) = desk.take()
        assert isinstance(send, PublishRequest)
        desk.end(suspect=True, blamed=True)
    assert held_in(desk.quarantine) == []
    connect(desk)
    desk.beat("edgegpu/v1/k3f9x2m7q1w8e5r4/beat")
    (send,) = desk.take()
    assert isinstance(send, PublishRequest)
    desk.sent(send.token, 3)
    assert desk.acked(3, "") is None
    assert desk.idle


def test_refuses_what_no_broker_would_take(desk: Inflight) -> None:
    with pytest.raises(TooLargeError):
        desk.publish(TOPIC, bytes(65_537), retain=False, turn=None)
    with pytest.raises(ValueError, match="no wildcards"):
        desk.publish("a/#", b"", retain=False, turn=None)
