"""What the broker has dropped is an alarm: by its own counter, which begins anew with the broker."""

from pathlib import Path

from kits.controller import Bed

from edgegpu_cloud.controller.broker_drops import TOPIC, DropCounter
from edgegpu_sync.link.events import MessageArrived


def test_a_counter_that_rises_is_told_and_one_that_begins_anew_is_not() -> None:
    drops = DropCounter()
    told = [drops.rose(payload) for payload in (b"7", b"7", b"9", b"0", b"3", b"what", b"")]
    assert told == [0, 0, 2, 0, 3, 0, 0]


def test_people_are_told_once_with_the_newest_count(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.connect_all()
    for mid, count in enumerate((b"0", b"5", b"5", b"8"), 1_000):
        bed.controller.inbox.put(
            MessageArrived(topic=TOPIC, payload=count, retained=True, mid=mid, connection=bed.network.connection)
        )
        bed.settle(1)
    (alarm,) = bed.fleet.alarms()
    assert (alarm.kind, alarm.times) == ("broker.DROPPED", 2)
    assert alarm.text.startswith("the broker has dropped 3 messages")
