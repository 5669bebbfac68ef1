"""Texts in which a field engineer reads why a pod does not fit, lost its card or runs without it."""

from collections.abc import Sequence

from edgegpu_core.injection import Injection
from edgegpu_core.inventory import Card, FreeAmounts
from edgegpu_core.model import CORE_PER_CARD, ResourceModel, short_name
from edgegpu_core.request import PlaceableRequest

_MOST_NAMES = 3
_MOST_CARDS = 8
"""An event holds 1 024 characters: on a node with more cards the text names no card."""


def need(ask: PlaceableRequest, model: ResourceModel) -> str:
    """Return what a container needs: `20 vcuda-memory and 30 vcuda-core on one card`."""
    memory_name, core_name = short_name(model.memory_resource), short_name(model.core_resource)
    if ask.whole:
        cards = "one whole empty card" if ask.cards == 1 else f"{ask.cards} whole empty cards"
        return cards + (f" with {ask.memory_units} {memory_name}" if ask.memory_units else "")
    if ask.core <= 1:
        return f"{ask.memory_units} {memory_name} on one card"
    return f"{ask.memory_units} {memory_name} and {ask.core} {core_name} on one card"


def no_card(ask: PlaceableRequest, free: FreeAmounts, model: ResourceModel, *, who: str = "") -> str:
    """Return the text when no card has room: `needs 20 vcuda-memory on one card; card 0 has 9 free`."""
    head = f"{who}needs {need(ask, model)}"
    if not free.slots:
        return f"{head}; the node has no card"
    if len(free.slots) > _MOST_CARDS:
        return f"{head}; no card has that"
    show_core = not ask.whole and any(
        free.core[p] < ask.core and free.memory[p] >= ask.memory_units for p in range(len(free.slots))
    )
    memory_name, core_name = short_name(model.memory_resource), short_name(model.core_resource)
    told = []
    for position, slot in enumerate(free.slots):
        card = f"card {slot.label}"
        if not slot.healthy:
            told.append(f"{card} is out of order")
        elif ask.whole and free.is_empty(position):
            told.append(f"{card} is empty ({slot.units} {memory_name})")
        elif ask.whole:
            used_memory, used_core = slot.units - free.memory[position], CORE_PER_CARD - free.core[position]
            told.append(f"{card} is in use ({used_memory} {memory_name}, {used_core} {core_name})")
        elif show_core or ask.core > free.core[position]:
            told.append(f"{card} has {free.memory[position]} {memory_name} and {free.core[position]} {core_name} free")
        else:
            told.append(f"{card} has {free.memory[position]} free")
    return f"{head}; {', '.join(told)}"


def grouped(ask: PlaceableRequest, model: ResourceModel, *, who: str = "") -> str:
    """Return the reason without numbers per card, so that the scheduler's event counts many nodes under one reason."""
    return f"{who}needs {need(ask, model)}; no card has that free"


def duration(seconds: float) -> str:
    """Return a length of time in words: `5 minutes`, `20 seconds`."""
    minutes, rest = divmod(seconds, 60)
    count, unit = (minutes, "minute") if minutes and not rest else (seconds, "second")
    return f"{count:g} {unit}" if count == 1 else f"{count:g} {unit}s"


def card_gone(cards: Sequence[Card], *, wait_s: float, controlled: bool, is_static: bool) -> str:
    """Return the text when a pod's cards are gone, with what happens next: `its card 1 (…) is gone from …`."""
    names = ", ".join(f"{card.label} ({card.name}, {card.uuid})" for card in cards)
    what = f"card {names} is" if len(cards) == 1 else f"cards {names} are"
    if is_static:
        follows = "move its file out of the static pod folder and back to place it on another card"
    elif controlled:
        follows = f"the pod is evicted when that lasts for {duration(wait_s)}, and its controller makes a new one"
    else:
        follows = "it has no controller that would make it again: delete it and create it again"
    return f"its {what} gone from this machine; {follows}"


_NOT_BROUGHT = {
    Injection.CDI: "kubelet or containerd did not take the CDI device: `edgegpu doctor --check runtime` says why",
    Injection.RUNTIME: "it did not run by the nvidia runtime: the pod needs runtimeClassName: nvidia",
    Injection.DEVICES: "kubelet or containerd did not bring its device nodes in",
}


def cardless(container: str, labels: Sequence[str], mode: Injection) -> str:
    """Return the text when a container runs without its cards: `container main runs without its card 0: …`."""
    what = f"its card {labels[0]}" if len(labels) == 1 else f"its cards {', '.join(labels)}"
    why = _NOT_BROUGHT.get(mode, _NOT_BROUGHT[Injection.CDI])
    return f"container {container} runs without {what}: {why}; then delete the pod, since it keeps what it was given"


def in_the_way(names: tuple[str, ...]) -> str:
    """Return which pods of lower priority are in the way where a node's sums have room, so that nobody is evicted."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (
        f"; in the way, of lower priority: {', '.join(names[:_MOST_NAMES])}{more}; not evicted, "
        "since the node's sum has room: delete to make room on one card"
    )


def kept_for(names: tuple[str, ...]) -> str:
    """Return for which pods room is kept that looks free: those for which others were evicted."""
    return f"; room is kept for {', '.join(names[:_MOST_NAMES])}" if names else ""
