"""The controller's side: births, numbers from a backup, and when a command is signed and sent again."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from kits.sync import EPOCH, ID, RESTART, birth, reported, result

from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.messages.uplink import Birth, CommandNotTaken, Reported
from edgegpu_sync.rules.replay_guard import WINDOW
from edgegpu_sync.rules.sequence import CommandSequence, check_stamp
from edgegpu_sync.rules.tracking import QUIET_S, RESEND_S, TrackedCommand, prepare_send
from edgegpu_sync.states import CommandState, ResultCode

BORN = birth()
BOOK = CommandSequence(enrolment=3, next_seq=119, rev=12).on_birth(BORN, now_s=500.0, live=True)
ASKED = TrackedCommand(id=ID, op=RESTART, args={}, due_at_s=1_000.0)


def again(**changes: object) -> Birth:
    return BORN.model_copy(update=changes)


def not_taken(code: str, *, for_seq: int, seq: int = 130) -> CommandNotTaken:
    return CommandNotTaken(
        enrolment=3,
        epoch=EPOCH,
        n=3,
        op=RESTART,
        state="NOT_TAKEN",
        code=code,
        for_seq=for_seq,
        seq=seq,
        floor=117,
        observed_rev=12,
    )


def test_a_birth_brings_the_epoch_and_its_time() -> None:
    assert (BOOK.epoch, BOOK.born_at_s, BOOK.can_sign, BOOK.restored) == (EPOCH, 500.0, True, False)
    assert (BOOK.instance, BOOK.key_set) == (BORN.instance, 4)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (again(epoch=Epoch(41, "0" * 16)), RefusalReason.OLD_EPOCH),
        (again(epoch=Epoch(42, "0" * 16)), RefusalReason.OLD_EPOCH),
        (again(enrolment=2, epoch=Epoch(99, "0" * 16)), RefusalReason.OLD_ENROLMENT),
        (again(instance="cd" * 32, epoch=Epoch(43, "0" * 16)), RefusalReason.CLONED),
    ],
)
def test_a_clone_and_a_journal_that_was_put_back_stay_off(message: Birth, why: RefusalReason) -> None:
    with pytest.raises(MessageRefusedError) as refused:
        BOOK.on_birth(message, now_s=600.0, live=True)
    assert refused.value.why is why


def test_a_retained_birth_has_no_age_until_a_live_word() -> None:
    sequence = replace(BOOK, born_at_s=None).on_birth(BORN, now_s=9_000.0, live=False)
    assert not sequence.can_sign
    word = reported().model_copy(update={"age_s": 8_500, "observed_hash": ""})
    assert sequence.on_uplink(word, now_s=9_000.0).born_at_s == 500.0
    assert BOOK.on_uplink(word.model_copy(update={"age_s": 5}), now_s=9_000.0).born_at_s == 500.0
    assert sequence.on_uplink(word.model_copy(update={"epoch": Epoch(41, "0" * 16)}), now_s=1.0) == sequence


def test_a_box_that_is_ahead_means_a_backup_and_waits_for_a_person() -> None:
    ahead = BOOK.on_uplink(not_taken("BEHIND", for_seq=119, seq=130), now_s=600.0)
    assert (ahead.next_seq, ahead.restored, ahead.can_sign) == (131, True, False)
    assert ahead.confirmed().can_sign
    rev = CommandSequence(enrolment=3, next_seq=119, rev=11).on_birth(BORN, now_s=0.0, live=True)
    assert (rev.rev, rev.restored) == (12, True)


def test_the_same_revision_with_another_text_means_a_backup_too() -> None:
    sequence = replace(BOOK, digest="1" * 16)
    same, other = (reported().model_copy(update={"observed_hash": one * 16}) for one in "12")
    assert not sequence.on_uplink(same, now_s=600.0).restored
    assert sequence.on_uplink(other, now_s=600.0).restored
    assert sequence.confirmed().give_rev("3" * 16).rev == 13


def test_an_enrolment_that_the_store_does_not_know_was_given_after_its_backup() -> None:
    sequence = BOOK.on_birth(again(enrolment=4, instance="cd" * 32, epoch=Epoch(1, "0" * 16)), now_s=0.0, live=True)
    assert (sequence.enrolment, sequence.restored, sequence.epoch) == (4, True, Epoch(1, "0" * 16))


def test_a_box_imaged_anew_begins_with_new_numbers_and_the_same_revision() -> None:
    sequence = BOOK.reimaged(4, "cd" * 32)
    assert (sequence.next_seq, sequence.epoch, sequence.rev, sequence.can_sign) == (1, None, 12, False)
    with pytest.raises(ValueError, match="cannot enrol with number 3"):
        BOOK.reimaged(3, "")


JUMP, HIGHEST = 2**24, 2**48
"""What docs/mqtt-api.md promises about numbers of a box that are above what is known."""


def said(message: Reported | CommandNotTaken) -> Callable[[CommandSequence, str, int], CommandSequence]:
    """Return how a sequence takes a number of this message."""
    return lambda sequence, name, number: sequence.on_uplink(message.model_copy(update={name: number}), now_s=600.0)


def born(sequence: CommandSequence, name: str, number: int) -> CommandSequence:
    new = {"epoch": Epoch(number, "0" * 16)} if name == "epoch" else {name: number}
    return sequence.on_birth(again(**new), now_s=600.0, live=True)


def known(sequence: CommandSequence, name: str) -> int:
    numbers = {
        "seq": sequence.next_seq,
        "observed_rev": sequence.rev,
        "enrolment": sequence.enrolment,
        "key_set": sequence.key_set,
    }
    return numbers.get(name, sequence.epoch.count if sequence.epoch is not None else 0)


FIELDS = {"seq": "next_seq", "observed_rev": "rev"}
"""What a sequence calls a number of a message where its name is another."""


def knowing(name: str, number: int) -> CommandSequence:
    new: dict[str, Any] = {FIELDS.get(name, name): Epoch(number, "1" * 16) if name == "epoch" else number}
    return replace(BOOK, **new)


BOUNDED = [
    *((born, name) for name in ("enrolment", "epoch", "seq", "observed_rev", "key_set")),
    *((said(word), name) for word in (reported(), not_taken("BEHIND", for_seq=0)) for name in ("seq", "observed_rev")),
]


@pytest.mark.parametrize(("take", "name"), BOUNDED)
def test_a_number_is_followed_as_far_as_an_honest_box_may_have_come_and_no_further(
    take: Callable[[CommandSequence, str, int], CommandSequence], name: str
) -> None:
    next_one = 1 if name == "seq" else 0  # what is known of seq is the next one
    for sequence, most in ((BOOK, known(BOOK, name) + JUMP), (knowing(name, HIGHEST - JUMP // 2), HIGHEST)):
        before = known(sequence, name)
        after = take(sequence, name, most)
        assert known(after, name) == most + next_one
        with pytest.raises(MessageRefusedError) as refused:
            take(sequence, name, most + 1)
        assert refused.value.why is RefusalReason.OUT_OF_REACH
        assert f"{name} {most + 1}, known is {before}" in str(refused.value)


@pytest.mark.parametrize("name", ["enrolment", "epoch", "seq", "observed_rev", "key_set"])
def test_a_stored_number_is_out_of_reach_where_no_next_one_can_be_sent(name: str) -> None:
    assert knowing(name, 2 * HIGHEST).out_of_reach == ""
    assert knowing(name, 2 * HIGHEST + 1).out_of_reach == f"{FIELDS.get(name, name)} is {2 * HIGHEST + 1}"


@pytest.mark.parametrize(("name", "most"), [("epoch", JUMP), ("seq", 1 + JUMP), ("observed_rev", 12 + JUMP)])
def test_an_unknown_enrolment_may_have_come_as_far_from_its_beginning(name: str, most: int) -> None:
    def taken(number: int) -> CommandSequence:
        new: dict[str, object] = {"epoch": Epoch(number if name == "epoch" else 1, "0" * 16), "enrolment": 4}
        if name != "epoch":
            new[name] = number
        return BOOK.on_birth(again(**new), now_s=600.0, live=True)

    assert known(taken(most), name) == most + (name == "seq")
    with pytest.raises(MessageRefusedError) as refused:
        taken(most + 1)
    assert refused.value.why is RefusalReason.OUT_OF_REACH


def test_floor_and_window() -> None:
    assert BOOK.floor([]) == 118
    assert BOOK.floor([110, 115]) == 109
    assert BOOK.give_seq([]) == (replace(BOOK, next_seq=120), 119)
    assert BOOK.give_seq([119 - WINDOW]) is None
    assert BOOK.give_seq([120 - WINDOW]) is not None


def test_stamps_of_another_enrolment_or_older_ones_are_refused() -> None:
    new, old = result(n=9).stamp, result(n=8).stamp
    check_stamp(new, old, enrolment=3)
    for stamp, last, enrolment, why in (
        (old, new, 3, RefusalReason.OLD_STAMP),
        (new, None, 4, RefusalReason.OLD_ENROLMENT),
        (new, None, 2, RefusalReason.NEWER_ENROLMENT),
    ):
        with pytest.raises(MessageRefusedError) as refused:
            check_stamp(stamp, last, enrolment=enrolment)
        assert refused.value.why is why


def test_a_command_is_signed_for_the_birth_that_is() -> None:
    send = prepare_send(ASKED, BOOK, outstanding=[], now_s=700.0)
    assert send is not None
    assert (send.body.seq, send.body.floor, send.body.epoch, send.body.valid_s) == (119, 118, EPOCH, 500)
    assert (send.sequence.next_seq, send.tracked.seq, send.tracked.tries) == (120, 119, 1)
    same = prepare_send(send.tracked, send.sequence, outstanding=[119], now_s=900.0)
    assert same is not None
    assert (same.body, same.sequence.next_seq) == (send.body, 120)


def test_a_command_that_is_too_late_is_still_asked_about() -> None:
    send = prepare_send(ASKED.cancelled(400.0), BOOK, outstanding=[], now_s=700.0)
    assert send is not None
    assert send.body.valid_s == 0
    assert ASKED.overdue(1_000.0)
    assert not ASKED.on_result(result(CommandState.RUNNING), now_s=0.0).overdue(1_000.0)


def test_nothing_is_signed_for_a_box_whose_numbers_are_not_known() -> None:
    for sequence in (replace(BOOK, born_at_s=None), replace(BOOK, restored=True), CommandSequence(enrolment=3)):
        assert ASKED.send_at_s(sequence) is None
        assert prepare_send(ASKED, sequence, outstanding=[], now_s=0.0) is None


def test_it_is_sent_again_until_something_is_heard() -> None:
    one, sequence, times = ASKED, BOOK, []
    now_s = 700.0
    for _ in range(len(RESEND_S) + 1):
        at_s = one.send_at_s(sequence)
        assert at_s is not None
        now_s = max(now_s, at_s)
        times.append(now_s)
        send = prepare_send(one, sequence, outstanding=[], now_s=now_s)
        assert send is not None
        one, sequence = send.tracked, send.sequence
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert waits == [*RESEND_S]
    assert one.send_at_s(replace(sequence, epoch=Epoch(43, "0" * 16))) == 0.0
    heard = one.on_result(result(CommandState.RUNNING), now_s=now_s)
    assert heard.send_at_s(sequence) == now_s + QUIET_S
    assert heard.on_result(result(), now_s=now_s).send_at_s(sequence) is None


def test_a_terminal_state_is_final_and_states_do_not_go_back() -> None:
    ran = ASKED.on_result(result(CommandState.RUNNING), now_s=1.0)
    assert ran.on_result(result(CommandState.RECEIVED), now_s=2.0) == ran
    done = ran.on_result(result(CommandState.FAILED, code="ERROR"), now_s=2.0)
    assert (done.state, done.code, done.ended) == (CommandState.FAILED, "ERROR", True)
    assert done.on_result(result(CommandState.SUCCEEDED), now_s=3.0) == done
    assert done.reimaged() == done
    assert ran.reimaged().code == ResultCode.REIMAGED


def test_a_spent_seq_is_given_up_when_the_answer_is_about_it() -> None:
    send = prepare_send(ASKED, BOOK, outstanding=[], now_s=700.0)
    assert send is not None
    one = send.tracked
    assert one.on_not_taken(not_taken("BEHIND", for_seq=119)).seq is None
    for answer in (not_taken("BEHIND", for_seq=118), not_taken("STALE_EPOCH", for_seq=119)):
        assert one.on_not_taken(answer) == one


def test_what_a_backup_knows_as_never_signed_gets_the_first_number_that_it_may_have_had() -> None:
    ahead = BOOK.on_uplink(not_taken("BEHIND", for_seq=0, seq=130), now_s=600.0)
    assert ASKED.learned(BOOK, ahead).seq == 119
    assert ASKED.learned(BOOK, BOOK) == ASKED
    assert replace(ASKED, seq=100).learned(BOOK, ahead).seq == 100
