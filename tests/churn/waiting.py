"""Pods that wait: would they fit, and for how long have they? Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from churn.arithmetic import Amounts, asked, fits, possible
from churn.ledger import held_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from churn.findings import Findings
    from churn.records import PodRecord, Reading


class Waiting:
    """Judges `pending_fits`."""

    def __init__(self, totals: Mapping[str, Amounts], findings: Findings, *, limit_s: float) -> None:
        """Remember what the cards have; `limit_s`: so long a pod that would fit may wait."""
        self._totals, self._findings, self._limit_s = totals, findings, limit_s
        self._since: dict[str, float] = {}
        self.most_s = 0.0
        """The longest that a pod waited although it would have fitted."""

    def judge(self, reading: Reading) -> None:
        """Judge a reading with pods and bookings. By the clock: faults are no excuse."""
        since: dict[str, float] = {}
        for pod in reading.pods or ():
            if pod.phase != "Pending" or pod.deleting or not pod.containers:
                continue
            if not (pod.node or self.would_fit(pod, reading)):
                continue
            self._findings.sample("pending_fits")
            since[pod.uid] = self._since.get(pod.uid, reading.at_s)
            waited_s = reading.at_s - since[pod.uid]
            self.most_s = max(self.most_s, waited_s)
            if waited_s > self._limit_s:
                where = f"is bound to {pod.node} and does not start" if pod.node else "would fit"
                requests = [(request.memory, request.core, request.kind) for request in pod.containers]
                self._findings.violate("pending_fits", reading.at_s, pod.uid, f"{pod.text} {where}: {requests}")
        self._since = since

    def would_fit(self, pod: PodRecord, reading: Reading) -> bool:
        """Return whether a pod would surely fit: on cards that are in order, and in the node's sum."""
        others = [other for other in reading.pods or () if other.node and not other.ended and other.uid != pod.uid]
        amounts = held_by(others, reading.bookings or (), self._totals)
        if amounts is None or reading.allocatable is None or not possible(pod.containers, self._totals):
            return False
        requests = [asked(member.containers) for member in (*others, pod)]
        memory, core = sum(request.memory for request in requests), sum(request.core for request in requests)
        if memory > reading.allocatable[0] or core > reading.allocatable[1]:
            return False
        free = {
            card: Amounts(total.memory - amounts[card].memory, total.core - amounts[card].core)
            for card, total in self._totals.items()
            if card not in reading.out
        }
        return fits(pod.containers, free, self._totals)
