"""The box that is asked for an app's limits, with the others of its cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

from edgegpu_cloud.fleet.fleet import Fleet
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.views import BoxDetails, BoxView
from edgegpu_cloud.store.records import BoxState


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The box whose agent settles the app limits of a cluster, else the one that was named, and the others there."""

    asked: BoxDetails
    others: Sequence[BoxDetails]

    @property
    def boxes(self) -> tuple[BoxDetails, ...]:
        """All boxes of the cluster, the asked one first."""
        return (self.asked, *self.others)


def cluster_target(fleet: Fleet, device: str) -> ClusterTarget:
    """Return the box to ask for limits that are wanted on a box.

    Raises:
        NotFoundError: no such box.
    """
    view = fleet.box(device)
    same = _same_cluster(fleet, view)
    asked = _settler(view, same)
    others = [fleet.details(one.device) for one in same if one.device != asked.device]
    return ClusterTarget(fleet.details(asked.device), others)


def _same_cluster(fleet: Fleet, view: BoxView) -> list[BoxView]:
    if not view.cluster:
        return [view]
    where = BoxFilter(clusters=frozenset({view.cluster}), states=frozenset({BoxState.ENROLLED}))
    return fleet.matching(where) or [view]


def _settler(view: BoxView, same: Sequence[BoxView]) -> BoxView:
    if view.holder or view.state is not BoxState.ENROLLED:
        return view
    return next((one for one in same if one.holder and one.online), view)
