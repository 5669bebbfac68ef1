"""What a container asks for and what that means: a share of one card, whole cards, or nothing that can be placed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from edgegpu_core.model import CORE_PER_CARD, ResourceModel, short_name, size_text
from edgegpu_core.sentences import sentence

_LEAST_BYTES = 1 << 20
"""From so many units on, an amount is one of bytes, such as `8Gi`: a node has fewer than MAX_DEVICES units."""


class ContainerRole(Enum):
    """When kubelet allocates for a container, and whether later containers of the pod reuse its devices."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class RequestedAmounts:
    """The amounts in a container's limits: memory in units, core in hundredths of a card."""

    memory_units: int
    core: int


NOTHING = RequestedAmounts(0, 0)


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One GPU container of a pod."""

    name: str
    role: ContainerRole
    request: RequestedAmounts


@dataclass(frozen=True, slots=True)
class PlaceableRequest:
    """A request that can be placed: `cards` cards; whole ones must be empty and are held entirely.

    `memory_units` is the sum over the cards, `core` is per card (0..100).
    """

    cards: int
    memory_units: int
    core: int
    whole: bool

    def memory_parts(self) -> tuple[int, ...]:
        """Return the memory units for each card, spread evenly: parts differ by one unit at most."""
        base, rest = divmod(self.memory_units, self.cards)
        return tuple(base + (1 if i < rest else 0) for i in range(self.cards))


@dataclass(frozen=True, slots=True)
class ImpossibleRequest:
    """A request that no card can ever serve, with the reason and what to do about it."""

    reason: str


def total(containers: Iterable[ContainerRequest]) -> RequestedAmounts:
    """Return what a pod asks for in all, as it is counted against a node's sum and a namespace's quota.

    Kubernetes (1.33, PodRequests): containers and sidecars together, or an init container with the sidecars before it.
    """
    most = running = NOTHING
    for container in containers:
        memory = running.memory_units + container.request.memory_units
        core = running.core + container.request.core
        if container.role is not ContainerRole.INIT:
            running = RequestedAmounts(memory, core)
        most = RequestedAmounts(max(most.memory_units, memory), max(most.core, core))
    return most


def classify(request: RequestedAmounts, model: ResourceModel) -> PlaceableRequest | ImpossibleRequest:
    """Return what a non-empty request means, by the table of docs/resources.md.

    Args:
        request: amounts of one container, at least one of them above zero.
        model: names for the reasons, and whether memory without core is allowed.
    """
    memory, core = request.memory_units, request.core
    memory_name, core_name = short_name(model.memory_resource), short_name(model.core_resource)
    if memory >= _LEAST_BYTES:
        return _bytes(memory, model)
    if core > CORE_PER_CARD and core % CORE_PER_CARD:
        low = core // CORE_PER_CARD * CORE_PER_CARD
        return ImpossibleRequest(
            sentence(
                "asks %(amount)d %(core)s: more than one card goes in whole cards only, so ask %(low)d or %(high)d",
                amount=core,
                core=core_name,
                low=low,
                high=low + CORE_PER_CARD,
            )
        )
    if core >= CORE_PER_CARD:
        return PlaceableRequest(cards=core // CORE_PER_CARD, memory_units=memory, core=CORE_PER_CARD, whole=True)
    if memory == 0:
        return ImpossibleRequest(
            sentence(
                "asks %(amount)d %(core)s without %(memory)s: add %(resource)s to its limits",
                amount=core,
                core=core_name,
                memory=memory_name,
                resource=model.memory_resource,
            )
        )
    if core == 0 and model.core_required:
        return ImpossibleRequest(
            sentence(
                "asks %(units)d %(memory)s without %(core)s: add %(resource)s (1 to 100) to its limits",
                units=memory,
                memory=memory_name,
                core=core_name,
                resource=model.core_resource,
            )
        )
    return PlaceableRequest(cards=1, memory_units=memory, core=core, whole=False)


def _bytes(memory: int, model: ResourceModel) -> ImpossibleRequest:
    """Return what is wrong with an amount of memory in bytes, and how many units it would be."""
    mib = memory / _LEAST_BYTES
    return ImpossibleRequest(
        sentence(
            "asks %(amount)d %(memory)s, which are units of %(unit_mib)d MiB and not bytes: for %(size)s ask "
            "%(fitting)d",
            amount=memory,
            memory=short_name(model.memory_resource),
            unit_mib=model.unit_mib,
            size=size_text(mib),
            fitting=math.ceil(mib / model.unit_mib),
        )
    )
