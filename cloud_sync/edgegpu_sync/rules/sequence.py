"""Order and replay protection without a clock, on the controller's side: a box's numbers, and which come next."""

from collections.abc import Iterable
from dataclasses import dataclass

from edgegpu_base.records import replace
from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.messages.uplink import Birth, CommandNotTaken, Reported
from edgegpu_sync.rules.replay_guard import WINDOW

MAX_JUMP = 2**24
"""How far a number of a box may be above what is known.

Years of births, revisions and commands are less, so that a controller from an old backup follows each honest box.
"""

MAX_FOLLOWED = 2**48
"""The highest number of a box that is followed, so far below `wire.MAX_COUNT` that a next one can always be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSequence:
    """The numbers of one box as its controller knows them. A restart clears `born_at_s`.

    All other fields are in the store. `born_at_s` is when the current birth was, by the controller's clock: at worst
    too late, never too early. While it is None nothing is signed. The next live uplink brings it, and the box's
    numbers, which a controller whose store came from a backup must learn before it uses its own.
    """

    enrolment: int
    instance: str = ""
    epoch: Epoch | None = None
    born_at_s: float | None = None
    next_seq: int = 1
    rev: int = 0
    digest: str = ""
    """`wire.digest` of the spec that was signed with `rev`; empty before the first."""
    restored: bool = False
    key_set: int = 0

    @property
    def can_sign(self) -> bool:
        """Whether commands may be signed for this box now."""
        return self.epoch is not None and self.born_at_s is not None and not self.restored

    @property
    def out_of_reach(self) -> str:
        """The first number whose next one cannot be given and sent, for people; empty where there is none."""
        numbers = {
            "enrolment": self.enrolment,
            "epoch": self.epoch.count if self.epoch is not None else 0,
            "next_seq": self.next_seq,
            "rev": self.rev,
            "key_set": self.key_set,
        }
        return next((f"{name} is {number}" for name, number in numbers.items() if number > 2 * MAX_FOLLOWED), "")

    def confirmed(self) -> "CommandSequence":
        """Return the sequence after an operator has confirmed that it goes on from a store that came from a backup.

        The box holds another document under the present revision: call `give_rev` next, in the same step.
        """
        return replace(self, restored=False)

    def on_birth(self, birth: Birth, *, now_s: float, live: bool) -> "CommandSequence":
        """Return the sequence after a birth; the same when the birth is known.

        Args:
            birth: as verified by the box's key.
            now_s: the controller's clock.
            live: False for one that the broker had retained: how old it is cannot be known.

        Raises:
            MessageRefusedError: Cloned, OldEnrolment, OldEpoch: the box stays off, and an operator enrols it anew.
                OutOfReach: its numbers cannot be followed.
        """
        if self.instance and birth.instance != self.instance and birth.enrolment <= self.enrolment:
            raise MessageRefusedError(
                RefusalReason.CLONED, f"instance {birth.instance[:12]} is not the one that was enrolled"
            )
        if birth.enrolment < self.enrolment:
            raise MessageRefusedError(
                RefusalReason.OLD_ENROLMENT, f"{birth.enrolment}, the box has {self.enrolment} since"
            )
        check_reach("enrolment", birth.enrolment, self.enrolment)
        sequence = self if birth.enrolment == self.enrolment else self._enrolled(birth)
        if sequence.epoch is not None and sequence.epoch != birth.epoch and birth.epoch.count <= sequence.epoch.count:
            raise MessageRefusedError(
                RefusalReason.OLD_EPOCH, f"{birth.epoch.count}, the box has had {sequence.epoch.count}"
            )
        check_reach("epoch", birth.epoch.count, sequence.epoch.count if sequence.epoch is not None else 0)
        check_reach("key_set", birth.key_set, self.key_set)
        if sequence.epoch != birth.epoch:
            sequence = replace(sequence, epoch=birth.epoch, born_at_s=None)
        sequence = replace(sequence, instance=birth.instance, key_set=birth.key_set)
        return sequence.learned(birth, now_s=now_s if live else None)

    def _enrolled(self, birth: Birth) -> "CommandSequence":
        """Return the sequence for a higher enrolment than is known.

        Only this controller gives enrolment numbers, so this one was given after the backup of its store.
        """
        return CommandSequence(enrolment=birth.enrolment, rev=self.rev, digest=self.digest, restored=True)

    def reimaged(self, enrolment: int, instance: str) -> "CommandSequence":
        """Return the sequence of a box that was enrolled anew: new journal, new numbers, the same desired state."""
        if enrolment <= self.enrolment:
            raise ValueError(f"cannot enrol with number {enrolment}: the box has had {self.enrolment}")
        return CommandSequence(
            enrolment=enrolment, instance=instance, rev=self.rev, digest=self.digest, restored=self.restored
        )

    def on_uplink(self, message: Reported | CommandNotTaken, *, now_s: float) -> "CommandSequence":
        """Return the sequence after a live message with the box's numbers; one of another epoch changes nothing."""
        if message.enrolment != self.enrolment or message.epoch != self.epoch:
            return self
        return self.learned(message, now_s=now_s)

    def learned(self, message: Birth | Reported | CommandNotTaken, *, now_s: float | None) -> "CommandSequence":
        """Return the sequence with the box's numbers where they are higher, and RESTORED if one of them is.

        Args:
            message: of the current epoch.
            now_s: the controller's clock; None for a message that the broker had retained.

        Raises:
            MessageRefusedError: OutOfReach: one of its numbers cannot be followed.
        """
        check_reach("seq", message.seq, self.next_seq)
        check_reach("observed_rev", message.observed_rev, self.rev)
        ahead = message.seq >= self.next_seq or message.observed_rev > self.rev
        if isinstance(message, Reported) and message.observed_rev == self.rev and message.observed_hash:
            ahead = ahead or message.observed_hash != self.digest
        born = self.born_at_s
        if now_s is not None:
            estimate = now_s - message.age_s
            born = estimate if born is None else min(born, estimate)
        return replace(
            self,
            born_at_s=born,
            next_seq=max(self.next_seq, message.seq + 1),
            rev=max(self.rev, message.observed_rev),
            restored=self.restored or ahead,
        )

    def floor(self, outstanding: Iterable[int]) -> int:
        """Return the number up to which every seq is settled.

        Args:
            outstanding: the seqs of all commands to this enrolment that have no terminal state yet.
        """
        return min(outstanding, default=self.next_seq) - 1

    def give_seq(self, outstanding: Iterable[int]) -> "tuple[CommandSequence, int] | None":
        """Return the sequence and a seq for a command that has none; None while the window is full."""
        if self.next_seq > self.floor(outstanding) + WINDOW:
            return None
        return replace(self, next_seq=self.next_seq + 1), self.next_seq

    def give_rev(self, digest: str) -> "CommandSequence":
        """Return the sequence with the next revision, for the spec with this `wire.digest`; two specs share none."""
        return replace(self, rev=self.rev + 1, digest=digest)


def check_reach(name: str, number: int, known: int) -> None:
    """Refuse a number that no honest box can have reached.

    Raises:
        MessageRefusedError: OutOfReach.
    """
    if number > min(known + MAX_JUMP, MAX_FOLLOWED):
        raise MessageRefusedError(RefusalReason.OUT_OF_REACH, f"{name} {number}, known is {known}")


def check_stamp(stamp: Stamp, last: Stamp | None, *, enrolment: int) -> None:
    """Refuse an uplink that the store does not take.

    For results `last` is the stamp of the same id, else that of the same kind.

    Raises:
        MessageRefusedError: OldEnrolment, NewerEnrolment or OldStamp.
    """
    if stamp.enrolment != enrolment:
        why = RefusalReason.OLD_ENROLMENT if stamp.enrolment < enrolment else RefusalReason.NEWER_ENROLMENT
        raise MessageRefusedError(why, f"{stamp.enrolment}, the box has {enrolment}")
    if not stamp.after(last):
        raise MessageRefusedError(RefusalReason.OLD_STAMP, "a newer one is stored already")
