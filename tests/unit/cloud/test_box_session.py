"""One box and what it says: whose words count for a command, and what a receipt names."""

from dataclasses import replace

import pytest
from kits.sync import EPOCH, ID, RESTART, birth, result

from edgegpu_cloud.controller.box_session import BoxSession
from edgegpu_cloud.controller.rules import events_upto
from edgegpu_cloud.store.records import BoxRecord, Latest, StoredCommand
from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.ids import device_id, op_name
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.messages.telemetry import Alloc, PendingPods
from edgegpu_sync.messages.uplink import CommandResult
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import PlainTopic, ResultTopic, TopicKind

DEVICE = device_id("abcdefgh01234567")
NOW_S = 500.0


def case(*, ended: bool = False) -> BoxSession:
    """A box of enrolment 3 with one restart of k3s, which it was told of, or has ended."""
    sequence = CommandSequence(enrolment=3, next_seq=119, rev=12).on_birth(birth(), now_s=NOW_S, live=True)
    tracked = TrackedCommand(id=ID, op=RESTART, args={}, due_at_s=1_000.0, seq=118, state=CommandState.RUNNING)
    if ended:
        tracked = replace(tracked, state=CommandState.SUCCEEDED, stamp=Stamp(enrolment=3, epoch=EPOCH, n=9))
    command = StoredCommand(device=DEVICE, tracked=tracked, by="a person", at_s=NOW_S)
    box = BoxRecord(device=DEVICE, name="box-1", public="", sequence=sequence)
    return BoxSession(box=box, now_s=NOW_S, latest={}, commands={ID: command})


def hear(of: BoxSession, message: CommandResult) -> None:
    of.take(PlainTopic(DEVICE, TopicKind.RESULT), message, live=True)


@pytest.mark.parametrize("older", [False, True])
def test_the_result_of_a_command_is_taken_and_receipted(*, older: bool) -> None:
    made, message = case(), result(CommandState.SUCCEEDED)
    if older:  # its id is in the topic alone
        made.take(ResultTopic(DEVICE, ID), message.model_copy(update={"id": None}), live=True)
    else:
        hear(made, message)
    assert made.commands[ID].tracked.state is CommandState.SUCCEEDED
    assert made.receipts == [ID]


def test_a_result_that_names_no_command_is_refused() -> None:
    made = case()
    with pytest.raises(MessageRefusedError, match="names no command") as refused:
        hear(made, result(CommandState.SUCCEEDED).model_copy(update={"id": None}))
    assert (refused.value.why, made.receipts, made.answered) == (RefusalReason.MALFORMED, [], {})


@pytest.mark.parametrize("ended", [False, True])
def test_a_result_that_names_another_op_is_refused_and_not_receipted(*, ended: bool) -> None:
    made = case(ended=ended)
    before = dict(made.commands)
    with pytest.raises(MessageRefusedError, match=r"is k3s\.restart, not plugin\.restart") as refused:
        hear(made, result(CommandState.FAILED).model_copy(update={"op": op_name("plugin.restart"), "n": 99}))
    assert refused.value.why is RefusalReason.MALFORMED
    assert (made.commands, made.receipts, made.answered) == (before, [], {})


@pytest.mark.parametrize(("enrolment", "receipts"), [(2, []), (3, [ID]), (4, [])])
def test_what_is_stored_is_receipted_again_for_its_own_enrolment_alone(enrolment: int, receipts: list[str]) -> None:
    made = case(ended=True)
    with pytest.raises(MessageRefusedError):
        hear(made, result(CommandState.SUCCEEDED).model_copy(update={"enrolment": enrolment, "n": 9}))
    assert made.receipts == receipts


@pytest.mark.parametrize(("enrolment", "n"), [(3, 7), (2, 0)])
def test_a_receipt_names_no_event_of_another_enrolment(enrolment: int, n: int) -> None:
    stamp = Stamp(enrolment=enrolment, epoch=EPOCH, n=7)
    event = Latest(device=DEVICE, kind=TopicKind.EVENT, stamp=stamp, at_s=NOW_S, body={})
    upto = events_upto(case().box, event)
    assert (upto.enrolment, upto.n) == (3, n)


def alloc(n: int, *, base: int | None = None, pending: PendingPods | None = None) -> Alloc:
    return Alloc(enrolment=3, epoch=EPOCH, n=n, base=base, pods={}, pending=pending)


def test_who_waits_stays_with_a_difference_and_goes_with_a_whole_that_does_not_say_it() -> None:
    made, waits = case(), PendingPods(cluster=True, more=2)
    for message, kept in (
        (alloc(20, pending=waits), 2),
        (alloc(21, base=20), 2),
        (alloc(22, base=21, pending=PendingPods(cluster=True)), 0),
        (alloc(23), None),
    ):
        made.take(PlainTopic(DEVICE, TopicKind.ALLOC), message, live=True)
        pending = made.latest[TopicKind.ALLOC].body["pending"]
        assert (None if pending is None else pending["more"]) == kept
