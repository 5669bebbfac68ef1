"""Whether two pods could be mistaken for each other when kubelet asks for devices without saying for which pod.

kubelet's calls carry an amount of one resource, nothing else. Two containers with the same amount of a resource
look the same in that call. That does no harm where they are interchangeable, since either may get either's cards;
where they are not, the second must wait until the first has its devices.
"""

from edgegpu_core.podview import PodView
from edgegpu_core.request import ContainerRole, RequestedAmounts


def ambiguous(one: PodView, other: PodView) -> bool:
    """Say whether a call for a container of one pod could be taken for one of the other, and that would matter."""
    alike = _same_constraints(one, other)
    return any(
        _look_alike(p.request, q.request) and not (alike and p.request == q.request)
        for p in one.containers
        for q in other.containers
    )


def _look_alike(p: RequestedAmounts, q: RequestedAmounts) -> bool:
    """Say whether a call for one of the two resources looks the same for both containers."""
    same_memory = p.memory_units == q.memory_units != 0
    same_core = p.core == q.core != 0
    return same_memory or same_core


def _same_constraints(one: PodView, other: PodView) -> bool:
    """Say whether equal requests of the two may swap cards.

    An init container ties all containers of its pod to its own card. Equal amounts mean the same number of cards.
    """
    plain = all(container.role is not ContainerRole.INIT for pod in (one, other) for container in pod.containers)
    return plain and (one.policy, one.bad_policy) == (other.policy, other.bad_policy)
