"""The editor of an app's limits: what is typed, and what would come of it on each box."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.limits.amounts import MemoryAmount, MemoryMeasure, read_core, read_memory
from edgegpu_cloud.fleet.limits.app_values import AppOnBox, app_on_box
from edgegpu_cloud.fleet.limits.apps import FleetApp, apps_of, near
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.limits.preview_bars import BarsPreview, bars_preview
from edgegpu_cloud.fleet.limits.targets import ClusterTarget, cluster_target
from edgegpu_cloud.fleet.listing import BoxFilter, PageOrder
from edgegpu_cloud.fleet.present.amounts import whole_in
from edgegpu_cloud.fleet.preview.live import PodChange
from edgegpu_cloud.fleet.reports import read_latest
from edgegpu_cloud.fleet.specs import ContainerLimits, LimitsPatch, check_app
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import BoxState
from edgegpu_sync.messages.spec import OnDrift
from edgegpu_sync.messages.telemetry import Inventory
from edgegpu_sync.topics import TopicKind

MOST_BOXES = 50
"""The boxes that the editor changes at once: more go in a rollout."""

_DEFAULT_UNIT_MIB = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedLimits:
    """New limits as they were typed. `also`: a label selector of more boxes.

    An empty amount stays as it is on each box; where both are empty the editor begins with those of the first box.
    """

    memory: str = ""
    measure: str = MemoryMeasure.UNITS
    core: str = ""
    force: bool = False
    interrupt: bool = False
    live: bool = False
    on_drift: str = ""
    also: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedBox:
    """One box that is asked, with the present limits, the new ones, and the preview or why there is none.

    `rev` is the revision of its document that the preview was made of.
    """

    target: ClusterTarget
    cell: AppOnBox | None
    limits: ContainerLimits | None
    amount: MemoryAmount | None
    bars: BarsPreview | None
    problem: CloudError | None

    @property
    def rev(self) -> int:
        """The revision that a person sees."""
        return self.target.asked.box.rev

    @property
    def is_live(self) -> bool:
        """Whether the limits change at once and without a new pod, by what the boxes have reported."""
        return self.bars is not None and self.bars.preview.pods is PodChange.HELD

    @property
    def is_refused(self) -> bool:
        """Whether the box would refuse them for want of room."""
        return self.bars is not None and not self.bars.preview.fits

    @property
    def name(self) -> str:
        """The name of the box that is asked."""
        return self.target.asked.box.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsEdit:
    """The state of the editor. `problem`: why what was typed is no amount; `near`: apps with almost this name."""

    key: ContainerKey
    typed: TypedLimits
    boxes: Sequence[EditedBox]
    problem: CloudError | None
    near: Sequence[str]

    @property
    def main(self) -> EditedBox:
        """The box whose page the editor was opened from, or the one that settles for it."""
        return self.boxes[0]

    @property
    def ready(self) -> Sequence[EditedBox]:
        """The boxes on which limits can be set."""
        return [one for one in self.boxes if one.limits is not None and one.problem is None]


def edit_limits(fleet: Fleet, device: str, key: ContainerKey, typed: TypedLimits) -> LimitsEdit:
    """Return the editor's state for what was typed.

    Raises:
        NotFoundError: no such box.
        CloudError: no box accepts such an app, or the selector is none.
    """
    check_app(key.namespace, key.app, key.container)
    first = cluster_target(fleet, device)
    cell = _cell(first, key)
    typed = _filled(typed, cell)
    problem: CloudError | None = None
    try:
        _amount(typed, first)
        _core(typed)
        _drift(typed.on_drift)
    except CloudError as error:
        problem = error
    targets = [first, *(_selected(fleet, typed.also, first) if typed.also else ())]
    boxes = [_edited(one, key, typed, problem) for one in targets]
    known = apps_of(first.boxes)
    return LimitsEdit(key=key, typed=typed, boxes=boxes, problem=problem, near=_near(known, key))


def unit_mib_of(target: ClusterTarget) -> int:
    """Return the MiB of a unit on a box; 256 where it has not reported any."""
    told: Inventory | None = read_latest(target.asked.latest, TopicKind.INVENTORY)
    return (told.unit_mib if told is not None else 0) or _DEFAULT_UNIT_MIB


def _near(known: Sequence[FleetApp], key: ContainerKey) -> Sequence[str]:
    if f"{key.namespace}/{key.app}" in {one.name for one in known}:
        return ()
    return near(known, key.namespace, key.app)


def _cell(target: ClusterTarget, key: ContainerKey) -> AppOnBox | None:
    """Return the app on the asked box, else on another of its cluster."""
    there = (app_on_box(details, key) for details in target.boxes)
    return next((one for one in there if one.amounts is not None), None)


def _filled(typed: TypedLimits, cell: AppOnBox | None) -> TypedLimits:
    """Return what was typed, with the present amounts where neither was, as far as they are known."""
    now = cell.amounts if cell is not None else None
    asked = cell.requested if cell is not None else None
    opened = not typed.memory and not typed.core
    return TypedLimits(
        memory=str(now.memory_units) if opened and now is not None else typed.memory,
        measure=typed.measure,
        core=str(now.core) if opened and now is not None else typed.core,
        force=typed.force,
        interrupt=typed.interrupt,
        live=typed.live or (opened and asked is not None and asked.live),
        on_drift=typed.on_drift or (asked.on_drift.value if asked else OnDrift.REPORT.value),
        also=typed.also,
    )


def _selected(fleet: Fleet, selector: str, first: ClusterTarget) -> list[ClusterTarget]:
    """Return the boxes that a selector matches, of each cluster the one that settles.

    Raises:
        CloudError: the text is no selector, or it matches too many boxes.
    """
    where = BoxFilter(selector=selector, states=frozenset({BoxState.ENROLLED}))
    page = fleet.page(where, PageOrder(limit=MOST_BOXES))
    if page.next:
        text = phrase(
            "cannot set limits on all boxes with these labels here: the editor changes at most %(most_boxes)s at once",
            most_boxes=MOST_BOXES,
        )
        raise CloudError(text, remedy=phrase("choose fewer by their labels, or make a rollout of it"))
    seen, targets = {first.asked.box.device}, []
    for listed in page.boxes:
        target = cluster_target(fleet, listed.device)
        if target.asked.box.device not in seen:
            seen.add(target.asked.box.device)
            targets.append(target)
    return targets


def _drift(text: str) -> OnDrift:
    try:
        return OnDrift(text)
    except ValueError:
        remedy = phrase("choose one of %(ondrift)s", ondrift=", ".join(OnDrift))
        raise CloudError(phrase("cannot set what is done on drift to %(text)r", text=text), remedy=remedy) from None


def _amount(typed: TypedLimits, target: ClusterTarget) -> MemoryAmount | None:
    """Return the memory that was typed, in a box's units; None: none was."""
    return read_memory(typed.memory, typed.measure, unit_mib_of(target)) if typed.memory.strip() else None


