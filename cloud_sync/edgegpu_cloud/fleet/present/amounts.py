"""The amounts that a container has on a box, and the limits that a change makes of them which names a part; pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.apps import is_pod_of
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.reports import pods_of
from edgegpu_cloud.fleet.specs import ContainerLimits, LimitsPatch
from edgegpu_cloud.fleet.views import BoxDetails, current_report, is_dormant
from edgegpu_cloud.phrases import phrase
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_sync.messages.spec import AppLimits, Spec, item_name
from edgegpu_sync.messages.telemetry import PodAlloc
from edgegpu_sync.messages.uplink import ItemReport, ItemState

_DRIFTED = "Drifted"
_ELSEWHERE = frozenset({ItemState.REJECTED, ItemState.UNSUPPORTED, ItemState.ELSEWHERE})
"""The states of limits that the box has not begun: its app has others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentLimits:
    """The amounts that a container has on a box; None where an amount is not known. Both 0: it has no limits."""

    memory_units: int | None = None
    core: int | None = None

    def words(self) -> str:
        """Return the amounts for people: `12 units, core 10`; `?` for one that is not known."""
        if (self.memory_units, self.core) == (0, 0):
            return "no limits"
        units = "?" if self.memory_units is None else self.memory_units
        return f"{units} unit{'' if units == 1 else 's'}, core {'?' if self.core is None else self.core}"


UNKNOWN = PresentLimits()


def requested_limits(spec: Spec, cluster: str, key: ContainerKey) -> AppLimits | None:
    """Return the limits of a container that a document requests for a cluster; None where it requests none.

    An empty cluster is that of a box that has not reported its own: any counts.
    """
    mine = (one for one in spec.app_limits if item_name(one) == key.item)
    return next((one for one in mine if cluster in {"", one.cluster}), None)


def present_limits(item: AppLimits | None, report: ItemReport | None, held: PresentLimits) -> PresentLimits:
    """Return what a container has: what was requested, else what its pods hold.

    A request counts as long as the box has not refused it or taken it back, and nobody has changed the app since.

    Args:
        item: the request, if there is one.
        report: the box's last word on the item, of whichever request.
        held: by the pods of the box's cluster.
    """
    if item is None:
        return held
    mine = current_report(report, item)
    stands = mine is None or not (_is_refused(mine) or _is_drifted(item, mine))
    return PresentLimits(memory_units=item.memory_units, core=item.core) if stands else held


def _is_refused(report: ItemReport) -> bool:
    if report.state is ItemState.FAILED:
        return bool(report.restored)
    return report.state in _ELSEWHERE and not is_dormant(report)


def _is_drifted(item: AppLimits, report: ItemReport) -> bool:
    """Whether somebody else has set other limits; live limits that a pod has lost are still those of the app."""
    return not item.live and any(one.type == _DRIFTED for one in report.conditions or ())


def held_limits(pods: Iterable[PodAlloc], key: ContainerKey) -> PresentLimits:
    """Return what a container holds in each of the app's pods; an amount is None where it is not the same in all."""
    return common_limits(held_in_pods(pods, key))


def held_in_pods(pods: Iterable[PodAlloc], key: ContainerKey) -> Iterator[PresentLimits]:
    """Yield what a container holds in each pod of the app that holds shares.

    A container with whole cards holds all their memory, whatever its limits say: its memory is not known.
    """
    for pod in pods:
        if not is_pod_of(pod, key.namespace, key.app):
            continue
        pieces = [piece for piece in pod.pieces if piece.container == key.container]
        whole = any(piece.core >= CORE_PER_CARD for piece in pieces)
        units = None if whole or not pieces else sum(piece.memory_units for piece in pieces)
        yield PresentLimits(memory_units=units, core=sum(piece.core for piece in pieces) if pieces else None)


def common_limits(each: Iterable[PresentLimits]) -> PresentLimits:
    """Return the amounts that are the same in each; None where they differ, or there is none."""
    found = set(each)
    units, cores = {one.memory_units for one in found}, {one.core for one in found}
    return PresentLimits(
        memory_units=units.pop() if len(units) == 1 else None, core=cores.pop() if len(cores) == 1 else None
    )


def present_in(box: BoxDetails, others: Iterable[BoxDetails], key: ContainerKey) -> PresentLimits:
    """Return what a container has on a box, by the last reports of the boxes of its cluster."""
    pods = [pod for one in (box, *others) for pod in pods_of(one.latest).values()]
    item = requested_limits(box.spec, box.box.cluster, key)
    return present_limits(item, box.box.items.get(key.item), held_limits(pods, key))


def key_of(limits: LimitsPatch | AppLimits) -> ContainerKey:
    """Return the container that limits are for."""
    return ContainerKey(limits.namespace, limits.app, limits.container)


def whole_limits(limits: LimitsPatch, present: PresentLimits, *, box: str) -> ContainerLimits:
    """Return limits with both amounts: what is not named is what the container has on this box.

    No memory takes the core away too, where that is not named.

    Args:
        limits: as a person asks for them.
        present: what the container has.
        box: the box's name, for the error.

    Raises:
        CloudError: nothing is named, or an amount is not and what the container has of it is not known.
    """
    if limits.memory_units is None and limits.core is None and limits.on_drift is None:
        raise CloudError(
            phrase("cannot set limits: nothing is named"), remedy=phrase("give the memory, the core, or both")
        )
    memory, core = limits.memory_units, limits.core
    if memory == 0 and core is None:
        core = 0
    known = UNKNOWN if (present.memory_units, present.core) == (0, 0) else present
    memory = known.memory_units if memory is None else memory
    core = known.core if core is None else core
    if memory is None or core is None:
        raise _not_known(limits, box=box, memory=memory is None, core=core is None)
    values = {name: getattr(limits, name) for name in ContainerLimits.__dataclass_fields__}
    return ContainerLimits(**values | {"memory_units": memory, "core": core})


def _not_known(limits: LimitsPatch, *, box: str, memory: bool, core: bool) -> CloudError:
    what, remedy = phrase("core"), phrase("give the core too")
    if memory:
        what, remedy = phrase("memory"), phrase("give the memory too")
    if memory and core:
        what, remedy = phrase("memory or core"), phrase("give both")
    text = phrase(
        "cannot set limits of %(namespace)s/%(app)s/%(container)s on %(box)s: no %(what)s is given, and what it has "
        "there is not known",
        namespace=limits.namespace,
        app=limits.app,
        container=limits.container,
        box=box,
        what=what,
    )
    return CloudError(text, remedy=remedy)


def whole_in(limits: LimitsPatch, box: BoxDetails, others: Iterable[BoxDetails]) -> ContainerLimits:
    """Return limits with both amounts, by the last reports of the boxes of a cluster.

    Raises:
        CloudError: as `whole_limits`.
    """
    present = UNKNOWN if limits.is_whole else present_in(box, others, key_of(limits))
    return whole_limits(limits, present, box=box.box.name)


def checked_patch(limits: LimitsPatch) -> ContainerLimits:
    """Return limits by which an error of those that are asked for shows: 1 stands for an amount that is not named.

    Raises:
        CloudError: nothing is named.
    """
    return whole_limits(limits, PresentLimits(memory_units=1, core=1), box="")
