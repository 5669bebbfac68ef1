"""The dataclasses that the store takes and returns; rows never leave it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any

from edgegpu_sync.ids import CommandId, DeviceId, OpName
from edgegpu_sync.messages.stamps import Stamp
from edgegpu_sync.rules.sequence import CommandSequence
from edgegpu_sync.rules.tracking import TrackedCommand
from edgegpu_sync.states import CommandState
from edgegpu_sync.topics import TopicKind

Json = dict[str, Any]

PARTITIONS = 64
"""Into how many partitions the boxes are split. The number stands in every store, and never changes."""


LEADER = 0
"""Who holds this partition also does what is done once for all boxes: rollouts, alerts, alarms of the broker."""


@lru_cache(maxsize=65_536)
def partition_of(device: DeviceId) -> int:
    """Return the partition of a box, 0 to `PARTITIONS` - 1: the first byte of the id's SHA-256, modulo their number."""
    return sha256(device.encode()).digest()[0] % PARTITIONS


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a partition: its holder (empty: nobody), and its fence, which rises with each change of holder."""

    number: int
    holder: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerBeat:
    """A controller that shares the boxes: `beat` rises while the process lives; `instance` is that process's own.

    `place` tells two folders apart; empty where that is not known. `host` and `seen_at_s`, the time of the last beat by
    that controller's clock, are for people.
    """

    name: str
    instance: str
    beat: int
    place: str = ""
    host: str = ""
    seen_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """A term of a selector: a label has one of these values (None: any), or, not `wanted`, has not."""

    key: str
    values: frozenset[str] | None
    wanted: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the term holds for a box with these labels."""
        found = labels.get(self.key)
        has = found is not None and (self.values is None or found in self.values)
        return has is self.wanted


UNINSTALLED = "uninstall"
"""The reason in a box's goodbye when edgegpu is taken off it."""


