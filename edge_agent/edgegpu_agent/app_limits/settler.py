"""The settler of app limits: lease, verdict, change, rollout; each change is noted before it begins."""

import logging
import threading
from collections.abc import Callable

from edgegpu_agent.app_limits.change_record import ChangeNote, ChangeStep
from edgegpu_agent.app_limits.cluster_snapshot import ClusterSnapshot, numbers_of
from edgegpu_agent.app_limits.drift import current_amounts, words
from edgegpu_agent.app_limits.drift_check import DriftChecker, DriftResult
from edgegpu_agent.app_limits.errors import LimitsRefusedError, refused
from edgegpu_agent.app_limits.lease import LeaseHolding
from edgegpu_agent.app_limits.live import LiveLimiter, LiveLimitPort, NoLiveLimits, PluginLimitError
from edgegpu_agent.app_limits.patches import amounts_patch, aside_patch, back_patch, merged, wanted, written
from edgegpu_agent.app_limits.progress import Progress, RolloutStage
from edgegpu_agent.app_limits.rollout import Rollout
from edgegpu_agent.app_limits.waiting import SettlementTimer
from edgegpu_agent.kube.apps import SYSTEM, Apps, FoundWorkload
from edgegpu_agent.ports import SettlerNotes
from edgegpu_base.kube import Forbidden, Json, KubeError, NotFound, Unavailable
from edgegpu_core.limits.readers import container_of
from edgegpu_core.limits.verdict import FitResult, LimitsVerdict, manual_step
from edgegpu_core.limits.workload import WorkloadKind, read_workload
from edgegpu_core.model import ResourceModel
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.spec import AppLimits, AskedItem
from edgegpu_sync.messages.uplink import ItemState
from edgegpu_sync.rules import box_sentences as said
from edgegpu_sync.rules.settle import NO_SHARING, Settlement
from edgegpu_sync.states import ResultCode
from edgegpu_sync.wire import clipped

_LOG = logging.getLogger(__name__)


