"""The values that describe a change of the machine: files, folders and units."""

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
    """GPU sharing is taken off this machine; the agent, what it needs, and edgegpu-recover stay."""
    GUARD = "guard"
    """edgegpu-recover removed the files that k3s reads, because k3s did not start with them."""


LEAVING = frozenset({TransactionKind.UNINSTALL, TransactionKind.WITHDRAW})
"""The kinds after which GPU sharing is no longer installed."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The wanted state of one path: a file with `content`, a link to `link_to`, or nothing when both are None.

    `owner` holds the ids of user and group (None: those of this process, root). `k3s_reads`: k3s reads the file at its
    start, so a change of it needs a restart, and the guard removes it when k3s does not start. `early`: recovery itself
    needs the file, so it is in place before anything else is changed, and is removed last.

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
    """One change of the machine, made whole or not at all.

    Files are put in place in their order, and put back in reverse: a file comes before those that refer to it.
    `folders` (outer before inner) are made with 0755 where absent; a rollback removes them again. `reload`: systemd
    must read its unit files again. `stop`: units stopped before the files change. `start`: units started or restarted
    afterwards. `restart`: `k3s` or `k3s-agent`, restarted when a file that it reads changes.

    Raises:
        ValueError: a path or unit name is not valid; a path occurs twice.
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
    """A moment by which something must have ended; `at_s` is in seconds of `clock`."""

    at_s: float
    clock: Callable[[], float]

    def remaining_s(self) -> float:
        """Return the seconds that are left, 0 when the deadline has passed."""
        return max(0.0, self.at_s - self.clock())

    def passed(self) -> bool:
        """Return whether the deadline has passed."""
        return self.remaining_s() == 0.0


def check_path(path: str) -> None:
    """Refuse a path that cannot be in the journal, which a shell reads.

    Raises:
        ValueError: the path is not absolute, has `.` or `..` in it, or other characters than `A-Za-z0-9._@+:%-/`.
    """
    if not _PATH.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise ValueError(f"cannot change {path!r}: an absolute path of plain characters is needed")
