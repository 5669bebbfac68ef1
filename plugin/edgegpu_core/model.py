"""How a cluster names and counts GPU shares: resource names, unit size, reserve, and the limits that kubelet sets."""

from dataclasses import dataclass

CORE_PER_CARD = 100
"""Hundredths of a card's compute that one card offers."""

MAX_DEVICES = 25_000
"""Devices of one resource on one node: above it ListAndWatch nears gRPC's 4 MiB message limit (29 500 measured)."""

_GIB_MIB = 1_024


class ModelError(ValueError):
    """The resource model cannot work; the text names the value and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceModel:
    """The resource names, unit size and reserve of a node."""

    memory_resource: str = "baidu.com/vcuda-memory"
    core_resource: str = "baidu.com/vcuda-core"
    unit_mib: int = 256
    reserve_mib: int | None = 0
    """MiB of each card that are not offered; None: what the driver keeps of it."""
    core_required: bool = True

    def units_of(self, memory_mib: int, *, kept_mib: int | None = None) -> int:
        """Return the units of a card with `memory_mib` MiB: floor((T - reserve) / unit), never negative.

        `kept_mib` is what the driver keeps of the card; None where it does not say: then that counts as nothing.
        """
        reserve_mib = (kept_mib or 0) if self.reserve_mib is None else self.reserve_mib
        return max(0, (memory_mib - reserve_mib) // self.unit_mib)

    def check_device_count(self, memories_mib: list[int]) -> None:
        """Refuse a unit size that makes more devices than kubelet's message limit carries.

        Raises:
            ModelError: with the smallest unit size that fits.
        """
        if sum(self.units_of(mib) for mib in memories_mib) < MAX_DEVICES:
            return
        fitting = self._smallest_unit(memories_mib)
        count = sum(self.units_of(mib) for mib in memories_mib)
        raise ModelError(
            f"resources.unit_mib: {self.unit_mib} MiB makes {count} devices of {self.memory_resource} on this node, "
            f"and kubelet takes fewer than {MAX_DEVICES}: set unit_mib to {fitting} or more",
        )

    def _smallest_unit(self, memories_mib: list[int]) -> int:
        """Return the smallest unit above this one that makes few enough devices, by halving: memories may be absurd."""
        few, many = max([self.unit_mib + 1, *memories_mib]), self.unit_mib
        while few - many > 1:
            middle = (few + many) // 2
            if sum(max(0, (mib - (self.reserve_mib or 0)) // middle) for mib in memories_mib) < MAX_DEVICES:
                few = middle
            else:
                many = middle
        return few


def short_name(resource: str) -> str:
    """Return a resource name without its domain: `vcuda-memory`."""
    return resource.rpartition("/")[2]


def size_text(mib: float) -> str:
    """Return an amount of memory for people: `512 MiB`, `2.5 GiB`."""
    return f"{mib:g} MiB" if mib < _GIB_MIB else f"{round(mib / _GIB_MIB, 2):g} GiB"
