"""logs.collect: upload logs, versions and the doctor's report as one archive, with all secrets taken out."""

import gzip
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from edgegpu_agent.actions.bundles import sha256_of
from edgegpu_agent.actions.https import HttpsClient, WebError
from edgegpu_agent.actions.idempotent import Idempotent
from edgegpu_agent.actions.programs import ActionTimer, capture
from edgegpu_agent.actions.redact import Redactor
from edgegpu_agent.ports import ActionOutcome
from edgegpu_sync.ids import CommandId
from edgegpu_sync.rules.ops import Args, LogsArgs
from edgegpu_sync.states import CommandState

if TYPE_CHECKING:
    import tarfile

OUR_UNITS = (
    "edgegpu-agent",
    "edgegpu-plugin",
    "edgegpu-mps",
    "edgegpu-selftest",
    "edgegpu-recover",
    "edgegpu-farewell",
)

_MIB = 1024 * 1024
_PROGRAM_S = 120.0
_MORE = 2
"""How many times more of a log than fits is read: hiding secrets makes lines shorter."""
_MARGIN_BYTES = 64 * 1024
"""Room for headers, and for what gzip adds to data that it cannot compress."""
_SMALL = 4
"""One part in so many of the archive, a quarter, is for what is not a unit's log."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """One file of the archive: its name, the program whose output it holds, and whether it is a log."""

    name: str
    command: tuple[str, ...]
    is_log: bool = False


def sources(program: Sequence[str], k3s: str, since_s: int) -> tuple[LogSource, ...]:
    """Return the sources of all files in the archive.

    Args:
        program: the command line `edgegpu`, as words.
        k3s: k3s's unit; empty where there is none.
        since_s: how old the oldest line of a log may be.
    """
    units = (*OUR_UNITS, *((k3s,) if k3s else ()))
    logs = ("journalctl", "--no-pager", "--quiet", "--output=short-iso-precise", f"--since=-{since_s}s")
    return (
        LogSource("versions.txt", (*program, "version")),
        LogSource("system.txt", ("uname", "-a")),
        LogSource("doctor.json", (*program, "doctor", "--json")),
        LogSource("status.json", (*program, "status", "--json")),
        LogSource("transactions.json", (*program, "transaction", "show", "--history", "--json")),
        *(LogSource(f"logs/{unit}.log", (*logs, f"--unit={unit}"), is_log=True) for unit in units),
    )


def archive_url(url: str, id_: CommandId) -> str:
    """Return the archive's address: `url` itself, or a file named by the command's id where `url` ends with `/`."""
    return f"{url}{id_}.tar.gz" if url.endswith("/") else url


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectLogs(Idempotent):
    """The action `logs.collect`; `folder` has a subfolder for each command, and each command makes a new redactor."""

    folder: Path
    web: HttpsClient
    timer: ActionTimer
    program: Sequence[str]
    k3s: Callable[[], str]
    redactor: Callable[[], Redactor]
    most_mib: int
    """The limit for one archive, whatever the command asks for."""
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    busy: set[CommandId] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def act(self, id_: CommandId, args: Args, token: str) -> ActionOutcome:
        """Collect the logs, upload the archive, remove it."""
        del token
        asked = cast("LogsArgs", args)
        try:
            archive = self._begin(id_) / f"{id_}.tar.gz"
            self._write(archive, asked)
            size, digest = archive.stat().st_size, sha256_of(archive)
            self.web.put(archive_url(asked.url, id_), archive)
        except (WebError, OSError) as error:
            return ActionOutcome.failed(f"cannot collect the logs: {error}")
        finally:
            self._end(id_)
        return ActionOutcome(state=CommandState.SUCCEEDED, data={"bytes": size, "sha256": digest})

    def _begin(self, id_: CommandId) -> Path:
        """Make the command's folder; remove folders of no running command, which an agent that died has left."""
        own = self.folder / id_
        with self.lock:
            self.busy.add(id_)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self.folder.iterdir():
                if left.name not in self.busy:
                    _remove(left)
            own.mkdir(mode=0o700, exist_ok=True)
        return own

    def _end(self, id_: CommandId) -> None:
        with self.lock:
            self.busy.discard(id_)
            _remove(self.folder / id_)

    def _write(self, archive: Path, asked: LogsArgs) -> None:
        """Write the archive; each file has a share of the room, so the limit holds even if nothing is compressed."""
        import tarfile  # noqa: PLC0415  (0.4 MiB for a rare command)

        redactor = self.redactor()
        wanted = sources(self.program, self.k3s(), asked.since_s)
        logs = sum(one.is_log for one in wanted)
        room = min(asked.max_mib, self.most_mib) * _MIB - _MARGIN_BYTES
        small, large = room // _SMALL // (len(wanted) - logs), room * (_SMALL - 1) // _SMALL // logs
        with archive.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as packed:
            archive.chmod(0o600)
            with tarfile.open(fileobj=cast("IO[bytes]", packed), mode="w|") as tar:
                for one in wanted:
                    self._add(
                        tar, one, redactor, clean=archive.with_name("clean"), most_bytes=large if one.is_log else small
                    )

    def _add(self, tar: "tarfile.TarFile", one: LogSource, redactor: Redactor, *, clean: Path, most_bytes: int) -> None:
        with capture(one.command, self.timer, within_s=_PROGRAM_S, env=self.env) as said, clean.open("wb") as out:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _MORE * most_bytes))
            for line in redactor.lines(raw.decode(errors="replace") for raw in said):
                out.write(line.encode())
        with clean.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            info = tar.tarinfo(one.name)
            info.size, info.mode = min(size, most_bytes), 0o600
            file.seek(size - info.size)  # of a long log the newest part stays
            tar.addfile(info, file)
        clean.unlink()


def _remove(left: Path) -> None:
    if left.is_dir() and not left.is_symlink():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)
