"""Births and wills, epochs, keys, reported state, events: what a worker says of itself, and when."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from kits.sync import limits
from kits.worker import SMALL, Box, Wire, fast_folder, wired
from kits.workercontroller import RESTART, Controller
from kits.workerworld import World

from edgegpu_sync.errors import RefusalReason
from edgegpu_sync.messages.readers import read
from edgegpu_sync.messages.spec import Sharing, Spec
from edgegpu_sync.messages.telemetry import BoxHealth, Event
from edgegpu_sync.messages.uplink import Birth, CommandNotTaken, CommandResult, Goodbye, ItemState, LastWill
from edgegpu_sync.topics import TopicKind, parse

DAY_S = 86_400.0


@pytest.fixture
def folder() -> Iterator[Path]:
    with fast_folder() as path:
        yield path


@pytest.fixture
def wire(folder: Path) -> Iterator[Wire]:
    wire = wired(folder)
    yield wire
    wire.box.crash()


def sent(box: Box, kind: TopicKind) -> list[object]:
    """Return what was published of a kind, and take it off the link."""
    found: list[object] = [
        read(kind, payload[101 + 6 :]) for topic, payload in box.link.sent if parse(topic).kind is kind
    ]
    box.link.sent = [one for one in box.link.sent if parse(one[0]).kind is not kind]
    return found


def test_each_try_to_connect_is_an_epoch_and_no_will_stands_above_a_birth(folder: Path) -> None:
    box = Box(folder).start()
    wills = [box.worker.will() for _ in range(3)]  # two tries failed after the broker had taken the will
    bodies = [read(TopicKind.STATUS, payload[107:]) for _, payload in (will for will in wills if will)]
    assert [one.epoch.count for one in bodies if isinstance(one, LastWill)] == [2, 3, 4]
    will = box.connect()
    (birth,) = sent(box, TopicKind.STATUS)
    last = read(TopicKind.STATUS, will[107:])
    assert isinstance(birth, Birth)
    assert isinstance(last, LastWill)
    assert (birth.epoch, birth.n, last.n) == (last.epoch, 1, 2)
    box.crash()


def test_the_epoch_rises_over_a_kill(folder: Path) -> None:
    box = Box(folder).start()
    box.connect()
    box.crash()
    box.start()
    box.connect()
    (birth,) = sent(box, TopicKind.STATUS)
    assert isinstance(birth, Birth)
    assert birth.epoch.count == 4  # start, connection, start, connection
    box.crash()


def test_nothing_goes_before_the_birth(folder: Path) -> None:
    box = Box(folder).start()
    box.worker.send_event("agent.started", "it is there")
    box.connect()
    box.settle()
    kinds = [parse(topic).kind for topic, _ in box.link.sent]
    assert kinds[0] is TopicKind.STATUS
    assert set(kinds) == {TopicKind.STATUS, TopicKind.REPORTED, TopicKind.EVENT, TopicKind.HEALTH}
    box.crash()


def test_a_birth_that_was_missed_is_sent_again(wire: Wire) -> None:
    wire.down.append(wire.controller.receipt(ask=("status", "nothing.known")))
    topic, payload = wire.down.pop()
    wire.box.arrive(topic, payload)
    (birth,) = sent(wire.box, TopicKind.STATUS)
    assert isinstance(birth, Birth)
    assert birth.n > 2


def test_reported_is_said_every_ten_minutes_with_jitter_and_when_asked_of_many_within_five_seconds(wire: Wire) -> None:
    box = wire.box
    sent(box, TopicKind.REPORTED)
    times = []
    for _ in range(3_600):
        box.wait(1)
        times += [box.world.clock_s for _ in sent(box, TopicKind.REPORTED)]
    gaps = [after - before for before, after in pairwise(times)]
    assert all(535 <= gap <= 665 for gap in gaps)
    assert len(set(gaps)) > 1
    box.arrive(*wire.controller.receipt(ask=("reported",), spread=True))
    assert sent(box, TopicKind.REPORTED) == []
    box.wait(5)
    assert len(sent(box, TopicKind.REPORTED)) == 1


def test_desired_is_settled_item_by_item_and_reported(wire: Wire) -> None:
    rev = wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=True), app_limits=(limits("ocr", units=90),)))
    wire.down += wire.controller.desired_message()
    wire.exchange()
    reported = wire.controller.reported
    assert reported is not None
    assert (reported.observed_rev, reported.applied_rev) == (rev, rev)
    assert {name: item.state for name, item in reported.items.items()} == {
        "sharing": ItemState.APPLIED,
        "app_limits/default/ocr/main": ItemState.REJECTED,
    }


def test_older_and_other_documents_are_refused(wire: Wire) -> None:
    wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    old = wire.controller.desired_message()
    wire.controller.desire(Spec(sharing=Sharing(rev=2, installed=True)))
    new = wire.controller.desired_message()
    assert wire.controller.desired is not None
    wire.controller.desired = wire.controller.desired.model_copy(update={"spec": {}})
    other = wire.controller.desired_message()
    for message in (*new, *old, *other, *new):
        wire.box.arrive(*message, retained=True)
    assert wire.box.worker.status().refused == {RefusalReason.OLD_REV: 1, RefusalReason.OTHER_SPEC: 1}


def test_events_go_up_one_after_the_other_and_wait_for_their_receipt(wire: Wire) -> None:
    for number in range(5):
        wire.box.worker.send_event("test.event", f"number {number}", level="warning")
    wire.box.settle()
    (first,) = sent(wire.box, TopicKind.EVENT)
    assert isinstance(first, Event)
    wire.box.crash()
    wire.box.start()
    wire.connect()
    wire.exchange()
    assert wire.controller.events == [f"number {number}" for number in range(5)]
    assert wire.box.worker.status().events_waiting == 0


def test_the_controller_is_unseen_while_only_what_it_said_before_comes(wire: Wire) -> None:
    replayed = wire.controller.receipt(ask=("status",))
    wire.box.arrive(*replayed)
    wire.box.disconnect()
    wire.box.wait(500)
    wire.box.connect()
    wire.box.arrive(*replayed)
    assert wire.box.worker.status().controller_unseen_s == 500
    wire.box.arrive(*wire.controller.receipt())
    assert wire.box.worker.status().controller_unseen_s == 0
    assert wire.box.times[-1] > 1_800_000_000


def test_a_time_that_cannot_be_makes_no_later_receipt_an_old_one(wire: Wire) -> None:
    """One receipt signed by a stolen key, or by a controller whose clock stood in 2099, counted for ever."""
    wire.exchange()
    wire.box.most_time = 1_900_000_000
    before = len(sent(wire.box, TopicKind.STATUS))
    wire.box.arrive(*wire.controller.receipt(ask=("status",), ahead_s=2_000_000_000))
    assert len(sent(wire.box, TopicKind.STATUS)) == before
    wire.box.crash()
    wire.box.start()
    wire.connect()
    wire.exchange()
    before = len(sent(wire.box, TopicKind.STATUS))
    wire.box.arrive(*wire.controller.receipt(ask=("status",)))
    assert len(sent(wire.box, TopicKind.STATUS)) > before
    assert wire.box.worker.status().server_time < 1_900_000_000


def test_a_receipt_of_another_enrolment_is_refused(wire: Wire) -> None:
    wire.controller.sequence = replace(wire.controller.sequence, enrolment=2)
    wire.box.arrive(*wire.controller.receipt())
    wire.controller.sequence = replace(wire.controller.sequence, enrolment=9)
    wire.box.arrive(*wire.controller.receipt())
    assert wire.box.worker.status().refused == {RefusalReason.OLD_ENROLMENT: 1, RefusalReason.NEWER_ENROLMENT: 1}


def test_a_link_that_takes_no_more_is_tried_again(wire: Wire) -> None:
    wire.box.link.room = 0
    id_ = wire.controller.command(RESTART)
    for message in wire.controller.sends():
        wire.box.arrive(*message)
    wire.box.settle()
    assert wire.box.world.restarted_by == {id_: 1}
    wire.box.link.room = 1_000
    wire.pass_time(3)
    assert wire.controller.tracked[id_].ended


def test_what_is_not_taken_says_the_numbers(wire: Wire) -> None:
    wire.controller.command(RESTART)
    stale = wire.controller.sends()
    wire.box.disconnect()
    wire.box.connect()
    wire.box.link.sent.clear()
    wire.box.arrive(*stale[0])
    (answer,) = sent(wire.box, TopicKind.RESULT)
    assert isinstance(answer, CommandNotTaken)
    assert (answer.code, answer.for_seq, answer.seq) == ("STALE_EPOCH", 1, 0)


def test_results_have_one_topic_once_a_receipt_says_that_the_controller_takes_it(wire: Wire) -> None:
    wire.controller.one_result_topic = False
    wire.box.arrive(*wire.controller.receipt())
    id_ = wire.controller.command(RESTART)
    for message in wire.controller.sends():
        wire.box.arrive(*message)
    wire.box.settle()
    assert sent(wire.box, TopicKind.RESULT) == []
    assert {one.id for one in sent(wire.box, TopicKind.RESULT_BY_ID) if isinstance(one, CommandResult)} == {id_}
    wire.controller.one_result_topic = True  # nobody has heard of the end
    wire.box.arrive(*wire.controller.receipt())
    wire.box.settle()
    assert [one.id for one in sent(wire.box, TopicKind.RESULT) if isinstance(one, CommandResult)] == [id_]
    assert sent(wire.box, TopicKind.RESULT_BY_ID) == []


def test_weeks_offline(folder: Path) -> None:
    """Desired state is kept, the outbox is bounded, and every result is delivered on return."""
    wire = wired(folder)
    box, world = wire.box, wire.box.world
    wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    world.ready = False
    ids = [wire.controller.command(RESTART)]
    wire.down += wire.controller.desired_message()
    wire.exchange()
    box.disconnect()
    world.ready = True
    for day in range(21):
        for hour in range(24):
            box.worker.send_event(
                "card.hot", f"day {day} hour {hour} " + "x" * 300, level="alarm" if hour == 3 else "info"
            )
            box.wait(DAY_S / 24)
        if day % 5 == 4:
            box.crash()
            box.start()
    status = box.worker.status()
    assert (status.observed_rev, status.applied_rev, status.results_waiting) == (1, 1, 1)
    assert status.events_waiting * 400 < SMALL.events_bytes + SMALL.metrics_bytes
    assert status.events_dropped > 300
    assert status.controller_unseen_s > 20 * DAY_S
    wire.connect()
    wire.exchange(200)
    assert wire.controller.ends == {ids[0]: [wire.controller.results[ids[0]].state]}
    assert sum("hour 3 " in text for text in wire.controller.events) == 21  # alarms go last
    box.crash()


def test_a_goodbye_says_why(wire: Wire) -> None:
    wire.box.worker.stop("upgrade")
    wire.box.worker.run()
    (bye,) = sent(wire.box, TopicKind.STATUS)
    assert isinstance(bye, Goodbye)
    assert bye.why == "upgrade"
    assert wire.box.worker.will() is not None  # this is its own thread


def test_a_journal_that_was_put_back_is_refused_by_the_controller(folder: Path) -> None:
    world = World()
    box = Box(folder / "old", world).start()
    controller = Controller(world)
    box.connect()
    controller.hear(*box.link.sent[0])
    box.crash()
    other = Box(folder / "new", world).start()
    other.connect()
    other.link.sent.clear()
    other.crash()
    wire = Wire(Box(folder / "new", world).start(), controller)
    controller.sequence = replace(controller.sequence, epoch=replace(controller.sequence.epoch, count=90))  # type: ignore[type-var]
    wire.connect()
    wire.exchange()
    assert controller.refused[RefusalReason.OLD_EPOCH] >= 1
    assert wire.box.worker.status().observed_rev == 0
    wire.box.crash()


def test_a_box_that_has_never_heard_counts_from_its_own_beginning(folder: Path) -> None:
    box = Box(folder)
    box.world.clock_s += 40_000
    box.start()
    assert box.worker.status().controller_unseen_s == 0
    box.wait(90)
    assert box.worker.status().controller_unseen_s == 90
    box.crash()


def test_heard_is_remembered_within_a_boot(wire: Wire) -> None:
    wire.box.arrive(*wire.controller.receipt())
    wire.box.wait(301)
    wire.box.crash()
    wire.box.start()
    assert wire.box.worker.status().controller_unseen_s == 301
    wire.box.crash()
    wire.box.world.reboot()
    wire.box.world.clock_s += 7
    wire.box.start()
    assert wire.box.worker.status().controller_unseen_s == 7


def test_a_journal_that_was_set_aside_is_told_upward_and_on_the_box(wire: Wire) -> None:
    box = wire.box
    box.crash()
    (box.folder / "journal.db").write_bytes(b"no journal" * 1_000)
    box.start()
    assert "enrolled again" in box.worker.status().told
    box.connect()
    box.settle()
    (health,) = sent(box, TopicKind.HEALTH)
    assert isinstance(health, BoxHealth)
    assert (health.state, health.parts[0].name) == ("bad", "journal")
