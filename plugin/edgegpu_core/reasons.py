"""Texts in which a field engineer reads why a pod does not fit, lost its card or runs without it."""

from collections.abc import Iterable, Sequence

from edgegpu_core.injection import Injection
from edgegpu_core.inventory import Card, CardCapacity, FreeAmounts
from edgegpu_core.model import CORE_PER_CARD, ResourceModel, short_name
from edgegpu_core.request import ImpossibleRequest, PlaceableRequest
from edgegpu_core.sentences import Sentence, listed, sentence

MPS_REASON = "mps: "
"""How reasons begin where memory is held, and compute by time in place of shares of multiprocessors."""

NO_MEMORY_REASON = "no card memory: "
"""How reasons begin where programs are refused all memory, so that nothing is taken past a limit."""

NEWER_DRIVER_REMEDY = "upgrade edgegpu; until then programs that it holds find none of the driver's newer functions"
"""What to do where the driver is newer than the limiter's list of functions."""

BY_NAME_REMEDY = "nothing: programs run and are held; please report it with `edgegpu selftest --json`"
"""What to do where the limiter goes by the names of functions, since the driver's pointers are not its symbols."""

_MOST_FUNCTIONS = 5

_MOST_NAMES = 3
_MOST_CARDS = 8
"""An event holds 1 024 characters: on a node with more cards the text names no card."""


def unknown_functions(names: Sequence[str]) -> str:
    """Return what it means that a driver has functions that the limiter's lists have not."""
    many = "a function" if len(names) == 1 else f"{len(names)} functions"
    shown = [*names[:_MOST_FUNCTIONS], *(["…"] if len(names) > _MOST_FUNCTIONS else [])]
    return (
        f"the driver has {many} that this edgegpu does not know ({', '.join(shown)}): programs that it holds find none "
        "of that name"
    )


def need(ask: PlaceableRequest, model: ResourceModel) -> Sentence:
    """Return what a container needs: `20 vcuda-memory and 30 vcuda-core on one card`."""
    units, memory, core = ask.memory_units, short_name(model.memory_resource), short_name(model.core_resource)
    if ask.whole:
        one = ask.cards == 1
        cards = sentence("one whole empty card") if one else sentence("%(cards)d whole empty cards", cards=ask.cards)
        return (
            sentence("%(cards)s with %(units)d %(memory)s", cards=cards, units=units, memory=memory) if units else cards
        )
    if ask.core <= 1:
        return sentence("%(units)d %(memory)s on one card", units=units, memory=memory)
    return sentence(
        "%(units)d %(memory)s and %(amount)d %(core)s on one card",
        units=units,
        memory=memory,
        amount=ask.core,
        core=core,
    )


def of_container(name: str) -> Sentence:
    """Return the beginning of a reason that is about one of several containers."""
    return sentence("container %(container)s ", container=name)


WITH_INIT = sentence("with its init container ")
INIT_BESIDE_WHOLE = sentence(
    "has a GPU init container beside whole cards: kubelet reuses its devices at random, so let the init "
    "container and one other container ask for exactly the same"
)
NOT_TOGETHER = sentence("its containers do not fit together on the cards of this node")


def impossible(container: str, ask: ImpossibleRequest) -> Sentence:
    """Return why no card can ever serve a container: `container main asks 150 vcuda-core: …`."""
    return sentence("%(who)s%(why)s", who=of_container(container), why=ask.reason)


def no_card(
    ask: PlaceableRequest, free: FreeAmounts, model: ResourceModel, *, who: str = "", supposed: bool = False
) -> Sentence:
    """Return the text when no card has room: `needs 20 vcuda-memory on one card; card 0 has 9 free`.

    With `supposed`, `free` is that of the node without its pods: a card's size is `29 units in all` then, not free.
    """
    head = sentence("%(who)sneeds %(need)s", who=who, need=need(ask, model))
    if not free.slots:
        return sentence("%(head)s; the node has no card", head=head)
    if len(free.slots) > _MOST_CARDS:
        return sentence("%(head)s; no card has that", head=head)
    show_core = not ask.whole and any(
        free.core[p] < ask.core and free.memory[p] >= ask.memory_units for p in range(len(free.slots))
    )
    cards = listed(
        _size(free.slots[at]) if supposed and free.is_empty(at) else _card(ask, free, at, model, show_core=show_core)
        for at in range(len(free.slots))
    )
    return sentence("%(head)s; %(cards)s", head=head, cards=cards)


