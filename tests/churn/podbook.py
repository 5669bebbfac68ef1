"""Each pod that was ever seen, as it was last seen. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from churn.records import Booking, ContainerRecord, PodRecord


class PodBook:
    """The pods of all readings, in the order in which they came."""

    def __init__(self) -> None:
        """Begin without a pod."""
        self.pods: dict[str, PodRecord] = {}
        self.ran: set[str] = set()
        """UIDs of pods that were seen running, or to have succeeded."""
        self._gone: set[str] = set()
        self._earlier: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def learn(self, pods: Iterable[PodRecord]) -> None:
        """Take the pods that the API lists; those that it lists no more are gone."""
        for pod in self.pods.values():
            for name, container in pod.started.items():
                self._earlier[pod.uid, name].add(container)
        present = {pod.uid: pod for pod in pods}
        self._gone |= self.pods.keys() - present.keys()
        self.pods |= present
        self.ran |= {uid for uid, pod in present.items() if pod.runs}

    def living(self, uid: str) -> bool:
        """Return whether a pod lives as far as is known: one that the API has not shown yet does."""
        pod = self.pods.get(uid)
        return uid not in self._gone and (pod is None or not pod.ended)

    def earlier(self, booking: Booking) -> frozenset[str]:
        """Return what earlier readings than the last had started in the place of a booking's container."""
        return frozenset(self._earlier[booking.pod, booking.container])

    def later_than(self, uid: str) -> set[str]:
        """Return the UIDs of the pods that came after one."""
        order = list(self.pods)
        return set(order[order.index(uid) + 1 :])

    def request(self, booking: Booking) -> ContainerRecord | None:
        """Return the container of a booking; None where the API has not shown it yet."""
        pod = self.pods.get(booking.pod)
        containers = pod.containers if pod else ()
        return next((container for container in containers if container.name == booking.container), None)

    def kind(self, booking: Booking) -> str:
        """Return the kind of a booking's container; empty where it is not known."""
        request = self.request(booking)
        return request.kind if request else ""

    def text(self, booking: Booking) -> str:
        """Return the words for a booking's container."""
        pod = self.pods.get(booking.pod)
        return f"{pod.text if pod else booking.pod}/{booking.container}"
