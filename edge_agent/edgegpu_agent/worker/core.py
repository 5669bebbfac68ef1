"""The core that all parts of the worker share: the journal with its contents, the stamps, the clocks."""

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
"""How long counters and times that no rule needs may wait to be written."""

T = TypeVar("T")


class Core:
    """The core of the worker; only the worker's thread may use it, except for `ask`."""

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
        """Build the core on the journal's contents.

        Args:
            journal: the journal, open and loaded.
            held: the contents that `load` returned.
            me: this box.
            clock: the clocks of this box.
            nonce: returns 64 random bits as 16 hexadecimal digits.
            put: queues a call for the worker's thread; it never blocks.
        """
        self.journal, self.held, self.me, self.clock, self._nonce = journal, held, me, clock, nonce
        self._put = put
        self.counter = StampCounter(enrolment=me.enrolment, epoch=held.replay_guard.epoch)
        self.birth_stamp = self.will_stamp = Stamp(enrolment=me.enrolment, epoch=held.replay_guard.epoch, n=0)
        self.thread: int | None = None
        self.ended = threading.Event()
        self._refused: Tally[str] = Tally()
        self._heard: LastContact | None = None
        self._server_time = held.server_time
        self._began_s = clock.boot_s()
        self._loose_since: float | None = None

    @property
    def now_s(self) -> float:
        """The seconds of CLOCK_BOOTTIME."""
        return self.clock.boot_s()

    @property
    def age_s(self) -> int:
        """Seconds since the birth."""
        return max(0, int(self.now_s - self.held.replay_guard.born_s))

    def born(self) -> None:
        """Begin a new epoch, and journal it before it is used; its first two stamps are those of birth and will.

        The will goes to the broker before the birth does. So each try to connect takes an epoch of its own, and no will
        of an earlier try has a higher stamp than a birth.
        """
        guard = self.held.replay_guard.born(nonce=self._nonce(), now_s=self.now_s)
        self.save(replace(self.held, replay_guard=guard))
        self.counter = StampCounter(enrolment=self.me.enrolment, epoch=guard.epoch)
        self.birth_stamp, self.will_stamp = self.stamp(), self.stamp()

    def stamp(self) -> Stamp:
        """Return a new stamp, which no other message has."""
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
        """Write new contents; they are in the journal when this returns.

        Raises:
            JournalFullError: nothing has changed.
            BoxJournalError: the agent cannot go on.
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
        """Count a refused message."""
        self._refused[why] += 1
        count = self._refused[why]
        if count & (count - 1) == 0:  # log at each power of two, so that a flood does not fill the log
            _LOG.warning("refused, %d since it was written: %s", count, text)
        self._loose()

    def record_contact(self) -> None:
        """Record a contact with the controller: it has signed something for the current birth."""
        self._heard = LastContact(self.clock.boot, self.now_s)
        self._loose()

    def hear_time(self, server_time: int) -> int:
        """Take a signed time; return by how many seconds it is older than the newest one, 0 for a newer one.

        The controller's time only rises, so a time that is newer than all before it was not replayed.
        """
        late_s = max(0, self._server_time - server_time)
        if server_time > self._server_time:
            self._server_time = server_time
            self.record_contact()
        return late_s

    def _loose(self) -> None:
        if self._loose_since is None:
            self._loose_since = self.now_s

    def write_loose(self) -> None:
        """Write counters and times that have waited long enough."""
        if self._loose_since is not None and self.now_s - self._loose_since >= _LOOSE_S:
            self.save(self.held)

    @property
    def refused(self) -> dict[str, int]:
        """The numbers of refused messages, by the reason of the refusal."""
        return dict(Tally(self.held.refused) + self._refused)

    @property
    def server_time(self) -> int:
        """The newest time that a controller has signed, seconds since 1970; 0 before the first."""
        return self._server_time

    @property
    def contact_age_s(self) -> int:
        """The seconds since the last contact with the controller, at least: time before this boot is not counted."""
        heard = self._heard or self.held.heard
        if not heard.boot:  # never: count from the start of this process
            return max(0, int(self.now_s - self._began_s))
        since = heard.at_s if heard.boot == self.clock.boot else 0.0
        return max(0, int(self.now_s - since))

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function on the worker's thread and return its answer; any thread may call this.

        Raises:
            ActionStopped: the worker has ended.
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
