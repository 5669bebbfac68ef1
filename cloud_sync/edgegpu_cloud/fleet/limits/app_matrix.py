"""The matrix of apps and boxes: requested limits, what runs now, and what differs between boxes; pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from edgegpu_cloud.fleet.limits.apps import app_name, is_pod_of
from edgegpu_cloud.fleet.limits.history import ContainerKey
from edgegpu_cloud.fleet.limits.outcomes import LimitsOutcome, outcome_of
from edgegpu_cloud.fleet.reports import CardReports, card_reports
from edgegpu_cloud.fleet.views import BoxDetails
from edgegpu_core.request import RequestedAmounts
from edgegpu_sync.ids import DeviceId
from edgegpu_sync.messages.spec import AppLimits
from edgegpu_sync.messages.telemetry import CardShare


@dataclass(frozen=True, slots=True)
class PodAmounts:
    """What a container may use in one pod, and on which cards (UUIDs); a live limit is less than what it holds."""

    uid: str
    pod: str
    amounts: RequestedAmounts
    cards: tuple[str, ...]
    live_of_units: int | None = None
    """What it holds, where it is held to less than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """An app's container on one box. `differs`: it has other limits there than on most boxes of the row."""

    device: DeviceId
    requested: AppLimits | None
    running: tuple[PodAmounts, ...]
    outcome: LimitsOutcome
    unit_mib: int
    differs: bool = False

    @property
    def amounts(self) -> RequestedAmounts | None:
        """The requested limits, else those that run; None where there is neither."""
        if self.requested is not None:
            return RequestedAmounts(self.requested.memory_units, self.requested.core)
        return self.running[0].amounts if self.running else None

    @property
    def is_uneven(self) -> bool:
        """Whether a pod holds something else than was requested, or than another pod."""
        found = {one.amounts for one in self.running}
        if self.requested is not None and self.running:
            found.add(RequestedAmounts(self.requested.memory_units, self.requested.core))
        return len(found) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """One container of an app, with a cell for each box that has it, by device."""

    key: ContainerKey
    cells: Mapping[DeviceId, MatrixCell]

    @property
    def differs(self) -> bool:
        """Whether boxes have different limits."""
        return any(cell.differs for cell in self.cells.values())


@dataclass(frozen=True, slots=True)
class AppMatrix:
    """A page of apps on a page of boxes."""

    boxes: Sequence[BoxDetails]
    rows: Sequence[MatrixRow]


def app_matrix(boxes: Sequence[BoxDetails], apps: Collection[str] | None = None) -> AppMatrix:
    """Return the matrix of some boxes.

    Args:
        boxes: the columns, in their order.
        apps: the apps (NAMESPACE/APP) of this page; None for all that the boxes have.
    """
    found: dict[ContainerKey, dict[DeviceId, MatrixCell]] = {}
    for details in boxes:
        for key, cell in _cells(details).items():
            if apps is None or f"{key.namespace}/{key.app}" in apps:
                found.setdefault(key, {})[details.box.device] = cell
    keys = sorted(found, key=lambda key: (key.namespace, key.app, key.container))
    return AppMatrix(boxes, [MatrixRow(key=key, cells=_marked(found[key])) for key in keys])


def _cells(details: BoxDetails) -> dict[ContainerKey, MatrixCell]:
    reports = card_reports(details.latest)
    requested = {ContainerKey(one.namespace, one.app, one.container): one for one in details.spec.app_limits}
    running = _running(reports, requested)
    return {
        key: MatrixCell(
            device=details.box.device,
            requested=requested.get(key),
            running=tuple(running.get(key, ())),
            outcome=outcome_of(details.box, requested.get(key)),
            unit_mib=reports.inventory.unit_mib if reports else 0,
        )
        for key in requested.keys() | running.keys()
    }


def _running(reports: CardReports | None, requested: Iterable[ContainerKey]) -> dict[ContainerKey, list[PodAmounts]]:
    """Return what runs, by container; an app with requested limits is told from its pods by its own name."""
    named = {(key.namespace, key.app) for key in requested}
    found: dict[ContainerKey, list[PodAmounts]] = {}
    for uid, pod in sorted(reports.pods.items() if reports else ()):
        app = next((app for space, app in named if is_pod_of(pod, space, app)), app_name(pod.name))
        for container in dict.fromkeys(piece.container for piece in pod.pieces):
            pieces = [piece for piece in pod.pieces if piece.container == container]
            one = PodAmounts(
                uid=uid,
                pod=pod.name,
                amounts=RequestedAmounts(sum(_used(piece) for piece in pieces), sum(piece.core for piece in pieces)),
                cards=tuple(piece.card for piece in pieces),
                live_of_units=_live_of(pieces),
            )
            found.setdefault(ContainerKey(pod.namespace, app, container), []).append(one)
    return found


def _live_of(pieces: Sequence[CardShare]) -> int | None:
    """Return the units that a container holds where it is held to less; else None."""
    held, used = sum(piece.memory_units for piece in pieces), sum(_used(piece) for piece in pieces)
    return held if used < held else None


def _used(piece: CardShare) -> int:
    """Return the units that a container may use of a card."""
    return piece.memory_units if piece.live_units is None else piece.live_units


def _marked(cells: Mapping[DeviceId, MatrixCell]) -> dict[DeviceId, MatrixCell]:
    """Mark the cells that differ from the most frequent limits; where no limits are more frequent, all are marked."""
    sizes = {device: _size(cell) for device, cell in cells.items()}
    counts = Counter(size for size in sizes.values() if size is not None).most_common(2)
    if len(counts) <= 1:
        return dict(cells)
    usual = counts[0][0] if counts[0][1] > counts[1][1] else None
    return {
        device: replace(cell, differs=sizes[device] is not None and sizes[device] != usual)
        for device, cell in cells.items()
    }


def _size(cell: MatrixCell) -> tuple[int, int] | None:
    """Return limits in a measure that is the same on all boxes: MiB where the unit is known."""
    amounts = cell.amounts
    return None if amounts is None else (amounts.memory_units * (cell.unit_mib or 1), amounts.core)
