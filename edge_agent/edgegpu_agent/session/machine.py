"""The machine as a box's session uses it: journals, clocks, and the installer's state."""

import json
import logging
import time
from pathlib import Path
from typing import Any, Literal

from edgegpu_agent.identity.identity_files import BoxIdentity
from edgegpu_agent.ports import Clock
from edgegpu_base.files import stamp
from edgegpu_base.process.clocks import boot_id, boot_s
from edgegpu_installer.changes import TransactionKind
from edgegpu_installer.errors import InstallError
from edgegpu_installer.machine import atomic
from edgegpu_installer.transaction.ended import EndedTransaction, ended_transactions
from edgegpu_installer.transaction.journal import TransactionJournal
from edgegpu_installer.transaction.states import TransactionState
from edgegpu_sync.link.routes import BrokerRoute, proxy_of
from edgegpu_sync.link.rules import SpokenVersion

_LOG = logging.getLogger(__name__)

_PORTS = range(1, 65_536)
_STAYS = frozenset({TransactionState.ROLLING_BACK, TransactionState.ROLLED_BACK, TransactionState.INCONSISTENT})
"""An uninstall in one of these states leaves edgegpu where it is."""


def goodbye_reason(journal: TransactionJournal) -> Literal["stop", "uninstall"]:
    """Return the reason for the agent's goodbye message: edgegpu is being uninstalled, or the agent is stopped."""
    try:
        record = journal.read()
    except InstallError:
        return "stop"
    goes = record is not None and record.op is TransactionKind.UNINSTALL and record.state not in _STAYS
    return "uninstall" if goes else "stop"


class TransactionHistory:
    """The installer's transactions that have ended; the journal is read again only when it has changed."""

    def __init__(self, journal: TransactionJournal) -> None:
        """Take the installer's journal; nothing is read yet."""
        self._journal = journal
        self._mark: tuple[tuple[int, ...], ...] = ()
        self._ended: tuple[EndedTransaction, ...] = ()

    def ended(self) -> tuple[EndedTransaction, ...]:
        """Return them, oldest first; the same object while the journal is the same, or cannot be read."""
        mark = tuple(_stamp(self._journal.folder / name) for name in ("state", "log"))
        if mark != self._mark:
            try:
                record = self._journal.read()  # before the history, which is never behind it then
            except InstallError as error:
                _LOG.warning("cannot tell which changes of the machine have ended: %s", error)
            else:
                self._ended = ended_transactions(self._journal.history(), record)
            self._mark = mark
        return self._ended


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        return stamp(path)
    except OSError:
        return ()


class LinkMemory:
    """The link's memory over restarts: the broker's MQTT version, and the route by which it connected last.

    If it cannot be read, the link finds out again. The file may hold a proxy's password, and has mode 0600.
    """

    def __init__(self, path: Path, device: str) -> None:
        """Take the file, and the box's id: in another cloud the box has another one, and the route leads elsewhere."""
        self._path, self._device = path, device

    def recall(self) -> SpokenVersion | None:
        """Return the remembered version; None where there is none."""
        since = self._read().get("since")
        return SpokenVersion(float(since)) if isinstance(since, int | float) else None

    def remember(self, spoken: SpokenVersion | None) -> None:
        """Remember a version; None forgets it."""
        self._write({"since": spoken.since if spoken is not None else None})

    def recall_route(self) -> BrokerRoute | None:
        """Return the route by which the link connected last; None where none is known."""
        route: Any = self._read().get("route")
        try:
            if route["device"] != self._device or route["port"] not in _PORTS:
                return None
            return BrokerRoute(host=str(route["host"]), port=int(route["port"]), proxy=proxy_of(str(route["proxy"])))
        except (ValueError, KeyError, TypeError):
            return None

    def remember_route(self, route: BrokerRoute) -> None:
        """Remember the route by which the link has connected."""
        if route != self.recall_route():
            proxy = route.proxy.url if route.proxy is not None else ""
            place = {"host": route.host, "port": route.port, "proxy": proxy}
            self._write({"route": {"device": self._device, **place}})

    def _read(self) -> dict[str, Any]:
        try:
            value = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def _write(self, change: dict[str, Any]) -> None:
        known = {name: value for name, value in (self._read() | change).items() if value is not None}
        try:
            if known:
                atomic.write(self._path, json.dumps(known).encode())
            else:
                self._path.unlink(missing_ok=True)
        except (OSError, InstallError) as error:
            _LOG.warning("cannot keep how the broker was reached: %s", error)


def boot_clock(root: Path) -> Clock:
    """Return the clocks of this boot; `root` is the folder with `proc`."""
    return Clock(boot=boot_id(root), boot_s=boot_s, wall_s=time.time)


def journal_of(folder: Path, identity: BoxIdentity) -> Path:
    """Return the journal of this device id, and remove those of others: another cloud counts enrolments anew."""
    mine = folder / f"{identity.id}.db"
    for path in folder.glob("*.db*") if folder.is_dir() else ():
        if not path.name.startswith(mine.name):
            path.unlink(missing_ok=True)
    return mine
