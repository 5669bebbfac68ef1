"""The node's container runtime: containers outlive a restart of kubelet, not a reboot. No process is started."""

import itertools
import math
import shlex
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgegpu_plugin.pb import Allocation
from edgegpu_sim.api.objects import Json
from edgegpu_sim.containers import ContainerView, make_view
from edgegpu_sim.errors import SimError


@dataclass(frozen=True, slots=True)
class ContainerBehaviour:
    """The behaviour of a container: it ends after `runs_s` (infinite: never) with `exit_code`."""

    runs_s: float = math.inf
    exit_code: int = 0


def behaviour(container: Mapping[str, Any]) -> ContainerBehaviour:
    """Return a container's behaviour: `true`, `false`, `sleep N`, `exit N`, a `sh -c` of these; others run for ever."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    if len(words) > 2 and words[0].rpartition("/")[2] == "sh" and words[1] == "-c":  # noqa: PLR2004  (sh -c TEXT)
        words = shlex.split(words[2].replace(";", " ; "))
    runs_s, code = 0.0, 0
    for part in _split(words):
        name, *rest = part
        match name.rpartition("/")[2], rest:
            case "true", _:
                code = 0
            case "false", _:
                code = 1
            case "exit", [number, *_] if number.isdigit():
                return ContainerBehaviour(runs_s, int(number))
            case "sleep", [number, *_] if number.replace(".", "", 1).isdigit():
                runs_s += float(number)
            case _:
                return ContainerBehaviour()
    return ContainerBehaviour(runs_s, code) if words else ContainerBehaviour()


def _split(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word in {";", "&&"}:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


KILLED = 137


@dataclass(frozen=True, slots=True)
class SimContainer:
    """One container in its last attempt; times are seconds since the epoch."""

    id: str
    name: str
    attempt: int
    started_s: float
    ends_s: float
    ends_with: int
    view: ContainerView

    def is_running(self, now_s: float) -> bool:
        """Return whether the container still runs."""
        return now_s < self.ends_s


@dataclass(frozen=True, slots=True)
class _Pod:
    metadata: Json
    containers: dict[str, SimContainer]


class Runtime:
    """The runtime, which starts, ends and lists containers; thread-safe."""

    def __init__(self, folder: Path, *, cdi_folders: Sequence[Path]) -> None:
        self._folder = folder
        self._cdi_folders = tuple(cdi_folders)
        self._lock = threading.Lock()
        self._pods: dict[str, _Pod] = {}
        self._numbers = itertools.count(1)

    def start(self, pod: Json, container: Mapping[str, Any], given: Allocation) -> SimContainer:
        """Create and start a container.

        Raises:
            CreateError: the runtime cannot give the container what it should have.
        """
        number = next(self._numbers)
        env = {e["name"]: str(e.get("value") or "") for e in container.get("env") or ()}
        view = make_view(self._folder / str(number), cdi_folders=self._cdi_folders, given=given, pod_env=env)
        does, now_s = behaviour(container), time.time()
        name, metadata = container["name"], pod["metadata"]
        with self._lock:
            entry = self._pods.setdefault(metadata["uid"], _Pod(metadata, {}))
            before = entry.containers.get(name)
            started = SimContainer(
                id=f"sim://{number:064x}",
                name=name,
                attempt=0 if before is None else before.attempt + 1,
                started_s=now_s,
                ends_s=now_s + does.runs_s,
                ends_with=does.exit_code,
                view=view,
            )
            entry.containers[name] = started
        if before is not None:
            shutil.rmtree(before.view.root, ignore_errors=True)
        return started

    def containers(self, uid: str) -> dict[str, SimContainer]:
        """Return a pod's containers by name."""
        with self._lock:
            return dict(self._pods[uid].containers) if uid in self._pods else {}

    def kill(self, uid: str, *names: str, code: int = KILLED) -> None:
        """End all running containers of a pod, or those with these names."""
        now_s = time.time()
        with self._lock:
            found = self._pods[uid].containers if uid in self._pods else {}
            for name, container in found.items():
                if container.is_running(now_s) and (not names or name in names):
                    found[name] = replace(container, ends_s=now_s, ends_with=code)

    def forget(self, uid: str) -> None:
        """Remove a pod's containers."""
        with self._lock:
            entry = self._pods.pop(uid, None)
        for container in entry.containers.values() if entry else ():
            shutil.rmtree(container.view.root, ignore_errors=True)

    def forget_all(self) -> None:
        """Remove all containers, as a reboot does."""
        for uid in self.pods():
            self.forget(uid)

    def pods(self) -> list[str]:
        """Return the UIDs of all pods that have containers."""
        with self._lock:
            return list(self._pods)

    def running(self) -> list[Json]:
        """Return the pods with running containers as `/runningpods/` shows them, with little more than names."""
        now_s = time.time()
        with self._lock:
            found = [
                (pod.metadata, [c.name for c in pod.containers.values() if c.is_running(now_s)])
                for pod in self._pods.values()
            ]
        return [
            {
                "metadata": {key: metadata.get(key) for key in ("name", "namespace", "uid")},
                "spec": {"containers": [{"name": name, "image": "sim", "resources": {}} for name in names]},
                "status": {},
            }
            for metadata, names in found
            if names
        ]

    def view(self, uid: str, name: str) -> ContainerView:
        """Return the view of a running container.

        Raises:
            SimError: the container does not run.
        """
        container = self.containers(uid).get(name)
        if container is None or not container.is_running(time.time()):
            raise SimError(f"cannot exec: container {name} does not run")
        return container.view
