"""Order and replay protection without a clock, on the box: which signed command is taken, and none twice."""

from dataclasses import dataclass, replace

from edgegpu_sync.errors import MessageRefusedError, RefusalReason
from edgegpu_sync.messages.downlink import Command, Desired
from edgegpu_sync.messages.stamps import Epoch, Stamp
from edgegpu_sync.states import ResultCode
from edgegpu_sync.wire import MAX_COUNT

WINDOW = 1_024
"""How far above the floor a seq may be: the number of commands that a box may have outstanding."""

MEMORY = 4_096
"""How many ids a box remembers at least, after they are settled and receipted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayGuard:
    """The part of a box's journal that distinguishes new commands from old ones. `judge` is the rule.

    `seen` is a bitmap: bit i stands for seq floor + 1 + i. The ids of all commands with a seq above `forgotten` are
    remembered. `born_s` is CLOCK_BOOTTIME at the birth. It means nothing in another boot, where there is a new birth.
    """

    enrolment: int
    epoch: Epoch
    born_s: float
    floor: int = 0
    seen: int = 0
    forgotten: int = 0

    def born(self, *, nonce: str, now_s: float) -> "ReplayGuard":
        """Return the guard after a new birth: what was signed for earlier births is stale from here on.

        Args:
            nonce: 64 random bits as 16 hexadecimal digits.
            now_s: CLOCK_BOOTTIME.
        """
        return replace(self, epoch=Epoch(self.epoch.count + 1, nonce), born_s=now_s)

    @property
    def highest(self) -> int:
        """The highest seq that was taken, or that the floor has passed."""
        return self.floor + self.seen.bit_length()

    def took(self, seq: int) -> bool:
        """Whether this seq was used already."""
        return seq <= self.floor or bool(self.seen >> (seq - self.floor - 1) & 1)

    def raised(self, floor: int) -> "ReplayGuard":
        """Return the guard with the floor raised to `floor`; it never falls."""
        if floor <= self.floor:
            return self
        return replace(self, floor=floor, seen=self.seen >> (floor - self.floor))

    def forgets(self, seq: int) -> "ReplayGuard":
        """Return the guard after the journal has dropped all ids up to this seq.

        Raises:
            ValueError: for a seq above the floor: its id may still be signed again.
        """
        if seq > self.floor:
            raise ValueError(f"cannot forget seq {seq}: only those up to floor {self.floor} are settled")
        return replace(self, forgotten=max(self.forgotten, seq))

    def judge(self, command: Command, *, known: bool, now_s: float) -> "Verdict":
        """Decide what to do with a command whose signature is verified.

        Args:
            command: the body.
            known: whether the journal remembers its id.
            now_s: CLOCK_BOOTTIME.

        Raises:
            MessageRefusedError: NewerEnrolment (this is a copy of a box that was enrolled anew) and OutOfWindow;
                neither is answered.
        """
        if command.enrolment > self.enrolment:
            raise MessageRefusedError(
                RefusalReason.NEWER_ENROLMENT, f"{command.enrolment}, this box has {self.enrolment}: re-enrol it"
            )
        if command.enrolment < self.enrolment:
            return RefuseCommand(ResultCode.OLD_ENROLMENT)
        if command.epoch != self.epoch:
            return RefuseCommand(ResultCode.STALE_EPOCH)
        guard = self.raised(command.floor)
        until_s = guard.born_s + command.valid_s
        if known:
            return KnownCommand(guard, until_s)
        if command.seq <= guard.forgotten:
            return ForgottenCommand(guard)
        if guard.took(command.seq):
            return RefuseCommand(ResultCode.BEHIND)
        if command.seq > guard.floor + WINDOW:
            raise MessageRefusedError(
                RefusalReason.OUT_OF_WINDOW, f"seq {command.seq} is too far above floor {guard.floor}"
            )
        guard = replace(guard, seen=guard.seen | 1 << (command.seq - guard.floor - 1))
        return ExpiredCommand(guard) if now_s >= until_s else TakeCommand(guard, until_s)


@dataclass(frozen=True, slots=True)
class TakeCommand:
    """A new command: write `guard` and the command into the journal in one step, then acknowledge, then act.

    It may begin until `until_s` by CLOCK_BOOTTIME of this boot.
    """

    guard: ReplayGuard
    until_s: float


@dataclass(frozen=True, slots=True)
class KnownCommand:
    """A command seen before: answer its state; if it has not begun yet, it may begin until `until_s`."""

    guard: ReplayGuard
    until_s: float


@dataclass(frozen=True, slots=True)
class ExpiredCommand:
    """A new command that came too late: write `guard` and the terminal state EXPIRED in one step, and answer it."""

    guard: ReplayGuard


@dataclass(frozen=True, slots=True)
class ForgottenCommand:
    """A command whose id is forgotten, and which may have been done: answer UNKNOWN, FORGOTTEN, and never do it."""

    guard: ReplayGuard


@dataclass(frozen=True, slots=True)
class RefuseCommand:
    """A command that is not taken and not recorded; it is answered with this code, which is no terminal state."""

    code: ResultCode


Verdict = TakeCommand | KnownCommand | ExpiredCommand | ForgottenCommand | RefuseCommand


@dataclass(frozen=True, slots=True)
class SeenRevision:
    """The revision that a box observed last: `rev` only rises within an enrolment."""

    rev: int = 0
    digest: str = ""

    def observe(self, desired: Desired, *, digest: str, enrolment: int) -> "SeenRevision | None":
        """Return the revision with this document, or None when it is observed already.

        Args:
            desired: the body.
            digest: `wire.digest` of its spec.
            enrolment: this box's.

        Raises:
            MessageRefusedError: OldEnrolment, NewerEnrolment, OldRev, or OtherSpec (same number, other text: the
                controller's numbers are from a backup; `observed_rev` in our next uplink shows it).
        """
        if desired.enrolment != enrolment:
            why = RefusalReason.OLD_ENROLMENT if desired.enrolment < enrolment else RefusalReason.NEWER_ENROLMENT
            raise MessageRefusedError(why, f"{desired.enrolment}, this box has {enrolment}")
        if desired.rev < self.rev:
            raise MessageRefusedError(RefusalReason.OLD_REV, f"{desired.rev}, observed is {self.rev}")
        if desired.rev > self.rev:
            return SeenRevision(desired.rev, digest)
        if digest != self.digest:
            raise MessageRefusedError(RefusalReason.OTHER_SPEC, f"rev {desired.rev} stood for another document before")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StampCounter:
    """The stamps of a box's messages; `n` begins at 1 with each birth, and need not be in the journal."""

    enrolment: int
    epoch: Epoch
    n: int = 0

    def next(self) -> "tuple[StampCounter, Stamp]":
        """Return the counter after this stamp, and a stamp that no other message of this box has."""
        after = replace(self, n=min(self.n + 1, MAX_COUNT))
        return after, Stamp(enrolment=self.enrolment, epoch=self.epoch, n=after.n)
