"""The memory that containers use of the cards: whose the processes are that the driver lists."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.containers.cgroups import CgroupOwner, owner_of
from edgegpu_plugin.records.node_state import Snapshot

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """What some processes use of one card; `memory_bytes` is None where the driver does not say it of each of them."""

    processes: int = 0
    memory_bytes: int | None = 0

    def plus(self, other: "ProcessMemory") -> "ProcessMemory":
        """Return the use of both."""
        known = self.memory_bytes is not None and other.memory_bytes is not None
        total = (self.memory_bytes or 0) + (other.memory_bytes or 0)
        return ProcessMemory(self.processes + other.processes, total if known else None)


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """The use of each card that was measured, by the owner of the processes; None stands for processes of no pod."""

    at_s: float
    cards: Mapping[str, Mapping[CgroupOwner | None, ProcessMemory]]


@dataclass(eq=False, slots=True, kw_only=True)
class MemoryUseReader:
    """The last measurement; `take` is called on NVML's thread, `document` on any."""

    proc: Path
    last: MemoryReading | None = field(default=None, init=False)

    def take(self, at_s: float, processes: Mapping[str, Iterable[CardProcess]]) -> None:
        """Take the processes on each card that was asked; those that have ended meanwhile use nothing any more."""
        cards: dict[str, dict[CgroupOwner | None, ProcessMemory]] = {}
        for card, some in processes.items():
            uses = cards.setdefault(card, {})
            for process in some:
                try:
                    owner = owner_of((self.proc / str(process.pid) / "cgroup").read_text("utf-8", "replace"))
                except OSError:
                    continue
                uses[owner] = uses.get(owner, ProcessMemory()).plus(ProcessMemory(1, process.memory_bytes))
        self.last = MemoryReading(at_s, cards)

    def document(self, snapshot: Snapshot) -> dict[str, Any] | None:
        """Return the measurement for the status document; None before the first.

        Each container has a row for each card that it holds or uses, if that card was measured. Processes of no pod
        have a row without `uid`; where a pod's container cannot be told, its row has no `container`, and the pod's
        containers that seem to use nothing have none.
        """
        last = self.last
        if last is None:
            return None
        rows: dict[tuple[str, str, str], ProcessMemory] = {
            (card, uid, container): ProcessMemory() for uid, container, card in _holders(snapshot) if card in last.cards
        }
        for card, uses in last.cards.items():
            for owner, used in uses.items():
                key = (card, *_named(owner, snapshot))
                rows[key] = rows.get(key, ProcessMemory()).plus(used)
        unclear = {(card, uid) for card, uid, container in rows if uid and not container}
        rows = {key: used for key, used in rows.items() if used.processes or key[:2] not in unclear}
        return {"at": int(last.at_s), "containers": [_row(*key, used) for key, used in rows.items()]}


def _holders(snapshot: Snapshot) -> Iterable[tuple[str, str, str]]:
    """Yield the pod's UID in the API, the container and the card of each share that kubelet has given."""
    for uid in snapshot.view.ledger.pods():
        for container, grant in snapshot.view.ledger.grants(uid).items():
            for card in grant.cards():
                yield _api_uid(uid, snapshot), container, card


def _api_uid(kubelet_uid: str, snapshot: Snapshot) -> str:
    pod = snapshot.view.pods.get(kubelet_uid)
    return kubelet_uid if pod is None else pod.uid


def container_of(owner: CgroupOwner, snapshot: Snapshot) -> str:
    """Return the name of a process's container; empty when it is not known.

    Before the API has told of a start, the one container of the pod that holds a share is taken for it: no other has
    the device.
    """
    pod = snapshot.view.pods.get(owner.pod_uid)
    holders = tuple(snapshot.view.ledger.grants(owner.pod_uid))
    running = {} if pod is None else {id_: name for name, id_ in pod.running}
    return running.get(owner.container_id, holders[0] if len(holders) == 1 else "")


def _named(owner: CgroupOwner | None, snapshot: Snapshot) -> tuple[str, str]:
    """Return the pod's UID in the API and the container's name; empty texts for what is not known."""
    if owner is None:
        return "", ""
    return _api_uid(owner.pod_uid, snapshot), container_of(owner, snapshot)


def _row(card: str, uid: str, container: str, used: ProcessMemory) -> dict[str, Any]:
    memory_mib = None if used.memory_bytes is None else used.memory_bytes // _MIB
    row = {"card": card, "uid": uid, "container": container, "processes": used.processes, "memory_mib": memory_mib}
    return {name: value for name, value in row.items() if value not in ("", None)}
