"""The baseline: the state of each path before edgegpu first touched it, which an uninstall restores exactly.

Each committed transaction has a folder, in their order. Its `index` has a row for every path that no earlier
transaction touched (`NUMBER FLAGS KIND PATH`, contents beside it under the number) and for every folder that was made
(kind `d`). Its `ours` has what the transaction wrote.
"""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgegpu_base.files import sync_folder
from edgegpu_installer.changes import FileChange
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import PLUGIN_UNIT, UNITS, Layout
from edgegpu_installer.machine import atomic
from edgegpu_installer.machine.atomic import PathEntry, read_entry
from edgegpu_installer.transaction.farewell import PASSING
from edgegpu_installer.transaction.journal import TransactionTables

_FOLDER = "d"


@dataclass(frozen=True, slots=True)
class OriginalPath:
    """The original of one path: kind and flags as in the journal (kind `d`: a folder of ours), content at `kept`."""

    path: str
    flags: str
    kind: str
    kept: Path


def originals(layout: Layout) -> tuple[OriginalPath, ...]:
    """Return the originals of all paths, in the order in which they were first touched."""
    return tuple(found for folder in _transactions(layout) for found in _rows(folder))


def folders(layout: Layout) -> tuple[str, ...]:
    """Return the folders that edgegpu has made, outer before inner."""
    return tuple(original.path for original in originals(layout) if original.kind == _FOLDER)


def restore_plan(layout: Layout) -> tuple[FileChange, ...]:
    """Return the changes that restore every path, the last touched first.

    Raises:
        InstallError: the baseline cannot be read.
    """
    kept = [original for original in originals(layout) if original.kind != _FOLDER]
    return tuple(_change(original) for original in reversed(kept))


def drifted(layout: Layout) -> tuple[str, ...]:
    """Return the paths that others have changed since edgegpu last wrote them.

    Raises:
        InstallError: one of the paths cannot be read.
    """
    ours = _ours(layout)
    return tuple(path for path, known in ours.items() if _fingerprint(read_entry(layout.at(path))) != known)


def withdrawn(layout: Layout) -> bool:
    """Return whether GPU sharing was taken off this machine while edgegpu stayed.

    Raises:
        InstallError: the baseline cannot be read.
    """
    return _ours(layout).get(f"{UNITS}/{PLUGIN_UNIT}") == _fingerprint(PathEntry())


def _ours(layout: Layout) -> dict[str, str]:
    """Return, for each path, the fingerprint of what edgegpu last wrote there."""
    ours: dict[str, str] = {}
    for folder in _transactions(layout):
        ours |= dict(line.split(" ", 1)[::-1] for line in _lines(folder / "ours"))
    return ours


def record(layout: Layout, transaction: str, tables: TransactionTables) -> None:
    """Store the originals of the paths that a transaction is the first to touch, and what it writes there.

    Call it before COMMITTED is written; a rollback removes the folder `*.ID`.

    Raises:
        InstallError: the baseline cannot be written.
    """
    last = max((int(folder.name.partition(".")[0]) for folder in _transactions(layout)), default=0)
    known = {original.path for original in originals(layout)}
    atomic.make_folder(layout.baseline, mode=0o700)
    new = layout.baseline / "new"
    shutil.rmtree(new, ignore_errors=True)
    atomic.make_folder(new, mode=0o700)
    rows = [f"0 - {_FOLDER} {path}" for path in tables.folders if path not in known]
    targets = [target for target in tables.targets if target.change.path not in PASSING]
    try:
        for target in targets:
            if target.change.path not in known:
                atomic.create(new / str(target.number), target.old)
                number, flags, kind, _, path = target.row.split(" ", 4)
                rows.append(f"{number} {flags} {kind} {path}")
        ours = [f"{_fingerprint(target.new)} {target.change.path}" for target in targets]
        atomic.write(new / "index", _text(rows))
        atomic.write(new / "ours", _text(ours))
        new.rename(layout.baseline / f"{last + 1:06}.{transaction}")
        sync_folder(layout.baseline)
    except OSError as error:
        raise InstallError(f"cannot keep the originals in {layout.baseline}: {error.strerror}", "free space") from error


def _transactions(layout: Layout) -> list[Path]:
    return sorted(path.parent for path in layout.baseline.glob("[0-9]*.*/index"))


def _rows(folder: Path) -> Iterator[OriginalPath]:
    for line in _lines(folder / "index"):
        number, flags, kind, path = line.split(" ", 3)
        yield OriginalPath(path, flags, kind, folder / number)


def _lines(path: Path) -> Sequence[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InstallError(f"cannot read {path}: {error.strerror}", "run it as root") from error


def _text(rows: Sequence[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def _change(original: OriginalPath) -> FileChange:
    entry = read_entry(original.kept) if original.kind != atomic.NOTHING else PathEntry()
    return FileChange(
        original.path,
        content=entry.content,
        link_to=entry.link_to,
        mode=entry.mode,
        owner=(entry.uid, entry.gid),
        k3s_reads="k" in original.flags,
        early="e" in original.flags,
    )


def _fingerprint(entry: PathEntry) -> str:
    said = f"{entry.kind} {entry.mode:o} {entry.uid}:{entry.gid} {entry.link_to or ''} ".encode()
    return hashlib.sha256(said + (entry.content or b"")).hexdigest()
