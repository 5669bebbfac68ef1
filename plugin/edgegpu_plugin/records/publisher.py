"""The publisher of the node report: the annotation of the Node object with its cards and what is held of them."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from edgegpu_core.injection import NodeVersions, major_minor
from edgegpu_core.nodereport import REPORT_ANNOTATION, NodeReport, read_report, write_report
from edgegpu_core.placement import Share
from edgegpu_plugin.records.node_state import Snapshot

_LOG = logging.getLogger(__name__)

ECHO_S = 1.5
"""After a release the report is written a second time after this time. A write makes the scheduler try Pending pods
again, and the extender that it asks may have seen the first write later than the scheduler did."""

CHECK_S = 60.0
"""How often the annotation is read back, since a Node object can be made anew. A watch of the Node would cause more
traffic: kubelet writes its status when anything in it changes."""

SETTLE_S, SETTLE_CHECK_S = 30.0, 2.0
"""After a registration kubelet publishes what it offers within some 15 s (its status has a period of 10 s). If a
scheduler asks in that moment, an extender that sees the change a little later may answer "inventory not current", and
the scheduler would not ask again for minutes. So the Node is read often for that long, and a write follows a change.
Another write follows at the end: kubelet may have offered nothing and everything again between two reads."""


REPORT_LABEL = "edgegpu.io/report"
"""The label of the Node for the report's number, where a changed annotation may not bring Pending pods back."""

_FIRST_WITH_ANNOTATION_RETRY = (1, 33)
"""From this version on schedulers were seen to retry pods when a Node's annotation changes; all do for a label."""


class Publisher:
    """The writer of the report: when it changes, once more after a release, and again when it was lost."""

    def __init__(
        self,
        *,
        write: Callable[[Mapping[str, str], Mapping[str, str]], None],
        read: Callable[[], Mapping[str, Any]],
        boot: str,
        before_report: Callable[[Snapshot], None] = lambda _snapshot: None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Build the publisher.

        Args:
            write: sets annotations and labels of the Node.
            read: returns the Node object.
            boot: this boot's id.
            before_report: called with each snapshot before the report is written.
            clock: a monotonic clock in seconds.
            wall: seconds since 1970.
        """
        self._write = write
        self._read = read
        self._boot = boot
        self._before_report = before_report
        self._clock = clock
        self._wall = wall
        self._last: NodeReport | None = None
        self._echo_at_s: float | None = None
        self._checked_at_s = -CHECK_S
        self._settled_at_s = self._settle_written_s = clock()
        self._offered: object = None
        self._needs_label = False
        self.generation = 0

    def kubelet_registered(self) -> None:
        """Expect kubelet to offer other amounts soon; may be called on any thread."""
        self._settled_at_s = self._clock() + SETTLE_S

    def publish(self, snapshot: Snapshot) -> None:
        """Write the report if it is due.

        Raises:
            KubeError: the write failed; it is due again at the next call.
        """
        self._before_report(snapshot)
        now_s = self._clock()
        fresh = report_of(snapshot, boot=self._boot)
        last = self._last
        settled_at_s = self._settled_at_s
        settled = settled_at_s != self._settle_written_s and now_s >= settled_at_s
        echoed = self._echo_at_s is not None and now_s >= self._echo_at_s
        echo = echoed or settled
        if now_s - self._checked_at_s >= self._check_every_s(now_s):
            node = self._read()
            self._checked_at_s = now_s
            self._needs_label = _needs_label(node)
            if last is not None and not self._is_current(node):
                _LOG.warning("the Node's %s annotation was lost or changed: it is written anew", REPORT_ANNOTATION)
                last = None
            echo |= self._allocatable_changed(node)
        if last is not None and not echo and replace(last, generation=0, time="") == fresh:
            return
        self.generation = max(self.generation + 1, int(self._wall()) if last is None else 0)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._wall()))
        report = replace(fresh, generation=self.generation, time=stamp)
        labels = {REPORT_LABEL: str(self.generation)} if self._needs_label else {}
        self._write({REPORT_ANNOTATION: write_report(report)}, labels)
        if last is None or _released(last, fresh):
            self._echo_at_s = now_s + ECHO_S
        elif echoed:
            self._echo_at_s = None  # an echo that is due later stays due: this write may be too early to replace it
        if settled:
            self._settle_written_s = settled_at_s
        self._last = report

    @property
    def wait_s(self) -> float | None:
        """The seconds until a write or a read of the Node is due by itself; None when none is."""
        now_s = self._clock()
        due = [] if self._echo_at_s is None else [self._echo_at_s]
        if self._settled_at_s != self._settle_written_s:
            due.append(self._settled_at_s)
        if now_s < self._settled_at_s:
            due.append(self._checked_at_s + SETTLE_CHECK_S)
        return max(0.0, min(due) - now_s) if due else None

    def _check_every_s(self, now_s: float) -> float:
        return SETTLE_CHECK_S if now_s < self._settled_at_s else CHECK_S

    def _allocatable_changed(self, node: Mapping[str, Any]) -> bool:
        """Return whether kubelet offers other amounts on this node than at the last read."""
        before, self._offered = self._offered, (node.get("status") or {}).get("allocatable")
        return before is not None and before != self._offered

    def _is_current(self, node: Mapping[str, Any]) -> bool:
        report = read_report((node["metadata"].get("annotations") or {}).get(REPORT_ANNOTATION))
        return report is not None and self._last is not None and report.generation == self._last.generation


def _needs_label(node: Mapping[str, Any]) -> bool:
    """Return whether the scheduler may ignore a Node's annotations, judged by the version of the node's kubelet."""
    version = major_minor(NodeVersions.of(node).kubelet)
    return version is not None and version < _FIRST_WITH_ANNOTATION_RETRY


def report_of(snapshot: Snapshot, *, boot: str) -> NodeReport:
    """Return the report of a snapshot; the writer sets generation and time."""
    view = snapshot.view
    held: dict[str, tuple[Share, ...]] = {}
    for uid, shares in view.holdings().items():
        pod = snapshot.pods.get(uid)
        if shares:
            held[uid if pod is None else pod.uid] = shares
    return NodeReport(
        boot=boot,
        generation=0,
        time="",
        policy=view.policy,
        unit_mib=view.model.unit_mib,
        core_required=view.model.core_required,
        slots=view.slots,
        held=held,
        waiting=_waiting(snapshot),
        allowed=view.allowed,
    )


def _waiting(snapshot: Snapshot) -> frozenset[str]:
    pods = snapshot.view.pods
    lacking = {want.pod.uid for want in snapshot.view.waiting_containers() if not want.runs}
    return frozenset(lacking | {pods[uid].uid for uid in snapshot.unwritten & pods.keys()})


def _released(before: NodeReport, after: NodeReport) -> bool:
    """Return whether anything was released or the cards changed: a Pending pod may wait for that."""
    return any(after.held.get(uid, ()) != shares for uid, shares in before.held.items()) or before.slots != after.slots
