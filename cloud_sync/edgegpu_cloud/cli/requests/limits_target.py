"""The box and the container for which app limits are meant, found by the reports of the cluster's boxes."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from edgegpu_cloud.cli.common import Cloud, say
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.apps import apps_of, holders_of, near
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


def targets(cloud: Cloud, views: Sequence[BoxView]) -> list[LimitsTarget]:
    """Return the boxes to be asked: of each cluster the one that applies its app limits, else the one that was named.

    A line on stderr names a box that is asked in the place of another.
    """
    everyone = _enrolled(cloud, {view.cluster for view in views})
    found: dict[str, BoxView] = {}
    for view in views:
        asked = _settler(view, everyone)
        if asked.device != view.device:
            say(f"edgegpu-cloud: {asked.name} applies the app limits of {view.name}'s cluster, and is asked")
        found.setdefault(view.cluster or view.device, asked)
    return [
        LimitsTarget(cloud.fleet.details(asked.device), _others(cloud, asked, everyone)) for asked in found.values()
    ]


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
    known = sorted(holders_of(boxes, namespace, app) or asked)
    if app in known or not known:
        return app
    if len(known) > 1:
        text = f"cannot tell which container of {namespace}/{app} is meant: it has {', '.join(known)}"
        raise CloudError(text, remedy=f"name it: --container {known[0]}")
    return known[0]


def common_container(found: Sequence[LimitsTarget], namespace: str, app: str, given: str | None) -> str:
    """Return the container of an app that is meant on all of these boxes, as `container_of` finds it on each.

    Raises:
        CloudError: several are known, on one box or on several.
    """
    if given is not None:
        return given
    there = [one for one in found if holders_of((one.details, *one.others), namespace, app)] or found
    meant = sorted({container_of(one, namespace, app, None) for one in there})
    if len(meant) > 1:
        text = f"cannot tell which container of {namespace}/{app} is meant: on these boxes it has {', '.join(meant)}"
        raise CloudError(text, remedy=f"name it: --container {meant[0]}")
    return meant[0]


def say_if_unknown(target: LimitsTarget, namespace: str, app: str) -> None:
    """Print a line where an app is unknown there and a known one has almost its name."""
    known = apps_of((target.details, *target.others))
    if f"{namespace}/{app}" in {one.name for one in known}:
        return
    if names := near(known, namespace, app):
        say(f"edgegpu-cloud: no pod of {namespace}/{app} holds a share there; almost so called: {', '.join(names)}")
