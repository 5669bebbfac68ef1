"""The check that running containers see the cards that kubelet gave them, since the injection may have failed."""

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgegpu_core.inventory import Card
from edgegpu_core.podview import PodView
from edgegpu_plugin.containers.cdi import node_names
from edgegpu_plugin.containers.cgroups import first_processes
from edgegpu_plugin.records.node_state import Snapshot

_MAX_ATTEMPTS = 5
"""How often a container's processes are searched for; a container that is not found is not checked."""


@dataclass(frozen=True, slots=True)
class ContainerWithoutCards:
    """A container that runs without its cards."""

    pod: PodView
    container: str
    cards: tuple[str, ...]
    """The UUIDs of the missing cards."""


@dataclass(eq=False, slots=True, kw_only=True)
class VisibilityCheck:
    """The check of each container once after its start, by the device nodes in its /dev; for one thread."""

    dev: Path
    """The folder of the cards' device nodes on this machine."""
    cards: Callable[[], Iterable[Card]]
    """Returns the cards of this machine."""
    proc: Path
    """The kernel's /proc."""
    _attempts: dict[str, int] = field(default_factory=dict, init=False)
    _missing: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)

    def check(self, snapshot: Snapshot) -> tuple[ContainerWithoutCards, ...]:
        """Return the containers that run without a card of theirs."""
        nodes = {card.uuid: node_names(card)[0] for card in self.cards()}
        running = {
            id_: (pod, name, tuple(card for card in snapshot.view.ledger.grant(uid, name).cards() if card in nodes))
            for uid, pod in snapshot.view.pods.items()
            for name, id_ in pod.running
        }
        self._attempts = {id_: count for id_, count in self._attempts.items() if id_ in running}
        self._missing = {id_: cards for id_, cards in self._missing.items() if id_ in running}
        wanted = {id_ for id_, (_, _, cards) in running.items() if cards and self._attempts.get(id_, 0) < _MAX_ATTEMPTS}
        for id_ in wanted:
            self._attempts[id_] = self._attempts.get(id_, 0) + 1
        for id_, pid in first_processes(self.proc, wanted).items():
            missing = self._without(pid, {card: nodes[card] for card in running[id_][2]})
            if missing is not None:
                self._attempts[id_] = _MAX_ATTEMPTS
                self._missing[id_] = missing
        return tuple(ContainerWithoutCards(*running[id_][:2], cards) for id_, cards in self._missing.items() if cards)

    def _without(self, pid: int, nodes: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return the cards whose device node a process does not see; None when it has ended or cannot be inspected.

        A container's author controls its files, so nothing there is followed or opened.
        """
        try:
            dev = os.open(self.proc / str(pid) / "root/dev", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return None
        try:
            return tuple(card for card, name in nodes.items() if not self._has(dev, name))
        finally:
            os.close(dev)

    def _has(self, dev: int, name: str) -> bool:
        try:
            own = (self.dev / name).stat()
        except OSError:  # this machine lacks the node itself, so its absence proves nothing
            return True
        try:
            inside = os.stat(name, dir_fd=dev, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_IFMT(inside.st_mode) == stat.S_IFMT(own.st_mode) and inside.st_rdev == own.st_rdev
