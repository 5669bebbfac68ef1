"""Watches of apps by name: a few watches, which keep only a fingerprint of each object."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from edgegpu_agent.kube.apps import WorkloadRef, pods_path
from edgegpu_agent.kube.client import AgentClient
from edgegpu_base.kube import Handlers, Json, Pace, Reflector
from edgegpu_core.limits.workload import WorkloadKind

App = tuple[str, str]
"""The namespace and the name of an app."""

_PACE = Pace(watch_s=(2700, 4500), relist_s=1800, longest_wait_s=30)
"""An idle watch is reopened about once an hour, and then begins with a list; nothing else is read."""

_PAGE = 20
"""Workloads per page: a large one is a MiB."""

_MOST = 16
"""The most watches, each with a thread and a connection; apps beyond them are not followed."""


@dataclass(frozen=True, slots=True)
class AppWatch:
    """The objects to watch for an app: workloads of these kinds with its name, and pods of a label selector if any."""

    kinds: frozenset[WorkloadKind] = frozenset(WorkloadKind)
    pods: str = ""


@dataclass(frozen=True, slots=True)
class _Collection:
    """The objects of one watch: those of these names, or of this label selector."""

    path: str
    names: frozenset[str] = frozenset()
    labels: str = ""

    @property
    def params(self) -> dict[str, str]:
        if self.labels:
            return {"labelSelector": self.labels}
        [*names] = self.names
        return {"fieldSelector": f"metadata.name={names[0]}"} if len(names) == 1 else {}


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    """The fingerprint of an object: its name, and hashes that differ between its states."""

    name: str
    limits: int
    """The hash of its UID, its containers' resources and its annotations."""
    status: int


class _Watch:
    """One watch with the fingerprints of its objects."""

    def __init__(self, client: AgentClient, of: _Collection, changed: Callable[[], None]) -> None:
        self._names, self._changed = of.names, changed
        self._lock = threading.Lock()
        self._seen: dict[str, _Fingerprint] = {}
        self.reflector = Reflector(
            client,
            of.path,
            convert=self._fingerprint,
            handlers=Handlers(self._replace, self._change, self._delete, changed),
            params=of.params,
            page=_PAGE,
            pace=_PACE,
        )

    def fingerprints(self, name: str) -> list[_Fingerprint]:
        """Return the fingerprints of the workload of a name; for a watch of pods, all of them."""
        with self._lock:
            return [one for one in self._seen.values() if not self._names or one.name == name]

    def _fingerprint(self, item: Json) -> _Fingerprint | None:
        name = str(item["metadata"]["name"])
        return None if self._names and name not in self._names else _fingerprint_of(item, name)

    def _replace(self, found: dict[str, _Fingerprint]) -> None:
        with self._lock:
            self._seen = found
        self._changed()

    def _change(self, uid: str, found: _Fingerprint) -> None:
        with self._lock:
            same = self._seen.get(uid) == found
            self._seen[uid] = found
        if not same:
            self._changed()

    def _delete(self, uid: str) -> None:
        with self._lock:
            there = self._seen.pop(uid, None)
        if there is not None:
            self._changed()


class Watches:
    """The watches of some apps; one thread calls the methods, and the watches' threads call `changed`."""

    def __init__(self, client: AgentClient, changed: Callable[[], None]) -> None:
        """Build the watches.

        Args:
            client: a client whose account may watch workloads and pods.
            changed: called whenever `state` of an app may have changed.
        """
        self._client, self._changed = client, changed
        self._watches: dict[_Collection, _Watch] = {}
        self._of: dict[App, frozenset[_Collection]] = {}

    def follow(self, apps: Mapping[App, AppWatch]) -> None:
        """Watch exactly these apps: one watch for each kind and namespace, and one for each selector of pods."""
        names: dict[str, set[str]] = defaultdict(set)
        for (namespace, name), interest in apps.items():
            for kind in interest.kinds:
                names[WorkloadRef(kind, namespace, name).collection_path].add(name)
        by_path = {path: _Collection(path, frozenset(some)) for path, some in names.items()}
        self._of = {
            (namespace, name): frozenset(
                [by_path[WorkloadRef(kind, namespace, name).collection_path] for kind in interest.kinds]
                + ([_Collection(pods_path(namespace), labels=interest.pods)] if interest.pods else [])
            )
            for (namespace, name), interest in apps.items()
        }
        wanted = dict.fromkeys(one for some in self._of.values() for one in some)
        for gone in [one for one in self._watches if one not in wanted]:
            self._watches.pop(gone).reflector.stop(0)
        for new in [one for one in wanted if one not in self._watches][: _MOST - len(self._watches)]:
            watch = self._watches[new] = _Watch(self._client, new, self._changed)
            watch.reflector.start()

    def state(self, app: App, *, waits: bool) -> Hashable:
        """Return a value that differs once an app has changed; None while one of its watches is missing or not in sync.

        Args:
            app: one of the apps that `follow` got.
            waits: whether the app waits for cards: then its status and its pods count as well.
        """
        watches = [self._watches.get(one) for one in self._of.get(app, ()) if waits or not one.labels]
        found = []
        for watch in watches:
            if watch is None or not watch.reflector.synced.is_set() or watch.reflector.problem:
                return None
            found += [(one.limits, one.status if waits else 0) for one in watch.fingerprints(app[1])]
        return frozenset(found) if watches else None

    @property
    def denied(self) -> str:
        """Why this account may not watch; empty when it may. Any thread may read it."""
        return next((one.reflector.problem for one in list(self._watches.values()) if one.reflector.denied), "")


def _fingerprint_of(item: Json, name: str) -> _Fingerprint:
    metadata = item["metadata"]
    spec = ((item.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    resources = [(one.get("name"), one.get("resources")) for one in containers]
    limits = [metadata["uid"], resources, metadata.get("annotations")]
    return _Fingerprint(name, _hash(limits), _hash([metadata.get("generation"), item.get("status")]))


def _hash(value: object) -> int:
    return hash(json.dumps(value, sort_keys=True))
