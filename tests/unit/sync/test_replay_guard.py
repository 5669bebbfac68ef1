"""Which command is taken: each rule by itself, with the numbers that make the difference."""

import pytest
from kits.sync import EPOCH

from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.messages.downlink import Command, Desired
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.rules.replay_guard import (
    WINDOW,
    ExpiredCommand,
    ForgottenCommand,
    KnownCommand,
    RefuseCommand,
    ReplayGuard,
    SeenRevision,
    StampCounter,
    TakeCommand,
    Verdict,
)
from edgegpu_sync.states import ResultCode

GUARD = ReplayGuard(enrolment=3, epoch=EPOCH, born_s=1_000.0, floor=10)


def command(seq: int, *, floor: int = 0, enrolment: int = 3, epoch: Epoch = EPOCH, valid_s: int = 60) -> Command:
    return Command(enrolment=enrolment, epoch=epoch, seq=seq, floor=floor, valid_s=valid_s)


def judged(order: Command, *, guard: ReplayGuard = GUARD, known: bool = False, now_s: float = 1_010.0) -> Verdict:
    return guard.judge(order, known=known, now_s=now_s)


def taken(guard: ReplayGuard, *seqs: int) -> ReplayGuard:
    for seq in seqs:
        verdict = judged(command(seq), guard=guard)
        assert isinstance(verdict, TakeCommand)
        guard = verdict.guard
    return guard


def test_any_unseen_seq_above_the_floor_is_taken_in_any_order_and_once() -> None:
    guard = taken(GUARD, 14, 11, 10 + WINDOW)
    assert [seq for seq in range(1, 20) if guard.took(seq)] == [*range(1, 12), 14]
    assert guard.highest == 10 + WINDOW
    for seq in (14, 11, 10, 1):
        assert judged(command(seq), guard=guard) == RefuseCommand(ResultCode.BEHIND)


def test_the_floor_only_rises_and_keeps_what_was_seen_above_it() -> None:
    guard = taken(GUARD, 12, 15)
    verdict = judged(command(16, floor=13), guard=guard)
    assert isinstance(verdict, TakeCommand)
    assert (verdict.guard.floor, [seq for seq in range(14, 20) if verdict.guard.took(seq)]) == (13, [15, 16])
    assert verdict.guard.raised(5) is verdict.guard
    assert verdict.guard.raised(10**9).highest == 10**9


def test_it_may_be_begun_until_valid_s_after_the_birth() -> None:
    assert judged(command(11), now_s=1_059.9) == TakeCommand(taken(GUARD, 11), 1_060.0)
    late = judged(command(11), now_s=1_060.0)
    assert late == ExpiredCommand(taken(GUARD, 11))
    assert judged(command(11, valid_s=0), now_s=1_000.0) == late


def test_a_known_id_is_known_whatever_its_number_and_never_expires() -> None:
    assert judged(command(11, floor=10), guard=taken(GUARD, 11), known=True) == KnownCommand(taken(GUARD, 11), 1_060.0)
    assert isinstance(judged(command(3, valid_s=0), known=True), KnownCommand)


def test_an_older_epoch_is_stale_and_changes_nothing() -> None:
    for epoch in (Epoch(41, EPOCH.nonce), Epoch(42, "0" * 16), Epoch(43, EPOCH.nonce)):
        assert judged(command(11, floor=10, epoch=epoch)) == RefuseCommand(ResultCode.STALE_EPOCH)
        assert judged(command(11, epoch=epoch), known=True) == RefuseCommand(ResultCode.STALE_EPOCH)


def test_what_was_signed_before_the_box_was_imaged_anew_is_not_taken() -> None:
    assert judged(command(11, enrolment=2)) == RefuseCommand(ResultCode.OLD_ENROLMENT)
    with pytest.raises(MessageRefusedError, match="re-enrol") as refused:
        judged(command(11, enrolment=4))
    assert refused.value.why is RefusalReason.NEWER_ENROLMENT


def test_beyond_the_window_there_is_no_answer() -> None:
    with pytest.raises(MessageRefusedError) as refused:
        judged(command(11 + WINDOW))
    assert refused.value.why is RefusalReason.OUT_OF_WINDOW


def test_what_may_have_been_forgotten_is_never_done() -> None:
    guard = GUARD.forgets(7)
    assert judged(command(7), guard=guard) == ForgottenCommand(guard)
    assert judged(command(8), guard=guard) == RefuseCommand(ResultCode.BEHIND)
    assert guard.forgets(3).forgotten == 7
    with pytest.raises(ValueError, match="only those up to floor 10"):
        guard.forgets(11)


def test_a_birth_makes_stale_what_came_before() -> None:
    guard = GUARD.born(nonce="f" * 16, now_s=5.0)
    assert (guard.epoch, guard.born_s, guard.floor) == (Epoch(43, "f" * 16), 5.0, 10)
    assert judged(command(11), guard=guard) == RefuseCommand(ResultCode.STALE_EPOCH)


def desired(rev: int, enrolment: int = 3) -> Desired:
    return Desired(enrolment=enrolment, rev=rev, spec={})


def test_a_revision_only_rises() -> None:
    seen = SeenRevision().observe(desired(5), digest="a", enrolment=3)
    assert seen == SeenRevision(5, "a")
    assert seen.observe(desired(5), digest="a", enrolment=3) is None
    assert seen.observe(desired(9), digest="a", enrolment=3) == SeenRevision(9, "a")


@pytest.mark.parametrize(
    ("document", "digest", "why"),
    [
        (desired(4), "a", RefusalReason.OLD_REV),
        (desired(5), "b", RefusalReason.OTHER_SPEC),
        (desired(6, enrolment=2), "a", RefusalReason.OLD_ENROLMENT),
        (desired(6, enrolment=4), "a", RefusalReason.NEWER_ENROLMENT),
    ],
)
def test_a_document_from_a_backup_or_a_replay_is_refused(document: Desired, digest: str, why: RefusalReason) -> None:
    with pytest.raises(MessageRefusedError) as refused:
        SeenRevision(5, "a").observe(document, digest=digest, enrolment=3)
    assert refused.value.why is why


def test_stamps_follow_one_another() -> None:
    counter, first = StampCounter(enrolment=3, epoch=EPOCH).next()
    _, second = counter.next()
    assert second.after(first)
    assert not first.after(second)
    assert not first.after(first)
    assert first.after(None)
    assert Stamp(enrolment=3, epoch=Epoch(43, "0" * 16), n=1).after(second)
    assert Stamp(enrolment=4, epoch=Epoch(1, "0" * 16), n=1).after(second)
    assert not Stamp(enrolment=3, epoch=Epoch(42, "0" * 16), n=99).after(second)
