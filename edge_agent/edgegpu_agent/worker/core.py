"""What the parts of the worker share: the journal with its content, the stamps, and who may write."""

import logging
import threading
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from edgegpu_agent.journal.contents import HistoryEntry, JournalContents, LastContact
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_agent.ports import ActionStopped, BoxContext, Clock
from edgegpu_sync.errors import RefusalReason
from edgegpu_sync.ids import CommandId
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.rules.replay_guard import StampCounter
from edgegpu_sync.wire import Json

_LOG = logging.getLogger(__name__)

_LOOSE_S = 300.0
"""After how long counters and times that no rule asks for are written by themselves."""

T = TypeVar("T")


class Core:
    """The worker's own thread alone calls it, `ask` excepted."""

    def __init__(
        self,
        *,
        journal: BoxJournal,
        held: JournalContents,
        me: BoxContext,
        clock: Clock,
        nonce: Callable[[], str],
        put: Callable[[Callable[[], None]], None],
    ) -> None:
        """Take over what the journal holds.

        Args:
            journal: open and loaded.
            held: what `load` returned.
            me: this box.
            clock: its clocks.
            nonce: makes 64 random bits as 16 hexadecimal digits.
            put: takes what is to be called on the worker's thread; it never blocks.
        """
        self.journal, self.held, self.me, self.clock, self._nonce = journal, held, me, clock, nonce
        self._put = put
        self.counter = StampCounter(enrolment=me.enrolment, epoch=held.gate.epoch)
        self.birth_stamp = self.will_stamp = Stamp(enrolment=me.enrolment, epoch=held.gate.epoch, n=0)
        self.thread: int | None = None
        self.ended = threading.Event()
        self._refused: Tally[str] = Tally()
        self._heard: LastContact | None = None
        self._server_time = held.server_time
        self._began_s = clock.boot_s()
        self._loose_since: float | None = None

    @property
    def now_s(self) -> float:
        """Return the seconds of CLOCK_BOOTTIME."""
        return self.clock.boot_s()

    @property
    def age_s(self) -> int:
        """Seconds since the birth."""
        return max(0, int(self.now_s - self.held.gate.born_s))

    def born(self) -> None:
        """Begin a new epoch, written before anybody is told. Its first two stamps are those of birth and will.

        The will goes to the broker before the birth does: so each try to connect takes an epoch of its own, and no
        will of an earlier one stands above a birth.
        """
        gate = self.held.gate.born(nonce=self._nonce(), now_s=self.now_s)
        self.save(replace(self.held, gate=gate))
        self.counter = StampCounter(enrolment=self.me.enrolment, epoch=gate.epoch)
        self.birth_stamp, self.will_stamp = self.stamp(), self.stamp()

    def stamp(self) -> Stamp:
        """Return a stamp that no other message has."""
        self.counter, stamp = self.counter.next()
        return stamp

    def save(
        self,
        held: JournalContents,
        *,
        bodies: Mapping[CommandId | Stamp, bytes] | None = None,
        notes: Mapping[str, Json | None] | None = None,
        told: Sequence[HistoryEntry] = (),
        spare: bool = False,
    ) -> None:
        """Write a new content; it is that of the journal when this returns.

        Raises:
            JournalFullError: nothing has changed.
            JournalError: the agent cannot go on.
        """
        held = self._with_loose(held)
        self.journal.save(held, bodies=bodies, notes=notes, told=told, spare=spare)
        self.held = held
        self._refused.clear()
        self._heard, self._loose_since = None, None

    def _with_loose(self, held: JournalContents) -> JournalContents:
        if self._loose_since is None:
            return held
        refused = Tally(held.refused) + self._refused
        return replace(held, refused=refused, heard=self._heard or held.heard, server_time=self._server_time)

    def refuse(self, why: RefusalReason, text: str) -> None:
        """Count a message that is not taken."""
        self._refused[why] += 1
        count = self._refused[why]
        if count & (count - 1) == 0:  # the first, then each time that there are twice as many: a flood fills no log
            _LOG.warning("refused, %d since it was written: %s", count, text)
        self._loose()

    def hear(self) -> None:
        """Note that the controller has spoken: it has signed something for the current birth."""
        self._heard = LastContact(self.clock.boot, self.now_s)
        self._loose()

    def hear_time(self, server_time: int) -> int:
        """Take a signed time; return by how many seconds it is older than the newest one, 0 for that itself.

        It only rises on the controller's side, so one that is newer than all before it was not replayed.
        """
        late_s = max(0, self._server_time - server_time)
        if server_time > self._server_time:
            self._server_time = server_time
            self.hear()
        return late_s

    def _loose(self) -> None:
        if self._loose_since is None:
            self._loose_since = self.now_s

    def write_loose(self) -> None:
        """Write what has waited long enough."""
        if self._loose_since is not None and self.now_s - self._loose_since >= _LOOSE_S:
            self.save(self.held)

    @property
    def refused(self) -> dict[str, int]:
        """Messages that were not taken, by the name of the refusal."""
        return dict(Tally(self.held.refused) + self._refused)

    @property
    def server_time(self) -> int:
        """The newest time that a controller has signed, seconds since 1970; 0 before the first."""
        return self._server_time

    @property
    def unseen_s(self) -> int:
        """For how long the controller was not heard, at least: another boot tells nothing of the time before it."""
        heard = self._heard or self.held.heard
        if not heard.boot:  # never yet: counted from our own beginning
            return max(0, int(self.now_s - self._began_s))
        since = heard.at_s if heard.boot == self.clock.boot else 0.0
        return max(0, int(self.now_s - since))

    def ask(self, question: Callable[[], T]) -> T:
        """Call it on the worker's thread and return the answer, from any thread.

        Raises:
            ActStop: the worker has ended.
        """
        if self.thread == threading.get_ident():
            return question()
        answered, answers = threading.Event(), list[T]()

        def call() -> None:
            answers.append(question())
            answered.set()

        self._put(call)
        while not answered.wait(0.2):
            if self.ended.is_set():
                raise ActionStopped("the agent ends")
        return answers[0]
