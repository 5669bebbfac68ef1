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
def inflight(clock: Clock) -> Inflight:
    return Inflight(clock, max_inflight=2)


def publish(inflight: Inflight, connection: int | None = None) -> int | None:
    return inflight.publish(TOPIC, b"x", retain=False, connection=connection)


def arrived(connection: int, mid: int = 1, payload: bytes = b"x") -> MessageArrived:
    return MessageArrived(
        "edgegpu/v1/k3f9x2m7q1w8e5r4/down/receipt", payload, retained=False, mid=mid, connection=connection
    )


def connect(inflight: Inflight, window: int = 100) -> int:
    connection = inflight.begin()
    inflight.open(window)
    return connection


def test_takes_publishes_between_open_and_end_as_many_as_may_be(inflight: Inflight) -> None:
    assert publish(inflight) is None
    connection = connect(inflight)
    first, second = publish(inflight, connection), publish(inflight)
    assert first != second
    assert publish(inflight) is None
    assert [todo.token for todo in inflight.take_pending() if isinstance(todo, PublishRequest)] == [first, second]
    inflight.sent(first or 0, 7)
    assert inflight.acked(7, "") == PublishAcknowledged(first or 0)
    assert publish(inflight) is not None
    inflight.end(suspect=False)
    assert publish(inflight) is None
    assert inflight.take_pending() == []


def test_the_brokers_window_counts_where_it_is_smaller(inflight: Inflight) -> None:
    connect(inflight, window=1)
    assert publish(inflight) is not None
    assert publish(inflight) is None


def test_what_is_meant_for_an_earlier_connection_is_not_taken_by_the_next(inflight: Inflight) -> None:
    connection = connect(inflight)
    came = arrived(connection)
    inflight.received(came)
    inflight.end(suspect=False)
    again = connect(inflight)
    inflight.received(arrived(again))
    assert publish(inflight, connection) is None
    assert not inflight.ack(came)
    assert inflight.ack(arrived(again))
    assert not inflight.ack(arrived(again))
    assert inflight.take_pending() == [AckRequest(1)]


def test_counts_the_bytes_that_are_not_acknowledged(inflight: Inflight) -> None:
    connection = connect(inflight)
    for mid in (1, 2, 2):
        inflight.received(arrived(connection, mid, bytes(1000)))
    assert inflight.unacked_bytes == 2000
    inflight.ack(arrived(connection, 2))
    assert inflight.unacked_bytes == 1000
    inflight.end(suspect=False)
    assert inflight.unacked_bytes == 0


def heard(inflight: Inflight) -> None:
    """Let the broker acknowledge something."""
    token = inflight.publish(f"{TOPIC}/first", b"", retain=False, connection=None)
    assert token is not None
    inflight.take_pending()
    inflight.sent(token, 1)
    assert inflight.acked(1, "") == PublishAcknowledged(token)


def test_one_that_is_not_acknowledged_to_the_broker_counts_until_it_is_taken(inflight: Inflight) -> None:
    connection = connect(inflight)
    inflight.received(arrived(connection, -1, bytes(1000)))
    assert inflight.unacked_bytes == 1000
    assert inflight.ack(arrived(connection, -1))
    assert (inflight.unacked_bytes, inflight.take_pending()) == (0, [])


@pytest.mark.parametrize("blamed", [True, False])
def test_the_oldest_under_way_at_two_ends_is_held_and_answered(inflight: Inflight, *, blamed: bool) -> None:
    for _ in range(2):
        connect(inflight)
        if not blamed:
            heard(inflight)
        publish(inflight)
        inflight.publish(f"{TOPIC}2", b"x", retain=False, connection=None)
        inflight.end(suspect=True, blamed=blamed)
    connect(inflight)
    token = publish(inflight)
    (answer,) = inflight.take_pending()
    assert isinstance(answer, PublishAcknowledged)
    assert (answer.token, bool(answer.refused)) == (token, True)
    assert [one.topic for one in held_in(inflight.quarantine)] == [TOPIC]
    assert inflight.publish(f"{TOPIC}2", b"x", retain=False, connection=None) is not None


def test_a_connection_on_which_nothing_was_acknowledged_proves_nothing(inflight: Inflight) -> None:
    for _ in range(5):
        connect(inflight)
        publish(inflight)
        inflight.end(suspect=True)
    assert held_in(inflight.quarantine) == []


def test_after_an_end_with_messages_under_way_they_go_one_at_a_time_for_a_while(inflight: Inflight) -> None:
    connect(inflight)
    assert (publish(inflight), publish(inflight)) == (1, 2)
    inflight.end(suspect=True)
    connect(inflight)
    for mid in range(3):
        token = publish(inflight)
        assert token is not None
        assert publish(inflight) is None
        inflight.sent(token, mid)
        inflight.acked(mid, "")
    assert publish(inflight) is not None
    assert publish(inflight) is not None


def test_an_end_of_our_own_doing_makes_nobody_suspect(inflight: Inflight) -> None:
    for _ in range(5):
        connect(inflight)
        publish(inflight)
        inflight.end(suspect=False)
    assert held_in(inflight.quarantine) == []


def test_one_that_came_before_two_ends_is_acknowledged_at_once_and_still_handed_on(inflight: Inflight) -> None:
    for _ in range(2):
        connection = connect(inflight)
        heard(inflight)
        inflight.received(arrived(connection))
        inflight.end(suspect=True)
    connection = connect(inflight)
    inflight.received(arrived(connection))
    assert inflight.take_pending() == [AckRequest(1)]
    assert not inflight.ack(arrived(connection))


def test_a_heartbeat_is_nobodys_and_never_suspected(inflight: Inflight, clock: Clock) -> None:
    for _ in range(3):
        connect(inflight)
        inflight.queue_heartbeat("edgegpu/v1/k3f9x2m7q1w8e5r4/beat")
        assert inflight.waits_since == clock.now
        (send,) = inflight.take_pending()
        assert isinstance(send, PublishRequest)
        inflight.end(suspect=True, blamed=True)
    assert held_in(inflight.quarantine) == []
    connect(inflight)
    inflight.queue_heartbeat("edgegpu/v1/k3f9x2m7q1w8e5r4/beat")
    (send,) = inflight.take_pending()
    assert isinstance(send, PublishRequest)
    inflight.sent(send.token, 3)
    assert inflight.acked(3, "") is None
    assert inflight.idle


def test_refuses_what_no_broker_would_take(inflight: Inflight) -> None:
    with pytest.raises(TooLargeError):
        inflight.publish(TOPIC, bytes(65_537), retain=False, connection=None)
    with pytest.raises(ValueError, match="no wildcards"):
        inflight.publish("a/#", b"", retain=False, connection=None)
