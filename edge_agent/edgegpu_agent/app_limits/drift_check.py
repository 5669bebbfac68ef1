"""Checks of settled limits: a waiting pod has its card now, somebody wrote the limits back, or the app is gone."""

import logging
from dataclasses import dataclass, field, replace

from edgegpu_agent.app_limits.change_record import ChangeNote
from edgegpu_agent.app_limits.cluster_snapshot import ClusterSnapshot
from edgegpu_agent.app_limits.drift import MOST_FIGHTS, current_amounts, drifted, missing
from edgegpu_agent.app_limits.lease import LeaseHolding
from edgegpu_agent.app_limits.live import LiveLimiter, LiveNote
from edgegpu_agent.app_limits.patches import amounts_patch, back_patch, wanted, written
from edgegpu_agent.app_limits.progress import RolloutStage, progress, selector
from edgegpu_agent.kube.apps import Apps, FoundWorkload
from edgegpu_agent.kube.watches import AppWatch
from edgegpu_agent.ports import SettlerNotes
from edgegpu_base.kube import Conflict
from edgegpu_core.limits.verdict import FitResult
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.messages.spec import AppLimits, AskedItem, OnDrift
from edgegpu_sync.messages.uplink import Condition, ItemState
from edgegpu_sync.rules.settle import Settlement

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftResult:
    """The result of one check of a settled item.

    `landed`: the new settlement of a Pending item; None: nothing new. `again`: the item was settled as Elsewhere, this
    agent now holds the lease, so the item is to be tried. `conditions`: None where this agent cannot know them.
    `interest`: what to watch for the next change. `set_again`: the limits were just set again; a rollout takes time.
    `regularly`: no watch shows all that can change, so it is checked again after a while in any case.
    """

    landed: Settlement | None = None
    conditions: tuple[Condition, ...] | None = None
    again: bool = False
    interest: AppWatch = field(default_factory=AppWatch)
    set_again: bool = False
    regularly: bool = False


class DriftChecker:
    """The settler's check of whether settled limits still hold; it sets drifted ones again where that is requested."""

    def __init__(self, apps: Apps, snapshot: ClusterSnapshot, lease: LeaseHolding, live: LiveLimiter) -> None:
        self._live = live
        self._apps = apps
        self._snapshot = snapshot
        self._lease = lease

    def look(self, one: AskedItem, settled: Settlement, notes: SettlerNotes) -> DriftResult:
        """Check one settled item. Raises KubeError."""
        limits = one.item
        if not isinstance(limits, AppLimits) or not self._lease.holds():
            return DriftResult()
        if settled.state is ItemState.ELSEWHERE:
            return DriftResult(again=True)
        found = self._apps.find(limits.namespace, limits.app)
        if len(found) != 1:
            gone = settled.state in {ItemState.APPLIED, ItemState.PENDING}
            return DriftResult(conditions=(missing(f"{limits.namespace}/{limits.app} is gone"),) if gone else ())
        back = back_patch(found[0])
        if back is not None:  # the agent ended during an interruption, and was not asked to go on
            self._apps.patch(found[0], back)
        if settled.state not in {ItemState.APPLIED, ItemState.PENDING}:
            return DriftResult(conditions=())
        note = LiveNote.read(notes) if settled.state is ItemState.APPLIED else None
        if note is not None and note.uid == found[0].uid and self._template(found[0], limits) == note.template:
            condition = self._live.look(found[0], limits, note.template)
            interest = AppWatch(frozenset({found[0].ref.kind}), selector(found[0]))
            return DriftResult(conditions=(condition,), interest=interest, regularly=True)
        waits = selector(found[0]) if settled.state is ItemState.PENDING else ""
        sight = self._stands(found[0], limits, settled, notes=notes)
        return replace(sight, interest=AppWatch(frozenset({found[0].ref.kind}), waits))

    def _template(self, found: FoundWorkload, limits: AppLimits) -> RequestedAmounts | None:
        return current_amounts(found, limits.container, self._snapshot.model())

    def _stands(
        self, found: FoundWorkload, limits: AppLimits, settled: Settlement, *, notes: SettlerNotes
    ) -> DriftResult:
        model, asked = self._snapshot.model(), RequestedAmounts(limits.memory_units, limits.core)
        now = current_amounts(found, limits.container, model)
        if now is None:
            return DriftResult(conditions=(missing(f"{found.ref} has no container {limits.container} any more"),))
        if now == asked:
            return DriftResult(
                landed=self._landed(found, limits, asked) if settled.state is ItemState.PENDING else None, conditions=()
            )
        note = ChangeNote.read(notes)
        before = fights = 0 if note is None else note.fights
        if limits.on_drift is OnDrift.ENFORCE and fights < MOST_FIGHTS:
            fights += self._set_again(found, limits, asked, notes=notes)
        condition = drifted(found, limits.container, now, asked=asked, model=model, fights=fights)
        return DriftResult(conditions=(condition,), set_again=fights > before)

    def _landed(self, found: FoundWorkload, limits: AppLimits, asked: RequestedAmounts) -> Settlement | None:
        far = progress(found, self._snapshot.pods(found), limits.container, asked, model=self._snapshot.model())
        return Settlement.applied(far.text) if far.stage in {RolloutStage.DONE, RolloutStage.PLACED} else None

    def _set_again(
        self, found: FoundWorkload, limits: AppLimits, asked: RequestedAmounts, *, notes: SettlerNotes
    ) -> int:
        """Write the limits again if they have room; return how often they were written: 0 or 1."""
        verdict = self._snapshot.judge(found, limits.container, asked)
        if (verdict.answer is FitResult.NEVER or verdict.interrupts) and not limits.force:
            return 0
        spec, model = found.template.get("spec") or {}, self._snapshot.model()
        now = written(spec, limits.container, model)
        note = ChangeNote.read(notes) or ChangeNote(uid=found.uid, before=now, asked=wanted(now, asked, model))
        replace(note, fights=note.fights + 1).write(notes)
        try:
            self._apps.patch(found, amounts_patch(spec, limits.container, wanted(now, asked, model)))
        except Conflict:
            return 1  # somebody writes it at this very moment: the next check sees the result
        _LOG.warning("%s: its limits were written back, and are set again", found.ref)
        return 1
