"""In which order the cards of a node are tried: first-fit, best-fit, spread."""

from collections.abc import Callable
from enum import Enum

from edgegpu_core.inventory import Free
from edgegpu_core.model import CORE_PER_CARD


class Policy(Enum):
    """How to choose among the cards on which a container fits; set per node, and per pod by annotation."""

    FIRST_FIT = "first-fit"
    BEST_FIT = "best-fit"
    SPREAD = "spread"


def parse_policy(text: str) -> Policy:
    """Read a policy's name.

    Raises:
        ValueError: with the names that there are.
    """
    try:
        return Policy(text)
    except ValueError:
        names = ", ".join(policy.value for policy in Policy)
        raise ValueError(f"no placement policy {text!r}: choose one of {names}") from None


def _tightest(free: Free, position: int) -> tuple[int, int, int]:
    return (free.memory[position], free.core[position], position)


def _emptiest(free: Free, position: int) -> tuple[float, int]:
    units = free.slots[position].units or 1
    used = max(1 - free.memory[position] / units, 1 - free.core[position] / CORE_PER_CARD)
    return (used, position)


_KEYS: dict[Policy, Callable[[Free, int], tuple[float, ...]]] = {
    Policy.BEST_FIT: _tightest,
    Policy.SPREAD: _emptiest,
}


def in_order(policy: Policy, free: Free, positions: list[int]) -> list[int]:
    """Return `positions` (in PCI order) in the order in which the policy tries them."""
    key = _KEYS.get(policy)
    return positions if key is None else sorted(positions, key=lambda position: key(free, position))
