"""The box and the container for which app limits are meant, found by the reports of the cluster's boxes."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from edgegpu_cloud.cli.common import Cloud, say
from edgegpu_cloud.fleet.limits.apps import apps_of, holders_of, near
from edgegpu_cloud.fleet.limits.containers import meant_container
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.views import BoxDetails, BoxView
from edgegpu_cloud.store.records import BoxState


@dataclass(frozen=True, slots=True)
class LimitsTarget:
    """A box that is asked for limits, and the others of its cluster."""

    details: BoxDetails
    others: Sequence[BoxDetails]

    @property
    def name(self) -> str:
        """The name of the box."""
        return self.details.box.name


def target_of(cloud: Cloud, view: BoxView) -> LimitsTarget:
    """Return the box to be asked: of the box's cluster the one that applies its app limits, else the box itself.

    A line on stderr names a box that is asked in the place of another.
    """
    everyone = _enrolled(cloud, {view.cluster})
    asked = _settler(view, everyone)
    if asked.device != view.device:
        say(f"edgegpu-cloud: {asked.name} applies the app limits of {view.name}'s cluster, and is asked")
    return LimitsTarget(cloud.fleet.details(asked.device), _others(cloud, asked, everyone))


def box_and_others(cloud: Cloud, view: BoxView) -> LimitsTarget:
    """Return a box itself with the others of its cluster."""
    return LimitsTarget(cloud.fleet.details(view.device), _others(cloud, view, _enrolled(cloud, {view.cluster})))


def _enrolled(cloud: Cloud, clusters: Collection[str]) -> list[BoxView]:
    """Return the enrolled boxes of some clusters."""
    known = frozenset(filter(None, clusters))
    return cloud.fleet.matching(BoxFilter(clusters=known, states=frozenset({BoxState.ENROLLED}))) if known else []


def _settler(view: BoxView, everyone: Iterable[BoxView]) -> BoxView:
    if view.holder or not view.cluster or view.state is BoxState.REVOKED:
        return view
    return next((one for one in everyone if one.holder and one.online and one.cluster == view.cluster), view)


def _others(cloud: Cloud, box: BoxView, everyone: Iterable[BoxView]) -> list[BoxDetails]:
    same = (one for one in everyone if box.cluster and one.cluster == box.cluster and one.device != box.device)
    return [cloud.fleet.details(one.device) for one in same]


def container_of(target: LimitsTarget, namespace: str, app: str, given: str | None) -> str:
    """Return the container of an app that is meant: the named one, else the only one known, else the app's namesake.

    Raises:
        CloudError: several are known.
    """
    if given is not None:
        return given
    boxes = (target.details, *target.others)
    asked = {
        item.container for item in target.details.spec.app_limits if (item.namespace, item.app) == (namespace, app)
    }
    return meant_container(holders_of(boxes, namespace, app) or asked, namespace, app)


def say_if_unknown(target: LimitsTarget, namespace: str, app: str) -> None:
    """Print a line where an app is unknown there and a known one has almost its name."""
    known = apps_of((target.details, *target.others))
    if f"{namespace}/{app}" in {one.name for one in known}:
        return
    if names := near(known, namespace, app):
        say(f"edgegpu-cloud: no pod of {namespace}/{app} holds a share there; almost so called: {', '.join(names)}")
