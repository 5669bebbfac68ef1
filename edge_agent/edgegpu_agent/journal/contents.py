"""The journal's contents that the worker also keeps in memory: one frozen value, replaced at each write."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgegpu_sync.ids import CommandId
from edgegpu_sync.keys import KeyRing
from edgegpu_sync.messages.spec import AskedItem
from edgegpu_sync.messages.stamps import Epoch
from edgegpu_sync.rules.commands import CommandRecord
from edgegpu_sync.rules.outbox import Outbox, OutboxSizes
from edgegpu_sync.rules.replay_guard import ReplayGuard
from edgegpu_sync.rules.settle import DesiredState
from edgegpu_sync.wire import Json

NO_EPOCH = Epoch(0, "0" * 16)
"""The epoch before the first birth."""


@dataclass(frozen=True, slots=True)
class LastContact:
    """The time of the controller's last message, by CLOCK_BOOTTIME of that boot; an empty boot: never."""

    boot: str = ""
    at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents:
    """The contents of the journal that the rules need; notes, bodies, remembered ids and history stay on the disk.

    `records` are the commands that have not ended, or whose result waits for its receipt. `settling` is the item that
    was begun: it is finished before another one, even if a newer revision has come meanwhile. `transactions` are
    the ids of the installer's last transactions of which an event was kept.
    """

    replay_guard: ReplayGuard
    ring: KeyRing
    desired_state: DesiredState = field(default_factory=DesiredState)
    spec: Json = field(default_factory=dict)
    records: Mapping[CommandId, CommandRecord] = field(default_factory=dict)
    outbox: Outbox = field(default_factory=Outbox)
    settling: AskedItem | None = None
    transactions: tuple[str, ...] = ()
    server_time: int = 0
    heard: LastContact = LastContact()
    refused: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def fresh(cls, *, enrolment: int, root: str, limits: OutboxSizes) -> "JournalContents":
        """Return the contents for a box that was just enrolled.

        Args:
            enrolment: the number of the enrolment.
            root: the public root key that the box pins.
            limits: sizes of the outbox.
        """
        guard = ReplayGuard(enrolment=enrolment, epoch=NO_EPOCH, born_s=0.0)
        return cls(replay_guard=guard, ring=KeyRing.pinned(root), outbox=Outbox(limits=limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A line of the history that people read.

    `kind`: command, item, desired, keys, link, journal. `about`: a command's id, an item's name. `at_s`: the time of
    the box's clock, which may be wrong by years. `n`: the line's number, set by the journal.
    """

    kind: str
    about: str
    state: str
    text: str = ""
    by: str = ""
    at_s: int = 0
    n: int = 0