def _core(typed: TypedLimits) -> int | None:
    return read_core(typed.core) if typed.core.strip() else None


def _edited(target: ClusterTarget, key: ContainerKey, typed: TypedLimits, problem: CloudError | None) -> EditedBox:
    cell = _cell(target, key)
    if problem is not None:
        return EditedBox(target=target, cell=cell, limits=None, amount=None, bars=None, problem=None)
    amount = _amount(typed, target)
    wanted = LimitsPatch(
        namespace=key.namespace,
        app=key.app,
        container=key.container,
        memory_units=amount.units if amount is not None else None,
        core=_core(typed),
        force=typed.force,
        interrupt=typed.interrupt,
        live=typed.live,
        on_drift=_drift(typed.on_drift),
    )
    try:
        limits = whole_in(wanted, target.asked, target.others)
    except CloudError as error:
        return EditedBox(target=target, cell=cell, limits=None, amount=None, bars=None, problem=error)
    amount = amount or MemoryAmount(limits.memory_units, unit_mib_of(target))
    try:
        bars = bars_preview(target.asked, target.others, limits)
    except CloudError as error:
        return EditedBox(target=target, cell=cell, limits=limits, amount=amount, bars=None, problem=error)
    return EditedBox(target=target, cell=cell, limits=limits, amount=amount, bars=bars, problem=None)
