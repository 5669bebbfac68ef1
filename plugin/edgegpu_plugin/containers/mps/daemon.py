"""NVIDIA MPS on this node: the control daemon of `edgegpu-mps.service`, and what cards it needs.

The daemon gives each client a percent of a card's multiprocessors. The limiter makes processes its clients
(`plugin/limiter/cuda/cuda_mps.c`), and holds by time whoever is none. So nothing here is needed to hold a container:
this module prepares the daemon's folders, says why a share is one of time, and lets the daemon go when nobody needs it.
"""

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed
from edgegpu_base.listeners import listener
from edgegpu_core.inventory import Card
from edgegpu_core.reasons import MPS_REASON
from edgegpu_plugin.cards.driver_root import LIBRARY_FOLDERS
from edgegpu_plugin.containers.driver_files import find_tool
from edgegpu_plugin.containers.limiter_files import PIPE_FOLDER
from edgegpu_plugin.pb import Mount

_LOG = logging.getLogger(__name__)

PROGRAM = "nvidia-cuda-mps-control"
UNIT = "edgegpu-mps.service"

_OLDEST = (7, 0)
"""Volta. Before it MPS takes no percentage of multiprocessors (seen on no older card: NVIDIA's documentation)."""
_PIPE_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
_DAEMON_OPTIONS = {b"-d", b"-f"}
_ANSWER_S = 2.0
_MOST_SERVERS = 4
"""MPS has one for each user that computes, one after the other; NVML's thread waits for the answers of all."""
_AGAIN_S = 30.0
"""Between two looks whether a daemon that nobody wants may be let go."""
_SOUND_S = 60.0
"""How long the answer of a daemon counts while its process is there: it writes four to five lines for each question."""
_PID_DIGITS = 10
_KNOWN_S = 1.0
"""How long an answer about the node is taken for true: status documents come in bursts."""
_LOG_BYTES, _LOG_KEPT_BYTES = 4 << 20, 64 << 10
BY_TIME = "its compute is held by time"


def can_share(card: Card) -> bool:
    """Return whether MPS gives a client a percent of this card's multiprocessors."""
    return card.mig is None and card.capability is not None and card.capability >= _OLDEST


def card_problem(card: Card) -> str:
    """Return why shares of a card are not ones of its multiprocessors, with the remedy; empty when they can be."""
    if card.mig is not None:
        return f"card {card.label} is a MIG device, and MPS runs for whole cards alone: set isolation.mode to limiter"
    if card.capability is None:
        return f"the driver does not say which compute capability card {card.label} has: look at `nvidia-smi`"
    if card.capability < _OLDEST:
        number = ".".join(map(str, card.capability))
        return (
            f"card {card.label} ({card.name}) has compute capability {number}, and MPS shares multiprocessors from 7.0 "
            "(Volta) on: set isolation.mode to limiter"
        )
    if card.exclusive:
        return (
            f"card {card.label} is in compute mode EXCLUSIVE_PROCESS, in which only MPS can use it: "
            f"sudo nvidia-smi -i {card.uuid} -c DEFAULT"
        )
    return ""


