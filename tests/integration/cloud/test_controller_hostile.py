"""What is forged, re-signed, replayed, redirected or broken changes nothing in the store, and stops nobody."""

import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kits.controller import Bed, NewBed
from kits.modelbox import ModelBox
from kits.storeschema import rows

from edgegpu_cloud.controller.ingest import FLOOD_MESSAGES
from edgegpu_cloud.store.notes import FLOOD
from edgegpu_sync.errors import RefusalReason
from edgegpu_sync.ids import device_id
from edgegpu_sync.link.events import MessageArrived
from edgegpu_sync.messages.telemetry import TRANSACTION
from edgegpu_sync.signing import Signer
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import parse


def dump(bed: Bed) -> list[str]:
    """Return all rows of the store, each behind its table's name, but the time that boxes are told, and counts."""
    found = rows(bed.url).items()
    every = sorted(f"{table}: {row}" for table, of in found if table != "server_times" for row in of)
    return [row for row in every if not row.startswith("meta: {'key': 'messages/")]  # replays are counted as well


class Wiretap:
    """A taken-over broker: it has seen everything, and can send anything to the controller."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.seen: list[tuple[str, bytes]] = []
        hand = bed.network._hand  # noqa: SLF001  (the broker is ours)

        def listen(topic: str, payload: bytes, *, retained: bool) -> None:
            self.seen.append((topic, payload))
            hand(topic, payload, retained=retained)

        bed.network._hand = listen  # type: ignore[method-assign]  # noqa: SLF001

    def send(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        self.bed.controller.inbox.put(MessageArrived(topic, payload, retained, 0, 1))
        self.bed.controller.step()


@pytest.fixture
def tapped(new_bed: NewBed) -> Wiretap:
    bed = new_bed(boxes=2)
    wire = Wiretap(bed)
    bed.connect_all()
    bed.settle(2)
    bed.fleet.install("box-1")
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=600)
    bed.box().happen("card 1 fell off the bus")
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    bed.network.connect(bed.box())
    bed.settle(5)
    return wire


def test_replays_change_nothing(tapped: Wiretap) -> None:
    before = dump(tapped.bed)
    assert len(tapped.seen) > 15
    for retained in (False, True):
        for topic, payload in [*tapped.seen, *reversed(tapped.seen)]:
            tapped.send(topic, payload, retained=retained)
    assert dump(tapped.bed) == before
    assert tapped.bed.fleet.alarms() == []


def test_an_event_without_a_report_is_kept_as_none(new_bed: NewBed) -> None:
    bed = new_bed(boxes=1)
    bed.connect_all()
    bed.box().happen("no report", kind=TRANSACTION)
    bed.until(lambda: bool(bed.fleet.events(bed.devices[0])))
    assert [(one.kind, one.text) for one in bed.fleet.events(bed.devices[0])] == [("machine.note", "no report")]
    assert bed.fleet.changes(bed.devices[0]) == []


def test_redirected_and_re_signed_messages_change_nothing(tapped: Wiretap) -> None:
    before = dump(tapped.bed)
    mallory = Signer.of(Ed25519PrivateKey.from_private_bytes(b"m" * 32))
    one, two = tapped.bed.devices
    for topic, payload in tapped.seen:
        body = payload.partition(b"\n")[2]
        tapped.send(topic.replace(one, two) if one in topic else topic.replace(two, one), payload)
        tapped.send(topic, mallory.seal(parse(topic), body))
        tapped.send(topic.replace("up/reported", "up/health").replace("up/status", "up/reported"), payload[:-1])
        tapped.send(topic.replace("/up/", "/down/"), payload)
        tapped.send(topic.replace(one, "zzzzzzzzzzzzzzzz"), payload)
    assert dump(tapped.bed) == before
    refused = tapped.bed.controller.ingest.counts
    assert refused[two, RefusalReason.UNKNOWN_KEY] > 5
    assert refused["", "UnknownBox"] > 5
    assert refused["", RefusalReason.UNKNOWN_TOPIC] >= 0


def test_broken_messages_change_nothing_and_the_controller_lives(tapped: Wiretap) -> None:
    before = dump(tapped.bed)
    rng = random.Random(5)
    signer = tapped.bed.box().signer
    for _ in range(400):
        topic, payload = rng.choice(tapped.seen)
        data = bytearray(payload)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        tapped.send(topic, bytes(data[: rng.randrange(1, len(data) + 1)]))
        if parse(topic).device == tapped.bed.devices[0]:
            broken = b'{"v":1,"enrolment":%d' % rng.randrange(5) + b"}" * rng.randrange(2)
            tapped.send(topic, signer.seal(parse(topic), broken))
    tapped.send("edgegpu/v1/#", b"")
    tapped.send(str(tapped.seen[0][0]), b"x" * 70_000)
    assert dump(tapped.bed) == before
    id_ = tapped.bed.fleet.command("box-1", "k3s.restart", {}, wait_s=600)
    tapped.bed.until(lambda: tapped.bed.fleet.one_command(id_).ended)
    assert tapped.bed.state(id_) is CommandState.SUCCEEDED


def test_a_revoked_box_is_ignored_and_nothing_is_signed_for_it(tapped: Wiretap) -> None:
    bed = tapped.bed
    waiting = bed.fleet.command("box-2", "k3s.restart", {}, wait_s=600)
    bed.fleet.revoke("box-2")
    bed.network.down.clear()
    bed.network.seen_down.clear()
    before = dump(bed)

    bed.network.connect(bed.box(bed.devices[1]))
    bed.box(bed.devices[1]).happen("I am still here")
    bed.settle(40)
    bed.restart()
    bed.settle(10)

    assert [topic for topic, _ in bed.network.seen_down if bed.devices[1] in topic] == []
    only_two = [line for line in before if bed.devices[1] in line]
    assert [line for line in dump(bed) if bed.devices[1] in line] == only_two
    assert (bed.state(waiting), bed.fleet.one_command(waiting).code) == (CommandState.UNKNOWN, "REVOKED")
    assert bed.controller.ingest.counts["", "UnknownBox"] > 0


def test_a_box_that_sends_more_than_a_box_needs_is_named_whatever_it_sends(tapped: Wiretap) -> None:
    bed, (loud, quiet) = tapped.bed, tapped.bed.devices[:2]
    bed.settle(61, step_s=1)
    for number, device in ((FLOOD_MESSAGES + 1, loud), (FLOOD_MESSAGES // 100, quiet)):
        bed.network.up += [(f"edgegpu/v1/{device}/up/health", b"x", False)] * number
    bed.settle(61, step_s=1)
    alarms = {(one.kind, one.device): one.text for one in bed.fleet.alarms()}
    assert [device for kind, device in alarms if kind == FLOOD] == [loud]
    assert alarms[FLOOD, loud].startswith("the box sent 6")
    id_ = bed.fleet.command("box-2", "k3s.restart", {}, wait_s=600)
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    assert bed.state(id_) is CommandState.SUCCEEDED


def test_a_copy_of_a_box_is_kept_out_and_the_box_goes_on(tapped: Wiretap) -> None:
    bed = tapped.bed
    copy = ModelBox(bed.world, bed.devices[0], instance="c" * 64)
    copy.guard = bed.box().guard
    rows = [line for line in dump(bed) if line.startswith("latest: ")]

    copy.born()
    copy.happen("I am the copy")
    copy.say_reported()
    for topic, payload, _ in copy.outgoing:
        tapped.send(topic, payload)

    assert [alarm.kind for alarm in bed.fleet.alarms()] == ["CLONED"]
    assert [line for line in dump(bed) if line.startswith("latest: ")] == rows
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=600)
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    assert bed.world.done[bed.devices[0], id_] == 1


def test_a_journal_that_was_put_back_is_an_alarm(tapped: Wiretap) -> None:
    bed = tapped.bed
    box = bed.box()
    old = ModelBox(bed.world, box.device)
    old.rng = random.Random("another life")
    old.born()
    for topic, payload, _ in old.outgoing:
        tapped.send(topic, payload)
    assert [alarm.kind for alarm in bed.fleet.alarms()] == ["OLD_EPOCH"]


def test_unknown_boxes_leave_no_trace(tapped: Wiretap) -> None:
    before = dump(tapped.bed)
    stranger = ModelBox(tapped.bed.world, device_id("strangerstranger"))
    stranger.born()
    for topic, payload, _ in stranger.outgoing:
        tapped.send(topic, payload)
    assert dump(tapped.bed) == before
