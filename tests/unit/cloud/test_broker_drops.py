"""What the broker has dropped is an alarm: by its own counter, which begins anew with the broker."""

from pathlib import Path

from kits.controller import Bed
from kits.stores import open_store

from edgegpu_cloud.controller.broker_drops import REFUSED_FILTER, TOPIC, DropCounter
from edgegpu_cloud.store.notes import FLOOD, MOST_ALARMS
from edgegpu_sync.link.events import MessageArrived


def test_a_counter_that_rises_is_told_and_one_that_begins_anew_is_not() -> None:
    drops = DropCounter()
    told = [drops.rose(payload) for payload in (b"7", b"7", b"9", b"0", b"3", b"what", b"")]
    assert told == [0, 0, 2, 0, 3, 0, 0]


def test_what_the_broker_refuses_of_a_box_is_an_alarm_that_names_the_box(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.connect_all()
    device = bed.devices[0]
    topics = ((device, b"142000 7"), (device, b"3 0"), ("nobody", b"1 1"), (device, b"what"), (f"{device}/x", b"1 1"))
    for mid, (name, payload) in enumerate(topics, 1_000):
        topic = REFUSED_FILTER.replace("+", name)
        bed.controller.inbox.put(
            MessageArrived(topic=topic, payload=payload, retained=False, mid=mid, connection=bed.network.connection)
        )
        bed.settle(1)
    (alarm,) = bed.fleet.alarms()
    assert (alarm.kind, alarm.device, alarm.times) == ("broker.FLOOD", device, 2)
    assert alarm.text.startswith("in 10 s the broker refused 3 messages and 0 filters of the box")


def test_a_boxs_own_alarms_hide_no_flood(tmp_path: Path) -> None:
    store = open_store(tmp_path / "controller.db")
    with store.write() as tx:
        for number in range(MOST_ALARMS + 5):
            tx.notes.alarm(f"kind-{number}", device="k3f9x2m7q1w8e5r4", text="x", now_s=1.0)
        tx.notes.alarm(FLOOD, device="k3f9x2m7q1w8e5r4", text="x", now_s=1.0)
        assert FLOOD in {alarm.kind for alarm in tx.notes.alarms()}
    store.close()


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
