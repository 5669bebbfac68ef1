"""What isolation `mps` adds to the limiter: shares of the cards' multiprocessors, by the node's MPS daemon."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from edgegpu_core.choices.answers import given_by
from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.deviceid import count_by_card
from edgegpu_core.ledger import CheckpointEntry
from edgegpu_core.reasons import MPS_REASON
from edgegpu_plugin.containers.held.bypass import ContainerKey
from edgegpu_plugin.containers.held.container_state import ContainerIsolation
from edgegpu_plugin.containers.held.records import is_mps_client
from edgegpu_plugin.containers.mps.clients import MpsClients
from edgegpu_plugin.containers.mps.daemon import MpsDaemon, can_share, time_reason
from edgegpu_plugin.pb import Mount
from edgegpu_plugin.records.node_state import NodeState


class MpsShares:
    """The daemon, its clients, and which of the node's cards it can share."""

    def __init__(self, state: NodeState, *, root: Path, run: Path, proc: Path, is_wanted: bool) -> None:
        """Build what the node has of MPS.

        Args:
            state: what is known of this node.
            root: the root of the driver's files.
            run: the run folder.
            proc: where the clients are looked up.
            is_wanted: whether containers of pods that choose nothing have such shares.
        """
        self._state = state
        self._is_wanted = is_wanted
        self._daemon = MpsDaemon(root=root, run=run, proc=proc)
        self.clients = MpsClients(daemon=self._daemon)
        """Which containers have processes that are no clients."""

    def prepare(self) -> None:
        """Make what the unit of the daemon waits for, or take it away; before that unit is started."""
        self._daemon.prepare(wanted=self._is_wanted)

    def keep(self, entries: Callable[[], Iterable[CheckpointEntry] | None]) -> None:
        """Keep the daemon's logs small, and let it go once neither the mode nor a container wants it.

        Args:
            entries: returns kubelet's entries of the containers that hold something; None while they are not known.
        """
        self._daemon.trim_logs()
        if self._is_wanted or not self._daemon.is_there:
            return
        found = entries()
        if found is not None and not any(is_mps_client(entry) for entry in found):
            self._daemon.end_unneeded()

    def add_to(
        self, envs: Mapping[str, str], mounts: list[Mount], ids: Collection[str]
    ) -> tuple[Mapping[str, str], list[Mount]]:
        """Return what makes a container with these devices a client, where MPS can share all of their cards.

        Before Volta its clients share their memory too.
        """
        if not count_by_card(ids).keys() <= self.able():
            return envs, mounts
        return {**envs, **self._daemon.envs()}, [*mounts, *(self._daemon.mounts() if mounts else ())]

    def able(self) -> set[str]:
        """Return the cards that MPS can share, by UUID."""
        return {card.uuid for card in self._state.cards() if can_share(card)}

    def problem(self) -> str:
        """Return why shares of multiprocessors are not given on this node, in the mode that has them."""
        problem = self._daemon.problem(self._state.cards()) if self._is_wanted else ""
        return f"{MPS_REASON}{problem}" if problem else ""

    def reason(self, key: ContainerKey, entries: Iterable[CheckpointEntry], now: ContainerIsolation) -> str:
        """Return why a container that is to have shares of multiprocessors has shares of time."""
        by_mps = any(given_by(entry.answer).isolation == PluginIsolation.MPS for entry in entries)
        if now.state != "enforced" or not now.core or not by_mps:
            return ""
        problem = self._daemon.problem(card for card in self._state.cards() if card.uuid in now.core)
        return time_reason(problem) if problem else self.clients.reason(key)
