"""The option `--reserve-mib` of an installation, and what a new one keeps back of each card."""

from collections.abc import Callable

from edgegpu_agent.cli.common import CliError
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.cards import KeptMemory, read_kept

AUTO = "auto"
_MOST_MIB = 1 << 20


def wanted_reserve(
    text: str | None, layout: Layout, *, driver_root: str | None, say: Callable[[str], None]
) -> int | str | None:
    """Return the reserve to set; None where the plugin's configuration says it.

    A new installation keeps back what the driver itself keeps of each card, and says how much that is. A box in use
    keeps the units that it offers.

    Args:
        text: the option; None where it was not given.
        layout: the paths of this box.
        driver_root: where the driver is; None: `/`.
        say: called with a line for the user.

    Raises:
        CliError: the option is neither `auto` nor a number of MiB.
    """
    if text is not None and text != AUTO:
        if not text.isdecimal() or int(text) > _MOST_MIB:
            remedy = f"give auto, or a number from 0 to {_MOST_MIB}"
            raise CliError(f"cannot install with --reserve-mib {text}: it is no number of MiB", remedy=remedy)
        return int(text)
    if text is None and layout.plugin_yaml.exists():
        return None
    for line in _preview(read_kept(layout, driver_root=driver_root or "/")):
        say(f"note: {line}")
    return AUTO


def _preview(cards: tuple[KeptMemory, ...]) -> list[str]:
    """Return for each card what of it will not be offered."""
    return [
        f"card {card.index} offers {card.total_mib - card.kept_mib} of {card.total_mib} MiB: the driver keeps the rest"
        if card.kept_mib is not None
        else f"card {card.index} offers all of its {card.total_mib} MiB: the driver does not say what it keeps"
        for card in cards
    ]
