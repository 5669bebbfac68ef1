"""Which containers have processes on a card that are no clients of MPS, by the daemon's list against the driver's."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from edgegpu_core.reasons import MPS_REASON
from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.containers.cgroups import CgroupOwner, owner_of
from edgegpu_plugin.containers.held.bypass import ContainerKey
from edgegpu_plugin.containers.mps.daemon import BY_TIME, MpsDaemon


@dataclass(eq=False, slots=True, kw_only=True)
class MpsClients:
    """Which containers have processes that are no clients; `look` is called on one thread, `reason` on any."""

    daemon: MpsDaemon
    _suspects: frozenset[tuple[ContainerKey, int]] = field(default=frozenset(), init=False)
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
        clients = self.daemon.clients() if wanted else frozenset()
        found: frozenset[tuple[ContainerKey, int]] = frozenset()
        if clients is not None:
            pids = {one.pid for some in processes.values() for one in some} - clients
            keys = ((self._container(pid, key_of), pid) for pid in pids)
            found = frozenset((key, pid) for key, pid in keys if key is not None and key in wanted)
        reasons = {
            key: f"{MPS_REASON}process {pid} is no client of MPS: {BY_TIME}"
            for key, pid in sorted(found & self._suspects, reverse=True)
        }
        changed = reasons != self._reasons
        self._suspects, self._reasons = found, reasons
        return changed

    def _container(self, pid: int, key_of: Callable[[CgroupOwner], ContainerKey]) -> ContainerKey | None:
        try:
            owner = owner_of((self.daemon.proc / str(pid) / "cgroup").read_text("utf-8", "replace"))
        except OSError:  # it has ended
            return None
        return None if owner is None else key_of(owner)
