"""Pods that kubelet refused: was a kill the cause, and did their controllers have new ones running in time? Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from churn.records import Failure, PodRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from churn.findings import Findings
    from churn.podbook import PodBook
    from churn.records import Reading
    from churn.waiting import Waiting
    from churn.windows import Timeline

REFUSED = ("UnexpectedAdmissionError", "OutOf")
"""How the reasons of kubelet's refusals begin."""


@dataclass(slots=True)
class Debt:
    """A pod of a controller failed while a kill was on: its controller must have a new one that runs."""

    failed: PodRecord
    at_s: float
    counted_s: float = 0.0
    """How much of the time since then nothing was in the way of a new one."""


class Refusals:
    """Judges `admission_failed` and `not_running_again`."""

    def __init__(
        self, book: PodBook, findings: Findings, timeline: Timeline, waiting: Waiting, *, limit_s: float
    ) -> None:
        """Remember whom to ask; `limit_s`: so long a new pod may take to run."""
        self._book, self._findings, self._timeline, self._waiting = book, findings, timeline, waiting
        self._limit_s = limit_s
        self._failed: set[str] = set()
        self._bound: set[str] = set()
        self._early: dict[str, tuple[Failure, float, float]] = {}
        """Events that came before the API's list had their pods."""
        self._debts: list[Debt] = []
        self._paid: set[str] = set()
        self.excused: Counter[str] = Counter()
        """Refused pods by the kind of fault that they overlap."""
        self.let_go = 0
        """Failed pods of workloads that were deleted since, or have as many pods as they are to have."""
        self.replaced = 0
        self.replaced_most_s = 0.0
        """The longest that a new pod took, without the time in which something was away."""
        self.replaced_most_wall_s = 0.0
        """The same by the clock."""

    def refused(self, uid: str) -> bool:
        """Return whether kubelet has refused a pod: it ends what runs of it, and then the API hears that it failed."""
        return uid in self._failed

    @property
    def open_debts(self) -> int:
        """How many new pods are still waited for."""
        return len(self._debts)

    def judge(self, reading: Reading, began_s: float) -> None:
        """Judge a reading with pods; `began_s` is the time of the one before."""
        self._judge_failures(reading, began_s)
        for debt in list(self._debts):
            self._judge_debt(debt, reading, began_s)

    def _judge_failures(self, reading: Reading, began_s: float) -> None:
        bound = {pod.uid for pod in reading.pods or () if pod.node and pod.containers}
        self._findings.sample("admission_failed", len(bound - self._bound))
        self._bound |= bound
        failures = [Failure(pod.uid, pod.reason) for pod in reading.pods or () if pod.phase == "Failed"]
        for failure in (*failures, *reading.failures):
            if failure.reason.startswith(REFUSED):
                self._refused(failure, began_s, reading.at_s)
        for failure, begin_s, end_s in list(self._early.values()):
            if failure.pod in self._book.pods:
                del self._early[failure.pod]
                self._refused(failure, begin_s, end_s)

    def _refused(self, failure: Failure, begin_s: float, end_s: float) -> None:
        if failure.pod in self._failed:
            return
        pod = self._book.pods.get(failure.pod)
        if pod is None:
            self._early.setdefault(failure.pod, (failure, begin_s, end_s))
            return
        self._failed.add(failure.pod)
        if cause := self._timeline.cause_of_refusal(begin_s, end_s):
            self.excused[cause] += 1
            if pod.owner:
                self._debts.append(Debt(pod, end_s))
            return
        text = f"{pod.text}: {failure.reason} {failure.text[:300]}"
        self._findings.violate("admission_failed", end_s, failure.pod, text)

    def _judge_debt(self, debt: Debt, reading: Reading, began_s: float) -> None:
        successor = self._successor(debt, reading.pods or ())
        if successor is not None and successor.runs:
            self._findings.sample("not_running_again")
            self._paid.add(successor.uid)
            self._debts.remove(debt)
            self.replaced += 1
            self.replaced_most_s = max(self.replaced_most_s, debt.counted_s)
            self.replaced_most_wall_s = max(self.replaced_most_wall_s, reading.at_s - debt.at_s)
        elif self._owes_nothing(debt, reading):
            self._debts.remove(debt)
            self.let_go += 1
        elif self._time_counts(debt, successor, reading):
            debt.counted_s += self._timeline.quiet_s(began_s, reading.at_s)
            if debt.counted_s > self._limit_s:
                self._findings.sample("not_running_again")
                text = f"{debt.failed.text} of {debt.failed.owner_kind} failed at {debt.at_s:.1f} s; no other runs"
                self._findings.violate("not_running_again", reading.at_s, debt.failed.uid, text)
                self._debts.remove(debt)

    def _successor(self, debt: Debt, pods: Iterable[PodRecord]) -> PodRecord | None:
        """Return a pod of the same workload that came later and takes the failed one's place; one that runs first."""
        later = self._book.later_than(debt.failed.uid) - self._paid
        pods = [
            pod
            for pod in pods
            if pod.app == debt.failed.app and pod.uid in later and not pod.deleting and pod.phase != "Failed"
        ]
        return min(pods, key=lambda pod: not pod.runs, default=None)

    @staticmethod
    def _owes_nothing(debt: Debt, reading: Reading) -> bool:
        """Return whether the workload is gone, or has as many pods as it is to have."""
        count = sum(pod.runs and not pod.deleting for pod in reading.pods or () if pod.app == debt.failed.app)
        return count >= reading.wanted.get(debt.failed.app, 0)

    def _time_counts(self, debt: Debt, successor: PodRecord | None, reading: Reading) -> bool:
        """Return whether a new pod could run now.

        The Job controller waits for 10 s and more, doubled each time, before it makes one.
        """
        if successor is None:
            return debt.failed.owner_kind != "Job"
        return bool(successor.node) or self._waiting.would_fit(successor, reading)
