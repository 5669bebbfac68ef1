"""The texts of the limits files: what a container holds by card, or less where a live limit says so."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from edgegpu_core.choices.modes import PluginIsolation
from edgegpu_core.deviceid import DeviceKind, count_by_card
from edgegpu_core.ledger import CheckpointEntry
from edgegpu_core.nodeview import NodeView
from edgegpu_plugin.config.schema import ComputePolicy, IsolationSection
from edgegpu_plugin.containers.container_folder import CardLimits, Charge, limits_text
from edgegpu_plugin.containers.held.bypass import ContainerKey
from edgegpu_plugin.containers.held.container_state import MIB
from edgegpu_plugin.containers.held.records import is_mps_client, units_by_card
from edgegpu_plugin.containers.held.uncounted import UncountedMemory
from edgegpu_plugin.records.selftest_results import SelftestResults

_CONTEXT_MIB = 256
"""What counts for a context on a card where no self-test has seen one: an estimate."""


@dataclass(eq=False, slots=True, kw_only=True)
class LimitsTexts:
    """What the limits files say, by settings and by what was measured."""

    settings: IsolationSection
    able: Callable[[], Collection[str]]
    """Returns the cards whose time MPS shares now."""
    selftest: SelftestResults | None
    uncounted: UncountedMemory
    charges: Mapping[ContainerKey, Mapping[str, Charge]] = field(default_factory=dict)
    """How much of the measured time is charged to containers, by card."""

    def text(
        self, view: NodeView, key: ContainerKey, entries: Iterable[CheckpointEntry], live: Mapping[str, int]
    ) -> str:
        """Return the text of a container's limits file.

        Args:
            view: the node.
            key: the container.
            entries: kubelet's records of it.
            live: the units that it may use, by card, where that is less than it holds.
        """
        unit_bytes, core = view.model.unit_mib * MIB, self.core(view, key)
        shares = self.able() if any(is_mps_client(entry) for entry in entries) else ()
        policy, charges = self.settings.compute.value, self.charges.get(key, {})
        uncounted = self.uncounted.bytes.get(key, {})
        limits = {
            card: CardLimits(
                min(held, live.get(card, held)) * unit_bytes,
                core.get(card, 0),
                context_bytes=self._context_mib(card) * MIB,
                policy=PluginIsolation.MPS.value if card in shares else policy,
                charge=charges.get(card),
                uncounted_bytes=uncounted.get(card, 0),
            )
            for card, held in units_by_card(view, *key).items()
        }
        return limits_text(limits)

    def core(self, view: NodeView, key: ContainerKey) -> dict[str, int]:
        """Return the percent of each card's time that a container is held to; none for what was given without."""
        if self.settings.compute is ComputePolicy.OFF:
            return {}
        return count_by_card(view.ledger.grant(*key).ids.get(DeviceKind.CORE, ()))

    def _context_mib(self, card: str) -> int:
        """Return the MiB that count for a CUDA context: as configured, as the self-test saw it, or the estimate."""
        learned = None if self.selftest is None else self.selftest.context_mib(card)
        estimate = _CONTEXT_MIB if learned is None else learned
        return estimate if self.settings.context_mib is None else self.settings.context_mib
