"""A controller whose work meets another transaction, time and again: it does it at its next turn, and loses nothing."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from kits.controller import Bed
from kits.modelbox import CHAIN, ROOT, SIGNING
from sqlalchemy import event

from edgegpu_cloud.controller import broker_drops
from edgegpu_cloud.controller.controller import CHECK_INTERVAL_S
from edgegpu_cloud.store.engine import open_engine
from edgegpu_cloud.store.records import LEADER
from edgegpu_cloud.store.store import ControllerStore
from edgegpu_sync.keys import next_link, public_text
from edgegpu_sync.link.events import LinkDown, LinkUp, MessageArrived
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kits.postgres import PostgresServer

LATER = "another change was in the way"


def hurry(connection: Any, _: object) -> None:  # noqa: ANN401  (the driver's own connection)
    """Let PostgreSQL end a wait for a lock at once, as it does after 30 s: with the same error."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '20ms'")
    connection.commit()


class NothingChangedError(Exception):
    """Ends a transaction without a trace."""


class HurriedBed(Bed):
    """A controller and two boxes on PostgreSQL, which waits for no lock."""

    def open(self) -> ControllerStore:
        engine = open_engine(self.url)
        event.listen(engine, "connect", hurry)
        return ControllerStore(engine)

    @contextmanager
    def in_the_way(self) -> Iterator[None]:
        """Hold the row of the first box in another transaction."""
        with self.store.write() as tx:
            tx.boxes.get(self.devices[:1])
            yield

    @contextmanager
    def leader_in_the_way(self) -> Iterator[None]:
        """Hold the leader's lease in another transaction, which changes nothing in the end."""
        with suppress(NothingChangedError), self.store.write() as tx:
            (lease,) = (one for one in tx.leases.all() if one.number == LEADER)
            tx.leases.give(lease, "another")
            yield
            raise NothingChangedError

    def said(self) -> None:
        """Let the boxes say what they have to say, and the controller hear it."""
        self.network.carry()
        self.controller.step()

    def turn(self) -> None:
        """Let the controller have its next turn; the boxes say nothing more meanwhile."""
        self.world.now_s += CHECK_INTERVAL_S
        self.controller.step()

    def sent(self, kind: TopicKind) -> int:
        """Return how many messages of a kind the controller has sent to the first box."""
        return sum(topic.endswith(f"{self.devices[0]}/{kind}") for topic, _ in self.network.seen_down)


@pytest.fixture
def bed(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[HurriedBed]:
    bed = HurriedBed(tmp_path, url=postgres_server.new_store(), boxes=2)
    bed.controller.step()
    yield bed
    bed.store.close()


def online(bed: Bed) -> list[bool]:
    return [view.online for view in bed.fleet.boxes()]


def test_what_boxes_have_said_is_stored_later_and_acknowledged_then(
    bed: HurriedBed, caplog: pytest.LogCaptureFixture
) -> None:
    bed.connect_all()
    with bed.in_the_way():
        bed.said()
        waiting = dict(bed.network.unacked)
        bed.controller.step()
        assert waiting
        assert bed.network.unacked == waiting, "nothing is acknowledged that is not stored"
        assert caplog.text.count(LATER) == caplog.text.count("tried again at the next turn"), caplog.text
        assert caplog.text.count("cannot store what boxes have said now") == 1, "it waits until its next turn"
        bed.turn()
        assert caplog.text.count("cannot store what boxes have said now") == 2
        assert online(bed) == [False, False]
    bed.turn()
    assert (online(bed), bed.network.unacked) == ([True, True], {})


def test_it_is_stored_in_its_order_with_what_comes_meanwhile(bed: HurriedBed) -> None:
    bed.connect_all()
    with bed.in_the_way():
        bed.said()
        bed.network.cut_off(bed.devices[0])
        bed.said()
        bed.controller.inbox.put(LinkDown("cut"))
        bed.controller.inbox.put(LinkUp(session_present=True, protocol=5, connection=1))
        bed.turn()
    bed.turn()
    assert online(bed) == [False, True], "the will comes after the birth"


def test_a_box_that_was_not_asked_is_asked_later(bed: HurriedBed) -> None:
    bed.connect_all()
    bed.settle(5)
    bed.network.detach()
    bed.controller.step()
    bed.network.seen_down.clear()
    with bed.in_the_way():
        bed.network.attach(bed.controller)
        bed.controller.step()
        bed.turn()
        assert bed.sent(TopicKind.RECEIPT) == 0
    bed.turn()
    assert bed.sent(TopicKind.RECEIPT) > 0


def test_what_people_have_asked_for_is_done_later(bed: HurriedBed) -> None:
    bed.connect_all()
    bed.settle(5)
    id_ = bed.fleet.command("box-1", "plugin.restart", {}, wait_s=600)
    with bed.in_the_way():
        bed.turn()
        bed.turn()
        assert bed.state(id_) is not CommandState.SUCCEEDED
    bed.until(bed.all_ended, within_s=20)
    assert bed.state(id_) is CommandState.SUCCEEDED


def test_a_new_key_set_comes_later(bed: HurriedBed) -> None:
    bed.connect_all()
    bed.settle(5)
    bed.network.seen_down.clear()
    with bed.store.write() as tx:
        tx.notes.add_link(2, next_link(ROOT, keys=[public_text(SIGNING)], before=CHAIN[0]))
        tx.notes.changed()
    with bed.in_the_way():
        bed.turn()
        assert bed.sent(TopicKind.KEYS) == 0
    bed.turn()
    assert bed.sent(TopicKind.KEYS) == 1


def test_an_alarm_of_dropped_messages_comes_with_the_next_count(bed: HurriedBed) -> None:
    def count(text: bytes) -> None:
        arrived = MessageArrived(topic=broker_drops.TOPIC, payload=text, retained=False, mid=0, connection=1)
        bed.controller.inbox.put(arrived)
        bed.controller.step()

    count(b"1")
    with bed.leader_in_the_way():
        count(b"3")
        assert bed.fleet.alarms() == []
    count(b"3")
    (alarm,) = bed.fleet.alarms()
    assert "2 messages" in alarm.text
