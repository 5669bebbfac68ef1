"""The dataclasses of operations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from edgegpu_cloud.store.records import Json
from edgegpu_sync.ids import CommandId, DeviceId


class OperationKind(StrEnum):
    """The changes of many boxes that there are."""

    LIMITS = "limits"
    SHARING = "sharing"
    INSTALL = "install"
    UNINSTALL = "uninstall"
    COMMAND = "command"


class OperationState(StrEnum):
    """Whether boxes of an operation still wait for the controller to store the change."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    CANCELLED = "CANCELLED"


class BoxOutcome(StrEnum):
    """What came of an operation on one box; only the first two are not final.

    QUEUED: the change is not stored yet. STORED: it is requested, and the box has not ended it. REFUSED: it cannot be
    requested of this box. CANCELLED: the operation was cancelled before.
    """

    QUEUED = "QUEUED"
    STORED = "STORED"
    APPLIED = "APPLIED"
    REJECTED = "REJECTED"
    REFUSED = "REFUSED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A change of many boxes. `selector` is as it was written; empty where boxes were named.

    `filter`: what the boxes were found by, the selector included, empty for every box; None where they were named, or
    an earlier version has started it. `per_box`: boxes have arguments of their own. `key` is chosen by the client: the
    same request with the same key is the same operation. `seen_change`: the number of the last change by a person when
    this one saw what there was; None: whatever there is by then.
    """

    id: str
    kind: OperationKind
    args: Json
    by: str
    at_s: float
    selector: str = ""
    key: str | None = None
    boxes: int = 0
    state: OperationState = OperationState.RUNNING
    ended_at_s: float | None = None
    filter: Json | None = None
    per_box: bool = False
    seen_change: int | None = None
    undoes: str | None = None
    """The operation that this one takes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFilter:
    """The operations that are asked for; fields that are empty or None do not count.

    `search` is looked for, in small and capital letters, in ids, people and
    the values that were asked for or searched by. `device`: those that
    concern this box.
    """

    search: str = ""
    kind: OperationKind | None = None
    state: OperationState | None = None
    device: str = ""


EVERY_OPERATION = OperationFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxArgs:
    """What a box of an operation has of its own: `args` stand in the place of the operation's.

    `seen_rev`: the revision of its document that the person has seen; None: whatever it is by then.
    """

    args: Json = field(default_factory=dict)
    seen_rev: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationBox:
    """A box of an operation. `rev` is the revision that the change got there, `command` the command.

    `items`: by name, the revision and the number of the try that the box has to report on. `text` says why it was
    refused or rejected. `args` and `seen_rev` are as in `BoxArgs`.
    """

    operation: str
    device: DeviceId
    outcome: BoxOutcome = BoxOutcome.QUEUED
    text: str = ""
    remedy: str = ""
    rev: int | None = None
    command: CommandId | None = None
    items: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    force: bool = False
    """Whether a pod that waits counts as applied."""
    args: Json = field(default_factory=dict)
    seen_rev: int | None = None
    before: Json | None = None
    """What the box had before, as arguments that bring it back; None: it is not known."""
