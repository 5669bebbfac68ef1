"""What a container asks of the driver by NVIDIA's own variable, and does not get here."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from edgegpu_core.choices.modes import Capability
from edgegpu_core.choices.pod_choice import CAPABILITIES_ANNOTATION, PodChoice
from edgegpu_core.sentences import listed

CAPABILITIES_VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
"""What NVIDIA's container runtime reads of a container's environment; most images that decode video set it."""

_GIVEN = ("compute", "utility")
"""What each container gets. NVIDIA's runtime gives the same where the variable is empty."""

_OPENED_BY: Mapping[str, tuple[Capability, ...]] = {
    "graphics": (Capability.GRAPHICS,),
    "video": (Capability.VIDEO,),
    "ngx": (Capability.GRAPHICS,),
    "all": tuple(Capability),
}
"""What opens each of NVIDIA's names that a node may open."""

_NEVER = ("compat32", "display")
"""NVIDIA's names whose files no container gets here: 32-bit libraries, and those of an X server."""

_MOST_NAMES, _MOST_CHARACTERS = 16, 32


def capabilities_of(container: Mapping[str, Any]) -> str:
    """Return what a container of a pod spec sets the variable to; empty where it does not, or by a reference."""
    entries = [one for one in container.get("env") or () if one.get("name") == CAPABILITIES_VARIABLE]
    return str(entries[-1].get("value") or "") if entries else ""  # of equal names the last counts


def capability_notes(
    asked: str, *, given: Collection[str], choice: PodChoice, node: Collection[str]
) -> tuple[str, ...]:
    """Return what a container asks of the driver and does not get, each with what gives it; empty where it gets all.

    Args:
        asked: the value of NVIDIA's variable.
        given: the capabilities that it was given; all of them where nothing holds it.
        choice: what its pod chooses.
        node: the capabilities that its node opens to pods that ask.
    """
    names = list(dict.fromkeys(filter(None, (one.strip().lower() for one in asked.split(",")))))[:_MOST_NAMES]
    missing = {name: sorted(set(_OPENED_BY.get(name, ())).difference(given)) for name in names}
    closed = {name: some for name, some in missing.items() if some}
    notes = [_how_to_open(closed, choice, node)] if closed else []
    if never := [name for name in names if name in _NEVER]:
        notes.append(f"{_asks_for(never)}, whose files no container gets here")
    if unknown := [name for name in names if name not in {*_GIVEN, *_OPENED_BY, *_NEVER}]:
        known = listed((*_GIVEN, *_OPENED_BY, *_NEVER))
        shown = [repr(name[:_MOST_CHARACTERS]) for name in unknown]
        notes.append(f"{_asks_for(shown)}, which NVIDIA's runtime does not know (it knows: {known})")
    return tuple(notes)


def _how_to_open(closed: Mapping[str, Iterable[str]], choice: PodChoice, node: Collection[str]) -> str:
    """Return the steps that open to a pod's containers what opens these names of NVIDIA's."""
    wanted = sorted({capability for some in closed.values() for capability in some})
    annotation = ",".join(sorted({*wanted, *(one for one in choice.capabilities if one in set(Capability))}))
    steps = []
    if unset := [one for one in wanted if one not in node]:
        steps.append(f"add {listed(unset)} to isolation.capabilities in the node's plugin.yaml")
    if not set(wanted) <= set(choice.capabilities):
        steps.append(f"set its pod's annotation {CAPABILITIES_ANNOTATION} to {annotation}")
    steps.append("make the pod anew")
    return f"{_asks_for(closed)}, and it has no {listed(wanted)}: {', '.join(steps)}"


def _asks_for(names: Iterable[str]) -> str:
    return f"its {CAPABILITIES_VARIABLE} asks for {listed(names)}"
