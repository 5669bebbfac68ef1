"""What `edgegpu install` is asked for in the demo: the plugin's settings, and what the demo does not have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from edgegpu_sim.api.objects import merge
from edgegpu_sim.errors import SimError

_KEYS = {
    "--policy": ("placement", "policy"),
    "--exclude": ("placement", "exclude"),
    "--unit-mib": ("resources", "unit_mib"),
    "--isolation": ("isolation", "mode"),
}
_PLAIN = frozenset({"--yes", "--json"})
_NAMED = "--transaction-id"
_NO_ISOLATION = (
    "the demo has no isolation.mode {mode}: its containers are simulated, and nothing holds them to their memory"
)


class UnknownOptionError(SimError):
    """An option of `edgegpu install` that the demo's does not know."""


@dataclass(frozen=True, slots=True)
class AskedSettings:
    """The settings of the plugin that an installation asks for, as a patch of its configuration."""

    patch: dict[str, dict[str, Any]]
    lacks: str = ""
    """What is asked for and the demo does not have."""

    def applied_to(self, text: str) -> str:
        """Return the configuration with the settings; the same text where it has them already."""
        now = yaml.safe_load(text)
        wanted = merge(now, self.patch)
        return text if wanted == now else yaml.safe_dump(wanted, sort_keys=False)


def settings_of(words: Sequence[str]) -> AskedSettings:
    """Read the options of `edgegpu install`.

    Raises:
        UnknownOptionError: an option is unknown.
    """
    patch: dict[str, dict[str, Any]] = {}
    lacks = ""
    left = iter(words)
    for word in left:
        if word in _PLAIN:
            continue
        value = next(left, "")
        if word == _NAMED:
            continue
        if word not in _KEYS:
            raise UnknownOptionError(f"the demo's edgegpu install does not know {word}")
        section, name = _KEYS[word]
        if word == "--isolation":
            lacks = "" if value == "none" else _NO_ISOLATION.format(mode=value)
        elif word == "--exclude":
            cards = patch.setdefault(section, {}).setdefault(name, [])
            cards += [] if value == "none" else [value]
        else:
            patch.setdefault(section, {})[name] = int(value) if word == "--unit-mib" else value
    return AskedSettings(patch, lacks)