class AppLimitsSettler:
    """The settler of `app_limits` items; it also checks them for drift afterwards."""

    def __init__(
        self,
        apps: Apps,
        lease: LeaseHolding,
        *,
        model: Callable[[], ResourceModel],
        installed: Callable[[], bool],
        timer: SettlementTimer | None = None,
        port: LiveLimitPort | None = None,
    ) -> None:
        """Build the settler.

        Args:
            apps: the client for the cluster's workloads.
            lease: whether this agent settles the limits of its cluster.
            model: returns the resource names that this box's plugin uses.
            installed: returns whether GPU sharing is installed on this box.
            timer: the clock, the pauses and the timeouts.
            port: the containers of this box that can be held to less than they hold; None where none can.
        """
        self._apps = apps
        self._lease = lease
        self._installed = installed
        self._timer = timer or SettlementTimer()
        self._snapshot = ClusterSnapshot(apps, model)
        self._live = LiveLimiter(self._snapshot, port or NoLiveLimits(), node=lambda: lease.holder)
        self._drift_checker = DriftChecker(apps, self._snapshot, lease, self._live)
        self._busy = threading.Lock()

    def stop(self) -> None:
        """End every wait of this settler with ActionStopped."""
        self._timer.stop()

    def settle(self, one: AskedItem, notes: SettlerNotes) -> Settlement:
        """Set an app's limits as requested, and return the settlement. Raises ActionStopped."""
        limits = one.item
        if not isinstance(limits, AppLimits):
            raise TypeError(f"cannot settle {one.name}: these are no app limits")
        try:
            with self._busy:
                return self._settled(limits, notes)
        except LimitsRefusedError as refusal:
            return refusal.settlement
        except KubeError as error:
            return _of_error(error, limits, begun=notes.read() is not None)

    def abandon(self, one: AskedItem, notes: SettlerNotes) -> None:
        """Put back what was set aside of an app whose limits are no longer requested.

        Raises:
            ActionStopped: the agent ends.
            KubeError: a call to the API server failed.
        """
        limits = one.item
        if not isinstance(limits, AppLimits) or notes.read() is None:
            return
        with self._busy:
            for found in self._timer.retry_reads(lambda: self._apps.find(limits.namespace, limits.app)):
                if (back := back_patch(found)) is not None:
                    self._apps.patch(found, back)

    def look(self, one: AskedItem, settled: Settlement, notes: SettlerNotes) -> DriftResult:
        """Check a settled item: whether a Pending one has landed, and whether the limits are still the requested ones.

        Called about each minute for every item that this settler has settled; returns an empty result while an item is
        being settled. Raises KubeError.
        """
        if not self._busy.acquire(blocking=False):
            return DriftResult()
        try:
            return self._drift_checker.look(one, settled, notes)
        finally:
            self._busy.release()

    def _settled(self, limits: AppLimits, notes: SettlerNotes) -> Settlement:
        if limits.namespace == SYSTEM:
            raise refused(ResultCode.PRECHECK, said.NEVER_CHANGED.of(namespace=SYSTEM))
        self._check_holder(limits)
        found = self._find(limits)
        rollout = Rollout(self._apps, self._snapshot, self._timer, ref=found.ref, container=limits.container)
        run = _Run(self._snapshot, self._timer, rollout, limits=limits, notes=notes, live=self._live)
        note = ChangeNote.read(notes)
        if note is not None and note.uid == found.uid:
            resumed = run.resume(note, found)
            if resumed is not None:
                return resumed
        return run.begin(found)

    def _check_holder(self, limits: AppLimits) -> None:
        patience = self._timer.patience
        self._lease.known(patience.holder_s)
        if not self._lease.holds():
            who = self._lease.holder or "another agent of the cluster"
            raise LimitsRefusedError(Settlement(state=ItemState.ELSEWHERE, text=said.SETTLED_ELSEWHERE.of(agent=who)))
        uid = self._timer.retry_reads(self._apps.cluster_uid)
        if uid != limits.cluster:
            raise refused(ResultCode.PRECHECK, said.OTHER_CLUSTER.of(cluster=uid, meant=limits.cluster))
        if not self._installed():
            raise LimitsRefusedError(NO_SHARING)
        if not self._timer.retry_reads(self._snapshot.shared):
            raise refused(ResultCode.PRECHECK, said.NO_SHARES.of())

    def _find(self, limits: AppLimits) -> FoundWorkload:
        name = f"{limits.namespace}/{limits.app}"
        found = self._timer.retry_reads(lambda: self._apps.find(limits.namespace, limits.app))
        if not found:
            raise refused(ResultCode.PRECHECK, said.NO_WORKLOAD.of(app=name))
        if len(found) > 1:
            kinds = " and a ".join(one.ref.kind.value for one in found)
            raise refused(ResultCode.PRECHECK, said.SEVERAL_WORKLOADS.of(app=name, kinds=kinds))
        spec = found[0].template.get("spec") or {}
        if container_of(spec, limits.container) is None:
            names = ", ".join(one["name"] for one in spec.get("containers") or ())
            words = said.NO_CONTAINER.of(workload=str(found[0].ref), container=limits.container, containers=names)
            raise refused(ResultCode.PRECHECK, words)
        return found[0]


