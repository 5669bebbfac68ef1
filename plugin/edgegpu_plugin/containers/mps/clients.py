"""Which containers have processes on a card that are no clients of MPS, by the daemon's list against the driver's."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from edgegpu_core.reasons import MPS_REASON
from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.containers.cgroups import CgroupOwner, owner_of
from edgegpu_plugin.containers.held.bypass import ContainerKey
from edgegpu_plugin.containers.mps.daemon import BY_TIME, MpsDaemon

_AGAIN_S = 30.0
"""Between two questions about processes that are no clients, as long as they are the same."""
_START_FIELD = 19
"""Of /proc/PID/stat after the program's name: field 22, starttime."""


@dataclass(eq=False, slots=True, kw_only=True)
class MpsClients:
    """Which containers have processes that are no clients; `look` is called on one thread, `reason` on any."""

    daemon: MpsDaemon
    _clients: frozenset[tuple[int, str]] = field(default=frozenset(), init=False)
    """The processes that were clients when the daemon was asked, with the start of each; a client stays one."""
    _next_s: float = field(default=0.0, init=False)
    _suspects: frozenset[tuple[ContainerKey, int]] = field(default=frozenset(), init=False)
    _confirmed: frozenset[tuple[ContainerKey, int]] = field(default=frozenset(), init=False)
    _reasons: Mapping[ContainerKey, str] = field(default_factory=dict, init=False)

    def reason(self, key: ContainerKey) -> str:
        """Return why compute of a container is held by time; empty when all of its processes are clients."""
        return self._reasons.get(key, "")

    def look(
        self,
        processes: Mapping[str, Iterable[CardProcess]],
        containers: Iterable[ContainerKey],
        key_of: Callable[[CgroupOwner], ContainerKey],
    ) -> bool:
        """Compare the processes on the cards with the daemon's clients; return whether an answer changed.

        Args:
            processes: the processes by the card's UUID, as the driver lists them now.
            containers: those that are to be clients.
            key_of: returns the container of a process.
        """
        wanted = frozenset(containers)
        on_cards = {(process.pid, self._start(process.pid)) for some in processes.values() for process in some}
        self._clients &= on_cards
        strange: frozenset[tuple[ContainerKey, int]] = frozenset()
        if wanted:
            keys = {process: self._container(process[0], key_of) for process in on_cards - self._clients}
            strange = frozenset((key, pid) for (pid, _), key in keys.items() if key is not None and key in wanted)
        if strange and not (strange == self._suspects == self._confirmed and self.daemon.clock() < self._next_s):
            strange = self._asked(strange, on_cards)
        self._confirmed = strange & self._suspects
        reasons = {
            key: f"{MPS_REASON}process {pid} is no client of MPS: {BY_TIME}"
            for key, pid in sorted(self._confirmed, reverse=True)
        }
        changed = reasons != self._reasons
        self._suspects, self._reasons = strange, reasons
        return changed

    def _asked(
        self, strange: frozenset[tuple[ContainerKey, int]], on_cards: set[tuple[int, str]]
    ) -> frozenset[tuple[ContainerKey, int]]:
        """Ask the daemon for its clients, and return which processes are none; nobody where it does not say."""
        self._next_s = self.daemon.clock() + _AGAIN_S
        clients = self.daemon.clients()
        if clients is None:
            return frozenset()
        self._clients = frozenset(process for process in on_cards if process[0] in clients)
        return frozenset((key, pid) for key, pid in strange if pid not in clients)

    def _start(self, pid: int) -> str:
        """Return when a process began, in the kernel's ticks: a number may be another process's by the next look."""
        try:
            text = (self.daemon.proc / str(pid) / "stat").read_text("utf-8", "replace")
        except OSError:
            return ""
        return text.rpartition(")")[2].split()[_START_FIELD]

    def _container(self, pid: int, key_of: Callable[[CgroupOwner], ContainerKey]) -> ContainerKey | None:
        try:
            owner = owner_of((self.daemon.proc / str(pid) / "cgroup").read_text("utf-8", "replace"))
        except OSError:  # it has ended
            return None
        return None if owner is None else key_of(owner)