class BoxState(StrEnum):
    """Whether a box's messages count.

    SET_ASIDE: its numbers cannot be followed; it comes back as another box. BLOCKED: it floods, or a person has blocked
    it; it goes on as the same box when a person unblocks it.
    """

    ENROLLED = "ENROLLED"
    REVOKED = "REVOKED"
    SET_ASIDE = "SET_ASIDE"
    BLOCKED = "BLOCKED"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolledBox:
    """A box that has just been enrolled, for the first time or anew; `public` belongs to the key that it signs with."""

    device: DeviceId
    enrolment: int
    public: str
    instance: str
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxRecord:
    """A box in the store. Times are the controller's seconds since 1970.

    `spec_rev` is the revision whose document is kept as the current one; it differs from `sequence.rev` where the box
    was found ahead. `told_rev` is the revision that was sent last. `look_at_s`: when the box is asked again because
    it is behind.
    """

    device: DeviceId
    name: str
    public: str
    sequence: CommandSequence
    state: BoxState = BoxState.ENROLLED
    labels: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    added_at_s: float = 0.0
    enrolled_at_s: float = 0.0
    online: bool = False
    seen_at_s: float = 0.0
    spec_rev: int = 0
    told_rev: int = 0
    observed_rev: int = 0
    applied_rev: int = 0
    look_at_s: float | None = None
    looks: int = 0
    touched: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A desired document: the spec of one revision."""

    rev: int
    spec: Json
    at_s: float
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHistoryLine:
    """One line of a command's history."""

    command: CommandId
    at_s: float
    state: CommandState
    code: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCommand:
    """A command in the store: `tracked` is what the rules know of it.

    `next_at_s`: when something is to be sent; None while it waits for its box, and when it has ended. `sent_at_s`: when
    it was sent first.
    """

    device: DeviceId
    tracked: TrackedCommand
    by: str
    at_s: float
    cancelled: bool = False
    data: Json | None = None
    attempts: int = 0
    ended_at_s: float | None = None
    sent_at_s: float | None = None
    next_at_s: float | None = 0.0
    number: int = 0

    @property
    def id(self) -> CommandId:
        """Return the command's id."""
        return self.tracked.id

    def history_line(self, at_s: float) -> CommandHistoryLine:
        """Return the line for the state that the command has reached; ValueError where nothing was heard of it yet."""
        one = self.tracked
        if one.state is None:
            raise ValueError(f"command {one.id} has no history yet")
        return CommandHistoryLine(command=one.id, at_s=at_s, state=one.state, code=one.code, text=one.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """The last message of a kind from a box; `body` is as it was on the wire, with allocations merged."""

    device: DeviceId
    kind: TopicKind
    stamp: Stamp
    at_s: float
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxEvent:
    """Something that happened on a box; `box_at` is the box's clock, `at_s` the controller's.

    `transaction`: the fields of `TransactionReport`, where a transaction of the box's installer has ended.
    """

    device: DeviceId
    kind: str
    level: str
    text: str
    about: str
    box_at: int
    at_s: float
    transaction: Json | None = None


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event with its number in the store: later ones have larger numbers."""

    number: int
    event: BoxEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """The end of a command that this store does not know."""

    device: DeviceId
    id: CommandId
    op: OpName
    state: CommandState
    code: str
    text: str
    at_s: float


ONLY_FOR = "edgegpu.io/only-for"
"""The label of a token that is for one box; it never becomes a label of the box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """An enrolment token, by the SHA-256 (64 hexadecimal digits) of its text."""

    digest: str
    by: str
    at_s: float
    expires_at_s: float
    uses: int = 1
    used: int = 0
    approval: bool = False
    label: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    revoked: bool = False


class RequestState(StrEnum):
    """The state of an enrolment attempt."""

    WAITING = "WAITING"
    APPROVED = "APPROVED"
    REFUSED = "REFUSED"
    DONE = "DONE"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentAttempt:
    """One attempt of a box to enrol: `token` and `digest` (of the request) are SHA-256, `answer` is sent again."""

    id: str
    token: str
    digest: str
    asked: Json
    at_s: float
    state: RequestState = RequestState.WAITING
    answer: Json | None = None
    device: DeviceId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRecord:
    """A certificate of a box, issued at `not_before_s`; times in seconds since 1970, `serial` in hexadecimal digits."""

    serial: str
    device: DeviceId
    enrolment: int
    csr_sha256: str
    pem: str
    not_before_s: float
    not_after_s: float
    revoked_at_s: float | None = None

    def due_for_renewal(self, now_s: float) -> bool:
        """Whether two thirds of its life are over: the same request then gets a new certificate."""
        return now_s >= self.not_before_s + (self.not_after_s - self.not_before_s) * 2 / 3


@dataclass(frozen=True, slots=True)
class AlarmNote:
    """An alarm to be raised: its kind, and what a person has to check."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An alarm in the store: until somebody has seen it, it is counted and not repeated."""

    number: int
    at_s: float
    kind: str
    device: str
    text: str
    times: int = 1
    seen_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A change by a person. `number` is counted up by the store."""

    at_s: float
    by: str
    what: str
    device: str = ""
    detail: Json = field(default_factory=dict)
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """The entries of the audit that are asked for; empty fields and 0 do not count.

    `by`: a person, with the person's tokens. `what`: a kind, or the beginning of several: `box` for `box.spec` and the
    like. `before`: only entries with lower numbers. `since_s` and `until_s`: only those of this time, seconds since
    1970, the end not included. `app`: NAMESPACE/APP, or an app of any namespace. `part_of`: only those that one change
    of many boxes has made, by its id (or `rollout/NUMBER`). `whole`: without those that such a change has made; of one
    that has begun before `since_s`, the newest stands for it.
    """

    by: str = ""
    device: str = ""
    what: str = ""
    before: int = 0
    since_s: float = 0.0
    until_s: float = 0.0
    app: str = ""
    part_of: str = ""
    whole: bool = False
