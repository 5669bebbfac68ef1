"""One change of one app: write it under its resourceVersion, follow it, restore if the limits were at fault."""

import logging
from collections.abc import Callable

from edgegpu_agent.app_limits.cluster_snapshot import ClusterSnapshot
from edgegpu_agent.app_limits.drift import current_amounts
from edgegpu_agent.app_limits.patches import ContainerShares, amounts_patch, back_patch, merged, replicas_patch, written
from edgegpu_agent.app_limits.progress import Progress, RolloutStage, limits_reason, progress
from edgegpu_agent.app_limits.waiting import SettlementTimer
from edgegpu_agent.kube.apps import Apps, FoundWorkload, WorkloadRef
from edgegpu_base.kube import Conflict, Json, NotFound, Unavailable
from edgegpu_core.limits.verdict import manual_step
from edgegpu_core.limits.workload import WorkloadKind, read_workload
from edgegpu_core.request import RequestedAmounts

_LOG = logging.getLogger(__name__)
_CONFLICTS = 20


class Rollout:
    """The rollout of new limits for one container of an app."""

    def __init__(
        self, apps: Apps, snapshot: ClusterSnapshot, timer: SettlementTimer, *, ref: WorkloadRef, container: str
    ) -> None:
        self._apps = apps
        self._snapshot = snapshot
        self._timer = timer
        self.ref = ref
        self._container = container

    def read(self) -> FoundWorkload:
        """Read the workload; wait while the API server is away. Raises KubeError."""
        return self._timer.retry_reads(lambda: self._apps.read(self.ref))

    def write(self, make: Callable[[FoundWorkload], Json | None]) -> FoundWorkload:
        """Patch the workload under the resourceVersion that was read; read it again after a conflict or a lost answer.

        Args:
            make: returns the patch for the workload as it is now, None when there is nothing (more) to write. It is
                called again after each conflict, and after a lost answer, so it must check the workload each time.

        Raises:
            KubeError: the API server refuses the patch.
        """
        ends = self._timer.clock() + self._timer.patience.api_s
        for _ in range(_CONFLICTS):
            found = self.read()
            change = make(found)
            if change is None:
                return found
            try:
                return self._apps.patch(found, change)
            except Conflict:
                continue
            except Unavailable:
                if self._timer.clock() >= ends:
                    raise
                self._timer.pause(self._timer.patience.look_s)
        raise Conflict(f"cannot change {self.ref}: somebody else changes it again and again")

    def follow(self, request: RequestedAmounts, *, limit_s: float, blame_s: float | None = None) -> Progress:
        """Wait until the rollout of these amounts is done, or it is clear why it will not be. Raises KubeError.

        Returns:
            The last progress; GOING: the rollout did not end in time, or somebody else has changed the limits.
        """
        clock, patience = self._timer.clock, self._timer.patience
        ends, since, before = clock() + limit_s, clock(), RolloutStage.GOING
        blame_s = patience.blame_s if blame_s is None else blame_s
        while True:
            now = self._look(request)
            if now.stage is not before:
                since, before = clock(), now.stage
            lasted = clock() - since
            blamed = now.stage is RolloutStage.BLOCKED and lasted >= blame_s
            placed = now.stage is RolloutStage.PLACED and lasted >= patience.ready_s
            if now.changed or now.stage is RolloutStage.DONE or blamed or placed or clock() >= ends:
                return now
            self._timer.pause(patience.look_s)

    def _look(self, request: RequestedAmounts) -> Progress:
        """Return the progress of the workload; `changed` when it is gone or has other limits."""
        model = self._snapshot.model()
        try:
            found = self.read()
        except NotFound:
            return Progress(RolloutStage.GOING, f"{self.ref} is gone", changed=True)
        if manual_step(read_workload(self.ref.kind, found.item)):
            return Progress(RolloutStage.DONE)
        if current_amounts(found, self._container, model) not in {request, None}:
            return Progress(RolloutStage.GOING, "somebody else has written other limits meanwhile", changed=True)
        pods = self._timer.retry_reads(lambda: self._snapshot.pods(found))
        return progress(found, pods, self._container, request, model=model)

    def wait_for_pods_to_go(self) -> None:
        """Wait until a stopped StatefulSet has no pods, at most as long as a rollout may take. Raises KubeError."""
        ends = self._timer.clock() + self._timer.patience.rollout_s
        while self._timer.clock() < ends:
            found = self.read()
            if not self._timer.retry_reads(lambda: self._snapshot.pods(found)):  # noqa: B023  (called at once)
                return
            self._timer.pause(self._timer.patience.look_s)

    def restore_aside(self) -> None:
        """Put back the app's strategy, or its number of replicas, if ASIDE notes it. Raises KubeError."""
        self.write(back_patch)

    def restore(self, before: ContainerShares, asked: ContainerShares) -> bool:
        """Put the old limits back; return False where somebody else has changed them meanwhile. Raises KubeError."""
        model = self._snapshot.model()
        changed = False

        def make(found: FoundWorkload) -> Json | None:
            nonlocal changed
            spec = found.template.get("spec") or {}
            now = written(spec, self._container, model)
            changed = now.request(model) not in {before.request(model), asked.request(model)}
            back = back_patch(found)
            if changed or now == before:
                return back
            return merged(amounts_patch(spec, self._container, before), back or {})

        self.write(make)
        return not changed

    def unstick(self) -> None:
        """Make a StatefulSet replace a pod that its limits keep from its card.

        A StatefulSet waits for such a pod for ever, even when its template is the old one again. So it gets fewer
        replicas for a moment: it then creates again that pod and those after it, which have the new limits as well.

        Raises:
            KubeError: the API server refuses it.
        """
        found = self.read()
        stuck = self._stuck(found) if self.ref.kind is WorkloadKind.STATEFUL_SET else None
        if stuck is None:
            return
        first = int((found.spec.get("ordinals") or {}).get("start") or 0)
        count = max(0, stuck - first)
        _LOG.info("%s waits for a pod without a card: it has %d replicas for a moment", self.ref, count)
        self.write(lambda found: None if back_patch(found) else replicas_patch(found, count))
        ends = self._timer.clock() + self._timer.patience.restore_s
        while self._timer.clock() < ends and self._stuck(self.read()) is not None:
            self._timer.pause(self._timer.patience.look_s)
        self.restore_aside()

    def _stuck(self, found: FoundWorkload) -> int | None:
        """Return the lowest ordinal of a pod that the limits keep from its card."""
        pods = self._timer.retry_reads(lambda: self._snapshot.pods(found))
        names = (str(pod["metadata"]["name"]) for pod in pods if limits_reason(pod, self._snapshot.model()))
        ordinals = (name.rpartition("-")[2] for name in names)
        return min((int(one) for one in ordinals if one.isdecimal()), default=None)