class _Run:
    """One try to settle one item."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        timer: SettlementTimer,
        rollout: Rollout,
        *,
        limits: AppLimits,
        notes: SettlerNotes,
        live: LiveLimiter,
    ) -> None:
        self._live = live
        self._snapshot = snapshot
        self._timer = timer
        self._rollout = rollout
        self._limits = limits
        self._notes = notes
        self._asked = RequestedAmounts(limits.memory_units, limits.core)

    def begin(self, found: FoundWorkload) -> Settlement:
        """Judge the limits, and apply them if they fit."""
        self._rollout.restore_aside()  # an earlier try may have left something aside
        found = self._rollout.read()
        model = self._snapshot.model()
        template = current_amounts(found, self._limits.container, model)
        if template == self._asked:
            return self._already(found)
        if template is not None:
            settled = self._live.settle(found, self._limits, template, self._notes)
            if settled is not None:
                return settled
        verdict = self._judge(found)
        self._check(verdict)
        now = written(found.template.get("spec") or {}, self._limits.container, model)
        note = ChangeNote(
            uid=found.uid, before=now, asked=wanted(now, self._asked, model), forced=self._is_forced(verdict)
        )
        note.write(self._notes)  # the note is on the disk before anything is changed
        return self._apply(note, verdict)

    def resume(self, note: ChangeNote, found: FoundWorkload) -> Settlement | None:
        """Go on after a crash; return None when nothing was changed before it."""
        if note.step is ChangeStep.RESTORING:
            return self._restore(note)
        now = written(found.template.get("spec") or {}, self._limits.container, self._snapshot.model())
        if now.request(self._snapshot.model()) == self._asked:
            _LOG.info("%s was changed before the agent ended: following it", found.ref)
            return self._follow(note, self._judge(found) if note.forced else None)
        return None

    def _judge(self, found: FoundWorkload) -> LimitsVerdict:
        """Return the core's verdict; while a node's inventory is not current, ask again for a while."""
        ends = self._timer.clock() + self._timer.patience.inventory_s
        while True:
            verdict = self._timer.retry_reads(lambda: self._snapshot.judge(found, self._limits.container, self._asked))
            if not verdict.stale or self._timer.clock() >= ends:
                return verdict
            self._timer.pause(self._timer.patience.look_s)

    def _is_forced(self, verdict: LimitsVerdict) -> bool:
        return self._limits.force and verdict.answer is not FitResult.FITS

    def _check(self, verdict: LimitsVerdict) -> None:
        limits = self._limits
        if limits.force or verdict.answer is FitResult.FITS:
            return
        if verdict.answer is FitResult.AFTER_STOP and (limits.interrupt or not verdict.interrupts):
            return
        text = verdict.text
        if verdict.answer is FitResult.AFTER_STOP:
            text += "; allow an interruption (interrupt) to have it stopped for this"
        raise LimitsRefusedError(Settlement.rejected(ResultCode.NO_ROOM, clipped(text), numbers_of(verdict)))

    def _already(self, found: FoundWorkload) -> Settlement:
        """Settle limits that are there already; nothing was changed, so nothing is put back. A live limit ends."""
        try:
            self._live.end(found, self._limits.container)
        except PluginLimitError as error:
            return Settlement.failed(ResultCode.ERROR, clipped(str(error)), restored=False)
        text = manual_step(read_workload(found.ref.kind, found.item))
        if text:
            return Settlement.applied(text)
        ended = self._rollout.follow(self._asked, limit_s=self._timer.patience.rollout_s)
        if ended.stage in {RolloutStage.DONE, RolloutStage.PLACED}:
            return Settlement.applied(ended.text)
        if ended.stage is RolloutStage.BLOCKED:
            numbers = numbers_of(self._judge(found))
            state = ItemState.PENDING if self._limits.force else ItemState.REJECTED
            text = f"these limits stood already, and a pod waits: {ended.text}"
            return Settlement(state=state, code=ResultCode.NO_ROOM, text=clipped(text), numbers=numbers)
        return Settlement.failed(
            ResultCode.TIMED_OUT, clipped(f"the rollout does not end: {ended.text}"), restored=False
        )

    def _apply(self, note: ChangeNote, verdict: LimitsVerdict) -> Settlement:
        model, container = self._snapshot.model(), self._limits.container
        stops = verdict.interrupts and self._limits.interrupt

        def make(found: FoundWorkload) -> Json | None:
            spec = found.template.get("spec") or {}
            now = written(spec, container, model)
            if now.request(model) == self._asked:
                return None  # the patch was written, and the answer was lost
            if now != note.before:
                raise refused(ResultCode.SUPERSEDED, said.CHANGED_MEANWHILE.of())
            change = amounts_patch(spec, container, note.asked)
            return merged(change, aside_patch(found)) if stops else change

        try:
            found = self._rollout.write(make)
        except Unavailable:
            raise  # nobody knows whether the app was changed
        except KubeError as error:
            raise LimitsRefusedError(_of_error(error, self._limits, begun=False)) from error
        _LOG.info("%s: %s, before %s", found.ref, words(self._asked, model), dict(note.before.limits))
        return self._follow(note, verdict)

    def _follow(self, note: ChangeNote, verdict: LimitsVerdict | None) -> Settlement:
        found = self._rollout.read()
        text = manual_step(read_workload(found.ref.kind, found.item))
        if text:
            self._rollout.restore_aside()
            return Settlement.applied(text)
        if found.ref.kind is WorkloadKind.STATEFUL_SET and found.spec.get("replicas") == 0:
            self._rollout.wait_for_pods_to_go()
            self._rollout.restore_aside()
        patience = self._timer.patience
        blame_s = patience.forced_s if note.forced else patience.blame_s
        ended = self._rollout.follow(self._asked, limit_s=patience.rollout_s, blame_s=blame_s)
        if ended.stage is not RolloutStage.BLOCKED or note.forced:
            self._rollout.restore_aside()
        return self._conclude(note, ended, verdict)

    def _conclude(self, note: ChangeNote, ended: Progress, verdict: LimitsVerdict | None) -> Settlement:
        match ended.stage:
            case RolloutStage.DONE:
                return Settlement.applied(
                    verdict.text if verdict is not None and verdict.answer is FitResult.FITS else ""
                )
            case RolloutStage.PLACED:
                return Settlement.applied(clipped(f"its pods have their cards; {ended.text}"))
            case RolloutStage.BLOCKED if note.forced or self._limits.force:
                numbers = None if verdict is None else numbers_of(verdict)
                return Settlement(
                    state=ItemState.PENDING, code=ResultCode.NO_ROOM, text=clipped(ended.text), numbers=numbers
                )
            case RolloutStage.BLOCKED:
                note = note.restoring(ended.text)
                note.write(self._notes)
                return self._restore(note)
            case _:
                if ended.changed:
                    return Settlement.failed(ResultCode.SUPERSEDED, clipped(ended.text), restored=False)
                why = ended.text or "nothing says why"
                text = said.NOT_AT_FAULT.of(why=why)
                return Settlement.failed(ResultCode.TIMED_OUT, clipped(text), restored=False)

    def _restore(self, note: ChangeNote) -> Settlement:
        """Put the old limits back, and wait until their rollout is done."""
        why = note.why
        try:
            mine = self._rollout.restore(note.before, note.asked)
            if not mine:
                text = f"{why}; somebody else has changed its limits meanwhile, so they were left as they are"
                return Settlement.failed(ResultCode.NO_ROOM, clipped(text), restored=False)
            self._rollout.unstick()
        except NotFound:
            return Settlement.failed(ResultCode.NO_ROOM, clipped(f"{why}; the app is gone meanwhile"), restored=False)
        before = note.before.request(self._snapshot.model())
        back = self._rollout.follow(before, limit_s=self._timer.patience.restore_s)
        if back.stage in {RolloutStage.DONE, RolloutStage.PLACED}:
            return Settlement.failed(
                ResultCode.NO_ROOM, clipped(f"{why}; the limits before are there again"), restored=True
            )
        text = f"{why}; the limits before were written back, and their rollout has not ended: {back.text}"
        return Settlement.failed(ResultCode.NO_ROOM, clipped(text), restored=False)


def _of_error(error: KubeError, limits: AppLimits, *, begun: bool) -> Settlement:
    text = str(error)
    if isinstance(error, Forbidden):
        text = said.NO_PERMISSION.of(namespace=limits.namespace, why=text)
    if isinstance(error, NotFound):
        text = said.APP_GONE.of(app=f"{limits.namespace}/{limits.app}", why=text)
    if begun:
        return Settlement.failed(ResultCode.ERROR, clipped(text), restored=False)
    return Settlement.rejected(ResultCode.ERROR, clipped(text))
