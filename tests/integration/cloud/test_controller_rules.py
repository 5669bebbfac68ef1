"""When a controller sends what: by time, by birth, by what people ask for, and never more than a box can hold."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kits.controller import Bed, Faults, NewBed
from kits.modelbox import CHAIN, ROOT, SIGNING

from edgegpu_cloud.controller.unit_of_work import MOST_UNDER_WAY
from edgegpu_sync.errors import RefusalReason
from edgegpu_sync.keys import key_id, next_link, public_text
from edgegpu_sync.messages.downlink import Receipt
from edgegpu_sync.messages.readers import read
from edgegpu_sync.messages.spec import PolicyItem, Spec
from edgegpu_sync.states import CommandState, ResultCode
from edgegpu_sync.topics import TopicKind, parse


def with_policy(spec: Spec) -> Spec:
    return spec.model_copy(update={"policy": PolicyItem(rev=0, policy="spread")})


def kinds(bed: Bed) -> list[TopicKind]:
    return [parse(topic).kind for topic, _ in bed.network.seen_down]


@pytest.fixture
def bed(new_bed: NewBed) -> Bed:
    bed = new_bed()
    bed.connect_all()
    bed.settle(2)
    bed.network.seen_down.clear()
    return bed


def test_a_command_to_a_box_that_is_away_waits_for_its_birth(bed: Bed) -> None:
    bed.network.cut_off(bed.devices[0])
    bed.settle(2)
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=3600)
    bed.settle(600, step_s=20)
    assert kinds(bed) == []

    bed.network.connect(bed.box())
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    assert bed.state(id_) is CommandState.SUCCEEDED


def test_one_that_is_too_late_expires_and_is_not_done(bed: Bed) -> None:
    bed.network.cut_off(bed.devices[0])
    bed.settle(2)
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=60)
    bed.settle(100, step_s=10)
    assert bed.fleet.one_command(id_).overdue

    bed.network.connect(bed.box())
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    assert (bed.state(id_), bed.fleet.one_command(id_).code) == (CommandState.EXPIRED, ResultCode.TOO_LATE)
    assert not bed.world.done


def test_a_command_that_was_lost_is_asked_about_at_the_end_of_its_time(bed: Bed) -> None:
    bed.network.faults = Faults(lose=1.0)
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=15)
    bed.settle(13)
    bed.network.faults = Faults()
    bed.settle(5)
    assert bed.state(id_) is CommandState.EXPIRED


def test_a_cancelled_command_expires_where_it_has_not_begun(bed: Bed) -> None:
    bed.network.cut_off(bed.devices[0])
    bed.settle(1)
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=3600)
    bed.fleet.cancel(id_[:20])
    bed.network.connect(bed.box())
    bed.until(lambda: bed.fleet.one_command(id_).ended)

    assert bed.state(id_) is CommandState.EXPIRED
    assert bed.fleet.one_command(id_).cancelled
    assert not bed.world.done


def test_a_controller_that_starts_signs_nothing_before_it_knows_how_old_the_birth_is(bed: Bed) -> None:
    bed.box().outgoing.clear()
    bed.network.faults = Faults(delay=1.0)
    bed.restart()
    bed.fleet.command("box-1", "k3s.restart", {}, wait_s=3600)
    bed.settle(20)
    assert set(kinds(bed)) == {TopicKind.RECEIPT}
    bed.network.faults = Faults()
    bed.settle(5)
    assert TopicKind.COMMAND in kinds(bed)


def test_a_box_that_is_behind_is_asked_and_told_again(bed: Bed) -> None:
    bed.network.faults = Faults(lose=1.0)
    bed.fleet.set_spec("box-1", with_policy)
    bed.settle(20)
    bed.network.faults = Faults()
    assert kinds(bed).count(TopicKind.DESIRED) == 1
    bed.settle(15)

    assert kinds(bed).count(TopicKind.DESIRED) == 2
    assert bed.fleet.box("box-1").applied_rev == 1
    bed.settle(300, step_s=10)
    assert kinds(bed).count(TopicKind.DESIRED) == 2


def test_desired_documents_go_out_at_each_birth(bed: Bed) -> None:
    bed.fleet.set_spec("box-1", with_policy)
    bed.settle(2)
    for _ in range(3):
        bed.network.connect(bed.box())
        bed.settle(2)
    assert kinds(bed).count(TopicKind.DESIRED) == 4


def test_each_birth_and_each_reported_state_is_answered_though_nothing_is_open(bed: Bed) -> None:
    for _ in range(3):
        bed.box().say_reported()
        bed.settle(2)
    assert kinds(bed) == [TopicKind.RECEIPT] * 3
    bed.network.seen_down.clear()
    bed.box().say_birth()
    bed.settle(2)
    assert TopicKind.RECEIPT in kinds(bed)


def test_no_more_than_an_outbox_can_hold_is_under_way(bed: Bed) -> None:
    bed.network.faults = Faults(delay=1.0)
    asked = [bed.fleet.command("box-1", "inventory.refresh", {}, wait_s=3600) for _ in range(MOST_UNDER_WAY + 20)]
    bed.settle(5)
    assert kinds(bed).count(TopicKind.COMMAND) == MOST_UNDER_WAY
    bed.network.faults = Faults()
    bed.until(bed.all_ended)
    assert {bed.state(id_) for id_ in asked} == {CommandState.SUCCEEDED}
    assert [bed.fleet.one_command(id_).seq for id_ in asked] == list(range(1, len(asked) + 1))


def test_no_receipt_names_a_stamp_above_that_of_the_last_stored_event(bed: Bed) -> None:
    bed.box().say_reported()
    bed.settle(2)
    bed.box().happen("first")
    (event,) = bed.box().events
    bed.settle(2)
    bed.box().say_reported()
    bed.settle(2)
    bodies = [read(TopicKind.RECEIPT, payload.partition(b"\n")[2]) for _, payload in bed.network.seen_down]
    upto = [(one.epoch.count, one.n) for one in bodies if isinstance(one, Receipt)]
    stored = (event.stamp.epoch.count, event.stamp.n)
    assert (upto[0], upto[-1]) == ((0, 0), stored)
    assert set(upto) == {(0, 0), stored}


def test_events_are_stored_once_and_kept_until_the_receipt(bed: Bed) -> None:
    bed.box().happen("first")
    bed.network.faults = Faults(double=1.0)
    bed.settle(5)
    bed.network.faults = Faults(lose=1.0)
    bed.box().happen("second", level="alarm")
    bed.settle(5)
    assert [event.text for event in bed.box().events] == ["second"]
    bed.network.connect(bed.box())
    bed.network.faults = Faults()
    bed.settle(60)

    assert [event.text for event in bed.fleet.events("box-1")] == ["second", "first"]
    assert bed.box().events == []
    assert [alarm.text for alarm in bed.fleet.alarms()] == ["second"]


def test_a_new_key_set_reaches_boxes_that_are_there_and_those_that_come(new_bed: NewBed) -> None:
    bed = new_bed(boxes=2)
    bed.network.connect(bed.box(bed.devices[0]))
    bed.settle(2)
    other = public_text(Ed25519PrivateKey.from_private_bytes(b"o" * 32))
    with bed.store.write() as tx:
        tx.notes.add_link(2, next_link(ROOT, keys=[public_text(SIGNING), other], before=CHAIN[0]))
        tx.notes.changed()
    bed.settle(2)
    assert bed.box(bed.devices[0]).ring.version == 2
    bed.network.connect(bed.box(bed.devices[1]))
    bed.settle(2)
    assert bed.box(bed.devices[1]).ring.version == 2
    assert RefusalReason.FORGED not in bed.box().refused


def test_the_time_that_boxes_are_told_never_goes_back(bed: Bed) -> None:
    bed.settle(5)
    told = bed.box().server_time
    assert told > 1_790_000_000
    bed.world.back_s = 86_400
    bed.restart()
    id_ = bed.fleet.command("box-1", "inventory.refresh", {}, wait_s=600)
    bed.settle(10)
    assert bed.state(id_) is CommandState.SUCCEEDED
    with bed.store.read() as tx:
        assert tx.leases.newest_server_time() >= told


@pytest.mark.parametrize("back_s", [-7200, 7200])
def test_a_clock_that_is_set_gives_no_command_more_time_than_it_was_given(bed: Bed, back_s: float) -> None:
    bed.settle(30)
    bed.world.back_s = back_s
    bed.settle(5)
    bed.network.faults = Faults(delay=1.0)
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=20)
    bed.settle(60, step_s=5)
    assert bed.network.down
    bed.network.faults = Faults()
    bed.settle(10)
    assert bed.state(id_) is CommandState.EXPIRED
    assert not bed.world.done


def test_when_the_link_is_down_nothing_is_signed(bed: Bed) -> None:
    bed.network.detach()
    id_ = bed.fleet.command("box-1", "k3s.restart", {}, wait_s=600)
    bed.settle(30)
    assert bed.fleet.one_command(id_).tries == 0
    bed.network.attach(bed.controller)
    bed.until(lambda: bed.fleet.one_command(id_).ended)
    assert bed.state(id_) is CommandState.SUCCEEDED


def test_what_the_link_cannot_take_at_once_waits(new_bed: NewBed) -> None:
    bed = new_bed(boxes=5)
    bed.network.window = 1
    bed.connect_all()
    for number in range(1, 6):
        bed.fleet.command(f"box-{number}", "inventory.refresh", {}, wait_s=600)
    bed.until(bed.all_ended)
    bed.settle(20)
    assert not bed.controller.outgoing


def test_another_key_is_signed_with_when_the_boxes_are_told_of_it(bed: Bed) -> None:
    new = Ed25519PrivateKey.generate()
    bed.network.window = 0  # the broker takes nothing, so that all stands in one row
    first = bed.fleet.command("box-1", "plugin.restart", {})
    bed.settle(1)
    with bed.store.write() as tx:  # as `keys rotate --drop-old` does
        tx.notes.add_link(2, next_link(ROOT, keys=[public_text(new)], before=CHAIN[-1]))
        tx.notes.changed()
    bed.signing = new
    bed.settle(1)
    second = bed.fleet.command("box-1", "k3s.restart", {})
    bed.settle(1)
    bed.network.window = None
    bed.until(lambda: bed.fleet.one_command(first).ended and bed.fleet.one_command(second).ended)
    assert [bed.state(first), bed.state(second)] == [CommandState.SUCCEEDED] * 2
    assert RefusalReason.UNKNOWN_KEY not in bed.box().refused, (
        "nothing was signed with a key that the box did not obey there"
    )
    keys = [payload.split()[1].decode() for _, payload in bed.network.seen_down if payload.startswith(b"s1 ")]
    assert list(dict.fromkeys(keys)) == [key_id(public_text(SIGNING)), key_id(public_text(new))]


def test_a_will_and_what_the_broker_kept_are_no_word_of_the_box(bed: Bed) -> None:
    device = bed.devices[0]
    bed.settle(60)
    heard_s = bed.fleet.box("box-1").seen_at_s
    bed.world.now_s += 300  # it lost its power; the broker finds out
    bed.network.cut_off(device)
    bed.settle(2)
    view = bed.fleet.box("box-1")
    assert (view.online, view.left, view.seen_at_s) == (False, "lost", heard_s)
    bed.network.connect(bed.box())
    bed.settle(2)
    assert bed.fleet.box("box-1").seen_at_s > heard_s
