"""Containers of a pod that have one folder: an init container hands its devices on, and they run after each other."""

from collections.abc import Collection, Iterable, Sequence

from edgegpu_core.deviceid import DeviceKind
from edgegpu_core.ledger import CheckpointEntry
from edgegpu_core.model import CORE_PER_CARD
from edgegpu_core.nodeview import NodeView
from edgegpu_plugin.containers.held.records import has_folder


class FolderSharing:
    """Whose limits stand in a folder. It is named by the ids of one resource, which several of a pod may hold."""

    def __init__(self) -> None:
        """Know of no start yet."""
        self._started: dict[tuple[str, frozenset[str]], tuple[str, ...]] = {}
        """By a pod's UID and the folder's ids: of whom one was started last."""

    def starts(self, view: NodeView, uid: str, containers: Sequence[str], ids: Sequence[str]) -> None:
        """Note that kubelet starts one of these containers, which have the folder of these ids."""
        if len(_sharing(view, uid, ids)) > 1:
            self._started[uid, frozenset(ids)] = tuple(containers)

    def keep(self, pods: Collection[str]) -> None:
        """Forget all other pods."""
        self._started = {key: names for key, names in self._started.items() if key[0] in pods}

    def owner(self, view: NodeView, uid: str, ids: Sequence[str]) -> str | None:
        """Return the container that runs, or ran last, of those that have the folder of these ids.

        Of those of whom one was started last it is who runs, by the API, and else the one to which the others hand
        their devices on. It is None where the pod is not known yet and their limits differ.
        """
        sharing = _sharing(view, uid, ids)
        if len(sharing) <= 1:
            return sharing[0] if sharing else None
        started = self._started.get((uid, frozenset(ids)), ())
        candidates = [one for one in sharing if one in started] or sharing
        pod = view.pods.get(uid)
        if pod is None and not all(are_alike(view, uid, candidates[0], one) for one in candidates[1:]):
            return None
        runs = [] if pod is None else [name for name, _ in pod.running if name in candidates]
        return runs[-1] if runs else in_order(view, uid, candidates)[-1]

    def owned(self, view: NodeView, entries: Iterable[CheckpointEntry]) -> list[CheckpointEntry]:
        """Return those of a container's entries whose folder it has now."""
        return [
            one
            for one in entries
            if has_folder(one.device_ids) and self.owner(view, one.pod_uid, one.device_ids) == one.container
        ]

    def standing(self, view: NodeView, entries: Iterable[CheckpointEntry]) -> list[CheckpointEntry]:
        """Return those of a container's entries into whose folder its limits belong: it or one that is alike has it."""
        return [
            one
            for one in entries
            if has_folder(one.device_ids)
            and self.owner(view, one.pod_uid, one.device_ids) in alike(view, one.pod_uid, one.container)
        ]


def strictest(view: NodeView, uid: str, containers: Sequence[str]) -> str:
    """Return the one with the least compute; of several the one to which the others hand their devices on."""
    core = {one: len(view.ledger.grant(uid, one).ids.get(DeviceKind.CORE, ())) or CORE_PER_CARD for one in containers}
    return min(reversed(in_order(view, uid, containers)), key=core.__getitem__)


def alike(view: NodeView, uid: str, container: str) -> list[str]:
    """Return the containers of a pod that hold the same devices, this one first."""
    others = (one for one in view.ledger.grants(uid) if one != container and are_alike(view, uid, container, one))
    return [container, *others]


def are_alike(view: NodeView, uid: str, one: str, other: str) -> bool:
    """Return whether two containers of a pod hold the same devices, so that their limits are the same."""
    ids = view.ledger.grant(uid, other).ids
    return one == other or all(_has(view, uid, one, ids.get(kind, ()), kind) for kind in DeviceKind)


def in_order(view: NodeView, uid: str, containers: Sequence[str]) -> list[str]:
    """Return containers in the order in which kubelet allocates, where their pod is known."""
    pod = view.pods.get(uid)
    names = [] if pod is None else [one.name for one in pod.containers]
    return sorted(containers, key=lambda one: names.index(one) if one in names else len(names))


def _sharing(view: NodeView, uid: str, ids: Sequence[str]) -> list[str]:
    """Return the containers that have the folder of these ids."""
    return [one for one in view.ledger.grants(uid) if _has(view, uid, one, ids)]


def _has(view: NodeView, uid: str, container: str, ids: Sequence[str], kind: DeviceKind | None = None) -> bool:
    """Return whether a container holds exactly these ids; their order may differ."""
    held = view.ledger.grant(uid, container).ids
    some = held.values() if kind is None else [held.get(kind, ())]
    return any(len(one) == len(ids) and (one == ids or set(one) == set(ids)) for one in some)
