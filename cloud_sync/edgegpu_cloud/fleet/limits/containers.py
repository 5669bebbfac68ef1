"""The container of an app that is meant where none is named, by what boxes have reported and people have requested."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.limits.apps import containers_in
from edgegpu_cloud.fleet.listing import AT_ONCE
from edgegpu_cloud.fleet.reports import pods_of
from edgegpu_cloud.fleet.specs import check_app
from edgegpu_cloud.phrases import phrase
from edgegpu_cloud.store.records import Json
from edgegpu_cloud.store.store import Transaction
from edgegpu_cloud.store.summaries.box_list import AppHolder, BoxQuery
from edgegpu_sync.messages.telemetry import PodAlloc
from edgegpu_sync.topics import TopicKind


def meant_container(known: Collection[str], namespace: str, app: str) -> str:
    """Return the container of an app that is meant: the only one known, else the app's namesake.

    Raises:
        CloudError: several are known, and none is called like the app.
    """
    if app in known or not known:
        return app
    if len(known) > 1:
        raise _several(known, namespace, app)
    return next(iter(known))


def common_container(tx: Transaction, query: BoxQuery, namespace: str, app: str) -> str:
    """Return the container of an app that is meant on all boxes of a query, which are read `AT_ONCE` at a time.

    In each of their clusters that is the one that holds shares; where none does anywhere, the one whose limits were
    requested.

    Raises:
        CloudError: several are meant, or no app can be called so.
    """
    check_app(namespace, app, app)
    held: dict[str, set[str]] = defaultdict(set)
    for cluster, pods in holding_pods(tx, query, namespace, app):
        held[cluster] |= containers_in(pods, namespace, app)
    found = {meant_container(names, namespace, app) for names in held.values() if names}
    if not found:
        found = _requested(tx, query, namespace, app)
    if len(found) > 1:
        raise _several(found, namespace, app)
    return meant_container(found, namespace, app)


def holding_pods(
    tx: Transaction, query: BoxQuery, namespace: str, app: str
) -> Iterator[tuple[str, Mapping[str, PodAlloc]]]:
    """Yield the cluster and the pods of each box of a query's clusters on which pods hold shares that may be an app's.

    The boxes are read `AT_ONCE` at a time.
    """
    for part in _parts(tx, query, _names_in_reports(namespace, app), requested=False):
        latest = tx.boxes.latest([one.device for one in part], [TopicKind.ALLOC])
        for one in part:
            if (said := latest.get((one.device, TopicKind.ALLOC))) is not None:
                yield one.cluster, pods_of({TopicKind.ALLOC: said})


def _parts(
    tx: Transaction, query: BoxQuery, apps: Collection[str], *, requested: bool
) -> Iterator[Sequence[AppHolder]]:
    after = ""
    while part := tx.list.with_apps(query, apps, requested=requested, after=after, limit=AT_ONCE):
        yield part
        after = part[-1].name


def _names_in_reports(namespace: str, app: str) -> list[str]:
    """Return the names under which an app is listed: by its pods' names alone it may end before one of its hyphens."""
    ends = [at for at, letter in enumerate(app) if letter == "-"]
    return [f"{namespace}/{app[:end]}" for end in (*ends, len(app))]


def _requested(tx: Transaction, query: BoxQuery, namespace: str, app: str) -> set[str]:
    found = set[str]()
    for part in _parts(tx, query, [f"{namespace}/{app}"], requested=True):
        boxes = tx.boxes.get([one.device for one in part])
        specs = tx.boxes.specs([(box.device, box.spec_rev) for box in boxes.values()])
        found |= {name for spec in specs.values() for name in _containers(spec, namespace, app)}
    return found


def _containers(spec: Json, namespace: str, app: str) -> Iterator[str]:
    for item in spec.get("app_limits", ()):
        if (item["namespace"], item["app"]) == (namespace, app):
            yield str(item["container"])


def _several(names: Collection[str], namespace: str, app: str) -> CloudError:
    known = sorted(names)
    text = phrase(
        "cannot tell which container of %(namespace)s/%(app)s is meant: it has %(names)s",
        namespace=namespace,
        app=app,
        names=", ".join(known),
    )
    return CloudError(text, remedy=phrase("name it: --container %(name)s", name=known[0]))
