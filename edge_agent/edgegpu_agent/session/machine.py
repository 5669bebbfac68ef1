"""What a box on its link keeps on the machine, and reads of it: journals, clocks, what the installer does."""

import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgegpu_agent.identity.identity_files import BoxIdentity
from edgegpu_agent.ports import Clock
from edgegpu_base.process.clocks import boot_id, boot_s
from edgegpu_installer.changes import TransactionKind
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine import atomic
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_sync.link.link import SpokenVersion

_LOG = logging.getLogger(__name__)

_STAYS = frozenset({TransactionState.ROLLING_BACK, TransactionState.ROLLED_BACK, TransactionState.INCONSISTENT})
"""An uninstall in one of these states leaves edgegpu where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxPaths:
    """Where a box keeps its journals, and where it answers; `root` is where `proc` is, `tx` the installer's journal."""

    journals: Path
    run: Path
    root: Path
    tx: Path


def leaving(journal: TransactionJournal) -> Literal["stop", "uninstall"]:
    """Return why the agent goes, for its goodbye: edgegpu is being taken off this machine, or it is stopped."""
    try:
        record = journal.read()
    except InstallError:
        return "stop"
    goes = record is not None and record.op is TransactionKind.UNINSTALL and record.state not in _STAYS
    return "uninstall" if goes else "stop"


class LinkMemory:
    """What the link remembers over restarts; what cannot be read or written is found out again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def recall(self) -> SpokenVersion | None:
        """Return what was remembered last."""
        try:
            return SpokenVersion(float(json.loads(self._path.read_bytes())["since"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remember(self, spoken: SpokenVersion | None) -> None:
        """Remember this, or nothing."""
        try:
            if spoken is None:
                self._path.unlink(missing_ok=True)
            else:
                atomic.write(self._path, json.dumps({"since": spoken.since}).encode())
        except (OSError, InstallError) as error:
            _LOG.warning("cannot keep which version the broker speaks: %s", error)


def boot_clock(root: Path) -> Clock:
    """Return the clocks of this boot; `root` is where `proc` is."""
    return Clock(boot=boot_id(root), boot_s=boot_s, wall_s=time.time)


def journal_of(folder: Path, identity: BoxIdentity) -> Path:
    """Return the journal of this device id, without those of others: another cloud counts enrolments anew."""
    mine = folder / f"{identity.id}.db"
    for path in folder.glob("*.db*") if folder.is_dir() else ():
        if not path.name.startswith(mine.name):
            path.unlink(missing_ok=True)
    return mine
