"""The option `--reserve-mib` of an installation, and what a new one keeps back of each card."""

from collections.abc import Callable
from dataclasses import dataclass

from edgegpu_agent.cli.common import CliError
from edgegpu_core.model import ResourceModel
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.cards import KeptMemory, read_kept
from edgegpu_installer.plan.plugin_config import unit_mib

AUTO = "auto"
_MOST_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOptions:
    """The options of an installation that say what it offers of cards; None, where they may be, was not given.

    `offers`: whether the machine's cards are offered at all.
    """

    driver_root: str | None = None
    unit_mib: int | None = None
    offers: bool = True


def wanted_reserve(
    text: str | None, layout: Layout, *, options: CardOptions, say: Callable[[str], None]
) -> int | str | None:
    """Return the reserve to set; None where the plugin's configuration says it.

    A new installation keeps back what the driver itself keeps of each card, and says how much that is. A box in use
    keeps the units that it offers.

    Args:
        text: the option; None where it was not given.
        layout: the paths of this box.
        options: the options about cards.
        say: called with a line for the user.

    Raises:
        CliError: the option is neither `auto` nor a number of MiB.
        InstallError: the plugin's configuration cannot be read.
    """
    if text is not None and text != AUTO:
        if not text.isdecimal() or int(text) > _MOST_MIB:
            remedy = f"give auto, or a number from 0 to {_MOST_MIB}"
            raise CliError(f"cannot install with --reserve-mib {text}: it is no number of MiB", remedy=remedy)
        return int(text)
    there = layout.plugin_yaml
    if text is None and there.exists():
        return None
    if options.offers:
        unit = max(1, options.unit_mib or unit_mib(there.read_text() if there.exists() else None))
        for card in read_kept(layout, driver_root=options.driver_root or "/"):
            say(f"note: {_preview(card, unit)}")
    return AUTO


def _preview(card: KeptMemory, unit: int) -> str:
    """Return what of a card can be offered, and what the driver keeps of it."""
    units = ResourceModel(unit_mib=unit, reserve_mib=None).units_of(card.total_mib, kept_mib=card.kept_mib)
    kept = "the driver does not say what it keeps" if card.kept_mib is None else f"the driver keeps {card.kept_mib}"
    return f"card {card.index} has {units} units of {unit} MiB to offer: of its {card.total_mib} MiB {kept}"