@dataclass(eq=False, slots=True, kw_only=True)
class MpsDaemon:
    """The control daemon of this node; its unit starts it, and containers reach it by mounts alone."""

    root: Path
    """The driver's root."""
    run: Path
    proc: Path
    clock: Callable[[], float] = time.monotonic
    _known: tuple[float, str] | None = field(default=None, init=False)
    _has_quit: bool = field(default=False, init=False)
    _sound: tuple[int, float] | None = field(default=None, init=False)
    """The process of ours that answered last, and when."""
    _next_look_s: float = field(default=0.0, init=False)

    @property
    def pipe(self) -> Path:
        """The daemon's pipe folder on this machine."""
        return self.run / "mps/pipe"

    @property
    def log(self) -> Path:
        """The folder of its logs."""
        return self.run / "mps/log"

    @property
    def shm(self) -> Path:
        """What daemon and clients have as /dev/shm: the unit mounts a file system of its own there."""
        return self.run / "mps/shm"

    @property
    def settings(self) -> Path:
        """The file by which the unit starts the daemon; without it the unit starts none."""
        return self.run / "mps.env"

    def prepare(self, *, wanted: bool) -> None:
        """Make the daemon's folders and what the unit starts it with, or take the latter away."""
        program = self._program()
        try:
            if not wanted or program is None:
                self.settings.unlink(missing_ok=True)
                return
            for folder in (self.pipe, self.log, self.shm):
                folder.mkdir(parents=True, exist_ok=True)
            self.pipe.chmod(0o755)
            self.log.chmod(0o700)
            write_if_changed(self.settings, "".join(f"{k}={v}\n" for k, v in self._environment(program).items()))
        except (EdgegpuError, OSError) as error:
            _LOG.error("MPS cannot be started: %s", error)

    def mounts(self) -> list[Mount]:
        """Return what kubelet shall mount for a client."""
        return [
            Mount(PIPE_FOLDER, str(self.pipe), read_only=False),
            Mount("/dev/shm", str(self.shm), read_only=False),  # noqa: S108  (the container's)
        ]

    def envs(self) -> dict[str, str]:
        """Return what kubelet shall set for a client: what is no client of the limiter's making finds MPS by it."""
        return {_PIPE_VARIABLE: PIPE_FOLDER}

    def problem(self, cards: Iterable[Card]) -> str:
        """Return why the node's shares are ones of time, with the remedy; empty when MPS can give them."""
        if self._known is None or self.clock() - self._known[0] > _KNOWN_S:
            problem = self._daemon_problem()
            self._known = (self.clock(), problem)  # to ask may have taken longer than it is good for
        return self._known[1] or next(filter(None, map(card_problem, cards)), "")

    def _daemon_problem(self) -> str:
        program = self._program()
        if program is None:
            return (
                f"{PROGRAM} is not below {self.root}: install it with the driver (Debian and Ubuntu: "
                "nvidia-compute-utils of the driver's version), then systemctl restart edgegpu-plugin"
            )
        own, foreign = self._daemons(program)
        if foreign is not None:
            return (
                f"another MPS daemon runs on this machine (process {foreign}): end it (echo quit | {PROGRAM}, with its "
                f"{_PIPE_VARIABLE} where it has one)"
            )
        if self._sound is not None and self._sound[0] == own and self.clock() - self._sound[1] < _SOUND_S:
            return ""
        if self.ask("get_default_active_thread_percentage") is None:
            return f"the MPS daemon does not answer: systemctl status {UNIT}; systemctl restart edgegpu-plugin"
        self._sound = None if own is None else (own, self.clock())
        return ""

    def clients(self) -> frozenset[int] | None:
        """Return the processes that are clients now; None when the daemon does not say."""
        servers = self.ask("get_server_list")
        if servers is None:
            return None
        numbers, found = _numbers(servers), set[int]()
        if len(numbers) > _MOST_SERVERS:
            return None
        for server in numbers:
            found |= _numbers(self.ask(f"get_client_list {server}") or "")
        return frozenset(found)

    @property
    def is_there(self) -> bool:
        """Whether there may be a daemon: its socket is in the folder, and this process has not ended it.

        The socket of one that was killed stays there until `end_unneeded` has looked.
        """
        return not self._has_quit and (self.pipe / "control").exists()

    def end_unneeded(self) -> None:
        """Let a daemon go that no container needs any more, once it has no client; called again and again."""
        if self.clock() < self._next_look_s:
            return
        self._next_look_s = self.clock() + _AGAIN_S
        socket = self.pipe / "control"
        if listener(socket) is None:  # a daemon that was killed leaves it behind
            socket.unlink(missing_ok=True)
        elif self.clients() == frozenset():
            _LOG.info("no container needs MPS any more: its daemon is told to quit")
            self.ask("quit")
            self._has_quit = True

    def trim_logs(self) -> None:
        """Cut logs of the daemon that have grown large to their end: they lie in memory, and it appends to them."""
        with suppress(OSError):
            for path in self.log.iterdir():
                if path.stat().st_blocks * 512 > _LOG_BYTES:
                    with path.open("rb") as log:
                        log.seek(-_LOG_KEPT_BYTES, os.SEEK_END)
                        end = log.read()
                    os.truncate(path, 0)
                    with path.open("ab") as log:
                        log.write(end)

    def ask(self, command: str) -> str | None:
        """Return the daemon's answer to a command; None when there is none."""
        program = self._program()
        if program is None or not self.pipe.is_dir():
            return None
        try:
            done = subprocess.run(
                [program],
                input=f"{command}\n",
                env=self._environment(program),
                capture_output=True,
                encoding="utf-8",
                errors="replace",  # root of a container may answer in the daemon's place
                timeout=_ANSWER_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            _LOG.debug("MPS does not answer %s: %s", command, error)
            return None
        return done.stdout if done.returncode == 0 else None

    def _program(self) -> Path | None:
        return find_tool(self.root, PROGRAM)

    def _environment(self, program: Path) -> dict[str, str]:
        found = {
            "PROGRAM": str(program),
            "PATH": f"{program.parent}:{self.root / 'usr/sbin'}:/usr/sbin:/usr/bin:/sbin:/bin",  # where the server is
            _PIPE_VARIABLE: str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
        }
        if self.root != Path("/"):
            found["LD_LIBRARY_PATH"] = ":".join(str(self.root / folder) for folder in LIBRARY_FOLDERS)
        return found

    def _daemons(self, program: Path) -> tuple[int | None, int | None]:
        """Return the control daemon of this driver on our pipe folder, and one on another; None for none."""
        ours = f"{_PIPE_VARIABLE}={self.pipe}".encode()
        found: dict[bool, int] = {}
        for one in self.proc.iterdir():
            if not one.name.isdigit():
                continue
            with suppress(OSError):
                if (one / "exe").readlink() != program:
                    continue
                if _DAEMON_OPTIONS & set((one / "cmdline").read_bytes().split(b"\0")):
                    found[ours in (one / "environ").read_bytes().split(b"\0")] = int(one.name)
        return found.get(True), found.get(False)


def time_reason(problem: str) -> str:
    """Return the reason of a container whose share is one of time because of a problem of the node."""
    return f"{MPS_REASON}{problem}; until then {BY_TIME}"


def _numbers(text: str) -> set[int]:
    """Return the lines of an answer that are numbers: `Server 4711 not found` has none (470 to 550, with status 0)."""
    words = (line.strip() for line in text.splitlines())
    return {int(word) for word in words if word.isascii() and word.isdecimal() and len(word) <= _PID_DIGITS}
