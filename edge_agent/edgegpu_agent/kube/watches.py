"""Watches apps by name: a few watches, and of each object only a fingerprint of what is compared."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from edgegpu_agent.kube.apps import WorkloadRef, pods_folder
from edgegpu_agent.kube.client import AgentClient, Json
from edgegpu_base.kube import Handlers, Pace, Reflector
from edgegpu_core.limits import WorkloadKind

App = tuple[str, str]
"""Namespace and name."""

_PACE = Pace(watch_s=(2700, 4500), relist_s=1800, longest_wait_s=30)
"""An idle watch is opened anew about once an hour, and then begins with a list: that is all the reading there is."""

_PAGE = 20
"""Workloads per page: of one that is large there is a MiB."""

_MOST = 16
"""So many watches are kept, each a thread and a connection; what is beyond them is not followed."""


@dataclass(frozen=True, slots=True)
class AppWatch:
    """What is watched of an app: workloads of these kinds under its name, and pods of a label selector if any."""

    kinds: frozenset[WorkloadKind] = frozenset(WorkloadKind)
    pods: str = ""


@dataclass(frozen=True, slots=True)
class _Collection:
    """What one watch follows: objects of these names, or of this label selector."""

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
class _Print:
    """What is kept of an object: its name, and what tells one state of it from another."""

    name: str
    limits: int
    """Of its identity, its containers' resources and annotations."""
    status: int


class _Watch:
    """One watch and the fingerprints of what it shows."""

    def __init__(self, client: AgentClient, of: _Collection, changed: Callable[[], None]) -> None:
        self._names, self._changed = of.names, changed
        self._lock = threading.Lock()
        self._seen: dict[str, _Print] = {}
        self.reflector = Reflector(
            client,
            of.path,
            convert=self._print,
            handlers=Handlers(self._replace, self._change, self._delete, changed),
            params=of.params,
            page=_PAGE,
            pace=_PACE,
        )

    def prints(self, name: str) -> list[_Print]:
        """Return what is there under a name; of pods everything."""
        with self._lock:
            return [one for one in self._seen.values() if not self._names or one.name == name]

    def _print(self, item: Json) -> _Print | None:
        name = str(item["metadata"]["name"])
        return None if self._names and name not in self._names else _print_of(item, name)

    def _replace(self, found: dict[str, _Print]) -> None:
        with self._lock:
            self._seen = found
        self._changed()

    def _change(self, uid: str, found: _Print) -> None:
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
    """The watches of some apps; one thread calls it, `changed` is told from theirs."""

    def __init__(self, client: AgentClient, changed: Callable[[], None]) -> None:
        """Build the watches.

        Args:
            client: whose account may watch workloads and pods.
            changed: told whenever `state` of an app may be another one.
        """
        self._client, self._changed = client, changed
        self._watches: dict[_Collection, _Watch] = {}
        self._of: dict[App, frozenset[_Collection]] = {}

    def follow(self, apps: Mapping[App, AppWatch]) -> None:
        """Watch these apps and no others: one watch for each kind and namespace, one for each selector of pods."""
        names: dict[str, set[str]] = defaultdict(set)
        for (namespace, name), interest in apps.items():
            for kind in interest.kinds:
                names[WorkloadRef(kind, namespace, name).folder].add(name)
        by_path = {path: _Collection(path, frozenset(some)) for path, some in names.items()}
        self._of = {
            (namespace, name): frozenset(
                [by_path[WorkloadRef(kind, namespace, name).folder] for kind in interest.kinds]
                + ([_Collection(pods_folder(namespace), labels=interest.pods)] if interest.pods else [])
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
        """Return what differs once an app has changed; None while it is not followed: its watches do not stand.

        Args:
            app: one of those that `follow` was given.
            waits: whether it waits for cards: then its status and its pods count as well.
        """
        watches = [self._watches.get(one) for one in self._of.get(app, ()) if waits or not one.labels]
        found = []
        for watch in watches:
            if watch is None or not watch.reflector.synced.is_set() or watch.reflector.problem:
                return None
            found += [(one.limits, one.status if waits else 0) for one in watch.prints(app[1])]
        return frozenset(found) if watches else None

    @property
    def denied(self) -> str:
        """Why this account may not watch; empty when it may. From any thread."""
        return next((one.reflector.problem for one in list(self._watches.values()) if one.reflector.denied), "")


def _print_of(item: Json, name: str) -> _Print:
    metadata = item["metadata"]
    spec = ((item.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    resources = [(one.get("name"), one.get("resources")) for one in containers]
    limits = [metadata["uid"], resources, metadata.get("annotations")]
    return _Print(name, _hash(limits), _hash([metadata.get("generation"), item.get("status")]))


def _hash(value: object) -> int:
    return hash(json.dumps(value, sort_keys=True))
