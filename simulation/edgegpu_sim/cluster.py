"""The embedded cluster: API, scheduler, controllers and nodes in this process, plugins as separate processes."""

import random
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Self, TypeVar

from edgegpu_sim.api import ApiError, ApiServer, Json, ObjectSelector, Registry, ServerSettings, write_kubeconfig
from edgegpu_sim.controllers import Controllers
from edgegpu_sim.errors import TimeoutSimError
from edgegpu_sim.node import NodeSpec, SimNode
from edgegpu_sim.ports import free_port
from edgegpu_sim.scheduler.extender import ClientTls, ExtenderSettings
from edgegpu_sim.scheduler.queue import AttemptBackoff
from edgegpu_sim.scheduler.scheduler import SchedulerSettings, SimScheduler

_T = TypeVar("_T")
_RESOURCES = {"Pod": "pods", "Deployment": "deployments", "Node": "nodes"}
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The settings of an embedded cluster."""

    with_extender: bool = True
    """Whether the scheduler calls the extender of the first server's plugin."""
    server_tls: Mapping[str, str] | None = None
    """The plugin's `extender.tls`; without it the extender uses plain HTTP."""
    client_tls: ClientTls | None = None
    extender: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of ExtenderSettings."""
    backoff: AttemptBackoff = field(default_factory=AttemptBackoff)
    history: int = 20_000


class EmbeddedCluster:
    """A cluster in one temporary folder; use it as a context manager, or start and stop it."""

    def __init__(self, nodes: Sequence[NodeSpec], *, seed: int = 0, settings: ClusterSettings | None = None) -> None:
        settings = settings or ClusterSettings()
        self.folder = Path(tempfile.mkdtemp(prefix="eg", dir="/tmp"))
        order = random.Random(seed)  # noqa: S311  (a seed, to see the same order again)
        self.registry = Registry(random_names=random.Random(order.random()), history=settings.history)  # noqa: S311
        self._tokens = {spec.name: secrets.token_hex(16) for spec in nodes}
        self._admin = secrets.token_hex(16)
        users = {token: f"plugin:{name}" for name, token in self._tokens.items()}
        self.api = ApiServer(self.registry, ServerSettings({**users, self._admin: "admin"}))
        self.nodes = {
            spec.name: SimNode(
                spec,
                self.folder / str(index),
                registry=self.registry,
                order=random.Random(order.random()),  # noqa: S311
            )
            for index, spec in enumerate(nodes)
        }
        self.extender_port = free_port()
        self.controllers = Controllers(self.registry)
        self._settings = settings
        self.scheduler = SimScheduler(
            SchedulerSettings(extender=self._extender(), backoff=settings.backoff),
            registry=self.registry,
            order=random.Random(order.random()),  # noqa: S311
        )

    @property
    def api_url(self) -> str:
        """The URL of the API."""
        return self.api.url

    @property
    def kubeconfig_path(self) -> Path:
        """The path of a kubeconfig with all rights; each node has its own in `SimNode.kubeconfig_path`."""
        return self.folder / "kubeconfig"

    def start(self) -> None:
        """Start API, kubelets, scheduler and controllers; `start_plugin` starts a plugin."""
        self.api.start()
        write_kubeconfig(self.kubeconfig_path, url=self.api_url, token=self._admin, user="admin")
        listener = True
        for name, node in self.nodes.items():
            token = self._tokens[name]
            write_kubeconfig(node.kubeconfig_path, url=self.api_url, token=token, user=f"plugin:{name}")
            asked = listener and node.spec.role != "agent"
            port = self.extender_port if asked else free_port()
            listener = listener and not asked
            node.write_config(extender=self._listen(port))
            self.api.requests.proxies[name] = node.kubelet.proxy
            if node.spec.role != "extender-only":
                node.kubelet.start()
        self.scheduler.start()
        self.controllers.start()

    def stop(self) -> None:
        """End all parts of the cluster and remove its folder."""
        self.controllers.stop()
        self.scheduler.stop()
        for node in self.nodes.values():
            node.stop()
        self.api.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_plugin(self, node: str) -> None:
        """Start the real plugin process of a node."""
        self.nodes[node].start_plugin()

    def kill_plugin(self, node: str) -> None:
        """Kill a node's plugin as `kill -9` does."""
        self.nodes[node].kill_plugin()

    def apply(self, manifest: Json) -> Json:
        """Create an object, or merge the manifest into it if it exists."""
        resource, metadata = _RESOURCES[manifest["kind"]], manifest["metadata"]
        try:
            return self.registry.create(resource, manifest)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        return self.registry.patch(resource, metadata.get("namespace", "default"), metadata["name"], manifest)

    def delete(self, kind: str, namespace: str, name: str, *, grace_s: int | None = None) -> None:
        """Delete an object; grace 0 removes a pod's object at once."""
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        self.registry.delete(_RESOURCES[kind], namespace, name, options)

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Return an object, or None."""
        try:
            return self.registry.get(_RESOURCES[kind], namespace, name)
        except ApiError as error:
            if error.reason != "NotFound":
                raise
            return None

    def pods(self, namespace: str = "", labels: str = "") -> list[Json]:
        """Return pods by namespace and label selector."""
        return self.registry.items("pods", namespace, ObjectSelector.parse(labels))

    def events(self, namespace: str, name: str) -> list[str]:
        """Return an object's events as `REASON: message`, the oldest first."""
        found = self.registry.items("events", namespace, ObjectSelector.parse(fields=f"involvedObject.name={name}"))
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [f"{event['reason']}: {event['message']}" for event in found]

    def exec(self, namespace: str, pod: str, *command: str, container: str = "") -> CompletedProcess[str]:
        """Run a command in the view of a pod's container, by default the first.

        Raises:
            SimError: the container does not run.
        """
        found = self.registry.get("pods", namespace, pod)
        name = container or found["spec"]["containers"][0]["name"]
        view = self.nodes[found["spec"]["nodeName"]].runtime.view(found["metadata"]["uid"], name)
        return view.run(command)

    def wait(self, look: Callable[[], _T], *, timeout_s: float = 10.0, what: str = "it") -> _T:
        """Call `look` at each change and at intervals until it returns a true value, and return that.

        Raises:
            TimeoutSimError: there was no true value in time.
        """
        ends = time.monotonic() + timeout_s
        while not (found := look()):
            if time.monotonic() > ends:
                error = TimeoutSimError(f"cannot wait longer than {timeout_s} s for {what}: last seen {found!r}")
                for node in self.nodes.values():
                    error.add_note(f"the plugin of {node.name} said last:\n{node.log_tail()}")
                raise error
            self.registry.store.wait(self.registry.store.version, _LOOK_S)
        return found

    def _extender(self) -> ExtenderSettings | None:
        settings = self._settings
        if not settings.with_extender:
            return None
        scheme = "http" if settings.client_tls is None else "https"
        url = f"{scheme}://127.0.0.1:{self.extender_port}"
        return ExtenderSettings(url=url, tls=settings.client_tls, **settings.extender)

    def _listen(self, port: int) -> Json:
        tls = self._settings.server_tls
        security = {"insecure": True} if tls is None else {"tls": dict(tls)}
        return {"listen": f"127.0.0.1:{port}", **security}
