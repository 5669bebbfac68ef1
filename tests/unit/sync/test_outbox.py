"""The outbox: every accepted command has its place, and room is made at the cost of what matters least."""

import pytest
from kits.sync import EPOCH

from edgegpu_sync.ids import CommandId, command_id
from edgegpu_sync.messages.downlink import Receipt
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.rules.outbox import KeptMessage, Outbox, OutboxSizes

SMALL = Outbox(limits=OutboxSizes(results=2, refusals=1, events_bytes=100, metrics_bytes=100))
A, B, C, D = (command_id(f"command-{letter}") for letter in "abcd")


def kept(n: int, size: int = 50, *, alarm: bool = False, epoch: Epoch = EPOCH) -> KeptMessage:
    return KeptMessage(Stamp(enrolment=3, epoch=epoch, n=n), size, alarm)


def receipt(*results: CommandId, n: int = 0) -> Receipt:
    return Receipt(enrolment=3, epoch=EPOCH, n=n, results=results, rev=1, server_time=1)


def test_each_accepted_command_has_a_place_for_its_result() -> None:
    box = SMALL.reserve(A).reserve(B).reserve(A)
    assert not box.has_room
    box = box.ended(A).ended(B)
    assert (box.results, box.open, box.has_room, box.used) == ((A, B), frozenset(), False, 1.0)
    with pytest.raises(ValueError, match="no place for its result"):
        box.reserve(C)
    assert box.receipted(receipt(A)).has_room


def test_a_refusal_is_kept_beside_until_there_is_no_room_even_for_that() -> None:
    box = SMALL.reserve(A).reserve(B)
    assert box.can_refuse
    box = box.ended(C).ended(C)
    assert (box.refusals, box.can_refuse) == ((C,), False)
    with pytest.raises(ValueError, match="ask can_refuse"):
        box.ended(D)
    assert box.receipted(receipt(C)).can_refuse


def test_metrics_go_first_then_the_oldest_events_and_alarms_last() -> None:
    box = SMALL.add_metrics(kept(1)).add_metrics(kept(2))
    box = box.add_event(kept(3, alarm=True)).add_event(kept(4))
    assert [len(box.metrics), len(box.events), box.dropped_metrics] == [2, 2, 0]
    box = box.add_event(kept(5))
    assert [one.stamp.n for one in box.metrics] == [2]
    box = box.add_event(kept(6)).add_event(kept(7))
    assert (box.metrics, [one.stamp.n for one in box.events]) == ((), [3, 5, 6, 7])
    assert (box.dropped_metrics, box.dropped_events) == (2, 1)


def test_metrics_push_nothing_else_out() -> None:
    box = SMALL.add_event(kept(1, 190)).add_metrics(kept(2, 20))
    assert (len(box.events), len(box.metrics), box.dropped_metrics) == (1, 0, 1)
    old = SMALL.add_metrics(kept(1)).add_metrics(kept(2)).add_metrics(kept(3))
    assert [one.stamp.n for one in old.metrics] == [2, 3]


def test_only_a_receipt_proves_delivery() -> None:
    box = SMALL.add_event(kept(4)).add_event(kept(5)).add_event(kept(1, 9, epoch=Epoch(43, "0" * 16)))
    assert [one.stamp.n for one in box.receipted(receipt(n=4)).events] == [5, 1]
    assert box.receipted(receipt(n=3)).events == box.events
    other = receipt(n=9).model_copy(update={"epoch": Epoch(42, "0" * 16)})
    assert box.receipted(other).events == box.events


def test_measurements_are_gone_when_the_broker_has_them() -> None:
    box = SMALL.add_metrics(kept(1)).add_metrics(kept(2))
    assert [one.stamp.n for one in box.metrics_sent(kept(1).stamp).metrics] == [2]