def _size(slot: CardCapacity) -> Sentence:
    """Return what a card has whether or not pods hold it."""
    whole = sentence("%(units)s units in all", units=slot.units)
    return sentence("%(what)s: %(text)s", what=sentence("card %(card)s", card=slot.label), text=whole)


def _card(ask: PlaceableRequest, free: FreeAmounts, at: int, model: ResourceModel, *, show_core: bool) -> Sentence:
    """Return what the card at a position has for a request that finds no room."""
    slot, memory, core = free.slots[at], short_name(model.memory_resource), short_name(model.core_resource)
    if not slot.healthy:
        return sentence("card %(card)s is out of order", card=slot.label)
    if ask.whole and free.is_empty(at):
        return sentence(
            "card %(card)s is empty (%(units)d %(memory)s)", card=slot.label, units=slot.units, memory=memory
        )
    if ask.whole:
        return sentence(
            "card %(card)s is in use (%(units)d %(memory)s, %(amount)d %(core)s)",
            card=slot.label,
            units=slot.units - free.memory[at],
            memory=memory,
            amount=CORE_PER_CARD - free.core[at],
            core=core,
        )
    if show_core or ask.core > free.core[at]:
        return sentence(
            "card %(card)s has %(units)d %(memory)s and %(amount)d %(core)s free",
            card=slot.label,
            units=free.memory[at],
            memory=memory,
            amount=free.core[at],
            core=core,
        )
    return sentence("card %(card)s has %(units)d free", card=slot.label, units=free.memory[at])


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


def unrecorded(container: str, *, controlled: bool, is_static: bool) -> str:
    """Return the text for a container that runs, and of whose devices kubelet has no record."""
    if is_static:
        remedy = "move its file out of the static pod folder and back"
    else:
        remedy = "delete the pod" + ("" if controlled else ", and create it again")
    return (
        f"container {container} runs, and kubelet has no record of its devices (its checkpoint was lost or cut, or the "
        f"pod came past edgegpu): what it is known to hold stays booked, and it may not start again: {remedy}"
    )


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


ROOM_COMES = "; room comes when kubelet has let go of pods that have ended, or are ending"


def kept_for(names: tuple[str, ...]) -> str:
    """Return for which pods room is kept that looks free: those for which others were evicted."""
    return f"; room is kept for {', '.join(names[:_MOST_NAMES])}" if names else ""


def counted_beside(names: Sequence[str]) -> str:
    """Return which pods on cards that are not offered fill a node's sum; empty without any."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (
        f"; the scheduler counts pods on cards that are excluded or gone against the others: "
        f"{', '.join(names[:_MOST_NAMES])}{more}; delete them to make room"
    )


def holds_any(mode: str | None, states: Iterable[str]) -> bool:
    """Return whether a node holds containers, by its mode (empty for an older plugin's) and its containers' states.

    Where the mode is off, a container of before may still be held, or one whose pod has chosen that.
    """
    return mode not in {None, "", "none"} or any(state != "off" for state in states)


def start_wait_words(waits: bool | None, why: str) -> str:  # noqa: FBT001  (as the status document has it)
    """Return whether kubelet waits for the devices at its start (None: not known), with why not."""
    if waits:
        return "yes"
    return f"no: {why}" if waits is False else f"not known: {why}"


def loose_words(reason: str) -> str:
    """Return a reason as a sentence's part that stands alone; empty for none."""
    stands_alone = not reason or reason.startswith((MPS_REASON, NO_MEMORY_REASON))
    return reason if stands_alone else f"not surely held to its memory: {reason}"


def node_words(problem: str) -> str:
    """Return what a node's problem with isolation comes to for its containers, as a sentence."""
    if problem.startswith(MPS_REASON):
        return f"compute is held by time and not by MPS: {problem.removeprefix(MPS_REASON)}"
    return f"containers are not surely held to their memory: {problem}"
