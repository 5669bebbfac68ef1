"""What a transaction changes on the machine: files, folders and units, as values."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

_PATH = re.compile(r"(/[A-Za-z0-9._@+:%-]+)+")
_UNIT = re.compile(r"[A-Za-z0-9._@:%-]+")
_MODES = range(0o10000)


class TransactionKind(StrEnum):
    """What a transaction is for."""

    INSTALL = "install"
    UNINSTALL = "uninstall"
    CHANGE = "change"
    UPGRADE = "upgrade"
    WITHDRAW = "withdraw"
    """GPU sharing is taken off this machine; the agent stays, with what it stands on and what undoes a change."""
    GUARD = "guard"
    """edgegpu-recover took the files that k3s reads out, because k3s did not come up with them."""


LEAVING = frozenset({TransactionKind.UNINSTALL, TransactionKind.WITHDRAW})
"""Sharing is not there after these."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """How one path shall be afterwards: a file with this content, a link, or (neither given) nothing.

    `owner` holds the ids of user and group (None: of who runs this, root). `k3s_reads`: k3s reads it at its start, so
    that a change of it needs a restart, and it is what is taken out when k3s does not come up. `early`: recovery itself
    needs it; it is in place before anything else is changed, and goes last.

    Raises:
        ValueError: the path is not absolute or has characters that the journal does not take; content and link both
            given; no mode.
    """

    path: str
    content: bytes | None = None
    mode: int = 0o644
    link_to: str | None = None
    k3s_reads: bool = False
    early: bool = False
    owner: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_path(self.path)
        if self.content is not None and self.link_to is not None:
            raise ValueError(f"{self.path} cannot be a file and a link")
        if self.link_to is not None and (not self.link_to or "\n" in self.link_to):
            raise ValueError(f"{self.path} cannot link to {self.link_to!r}")
        if self.mode not in _MODES:
            raise ValueError(f"{self.path} cannot have mode {self.mode:o}")

    @property
    def absent(self) -> bool:
        """Whether nothing shall be at the path."""
        return self.content is None and self.link_to is None


@dataclass(frozen=True, slots=True)
class Plan:
    """One change of the machine, done as a whole or not at all.

    Files are put in place in this order, and put back in the reverse one: what is referred to comes before what refers
    to it. `folders` (outer before inner) are made, 0755, where absent, and removed again by whatever undoes the plan.
    `reload`: systemd must read its unit files anew. `stop`: units stopped before the files change, `start`: units
    started, or restarted, afterwards. `restart`: `k3s` or `k3s-agent`, restarted when something that it reads changes.

    Raises:
        ValueError: a path or unit cannot be; a path stands there twice.
    """

    op: TransactionKind
    files: tuple[FileChange, ...]
    folders: tuple[str, ...] = ()
    reload: bool = False
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    restart: str | None = None

    def __post_init__(self) -> None:
        for folder in self.folders:
            check_path(folder)
        for unit in (*self.start, *self.stop, *((self.restart,) if self.restart is not None else ())):
            if not _UNIT.fullmatch(unit):
                raise ValueError(f"no unit has the name {unit!r}")
        paths = [change.path for change in self.files]
        if twice := sorted({path for path in paths if paths.count(path) > 1}):
            raise ValueError(f"a plan changes each path once, this one twice: {' '.join(twice)}")


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which something must be over; `clock` gives seconds on the scale of `at_s`."""

    at_s: float
    clock: Callable[[], float]

    def remaining_s(self) -> float:
        """Return the seconds that are left, 0 when there are none."""
        return max(0.0, self.at_s - self.clock())

    def passed(self) -> bool:
        """Return whether no time is left."""
        return self.remaining_s() == 0.0


def check_path(path: str) -> None:
    """Refuse a path that the journal, which a shell reads, does not take.

    Raises:
        ValueError: it is not absolute, not in its shortest form, or has other characters than `A-Za-z0-9._@+:%-/`.
    """
    if not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise ValueError(f"cannot change {path!r}: an absolute path of plain characters is needed")
