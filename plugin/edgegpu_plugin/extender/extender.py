"""The extender and its parts: two watches, the state of the cluster, the verbs and the server."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from edgegpu_base.kube import Handlers, KubeClient, KubeObjects, Reflector
from edgegpu_base.kube.objects import NODES, PODS
from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import PodView, pod_view
from edgegpu_core.preemption import read_budget
from edgegpu_plugin.config.schema import PluginConfig
from edgegpu_plugin.extender.bind import Binder, HoldBackTime
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.freshness import Freshness
from edgegpu_plugin.extender.messages import BindingArgs, ExtenderArgs, HostPriority, PreemptionArgs
from edgegpu_plugin.extender.node_capacity import KnownNode, known_node
from edgegpu_plugin.extender.pending import nodes_part, pending_part
from edgegpu_plugin.extender.preempt import Preemption
from edgegpu_plugin.extender.server import BadRequest, ExtenderError, ExtenderServer
from edgegpu_plugin.extender.verbs import ExtenderVerbs

_log = logging.getLogger(__name__)

_LOOK_S = 5.0
_QUIET_S = 300.0
"""The API server sends something about each minute; the watch is opened anew after two."""

T = TypeVar("T", bound=BaseModel)
_SCORES = TypeAdapter(list[HostPriority])


class Extender:
    """The extender, which runs between `start` and `stop`; `server` alone can be closed and started again."""

    def __init__(
        self,
        config: PluginConfig,
        client: KubeClient,
        *,
        hold_back: HoldBackTime = HoldBackTime(),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build the extender without starting it.

        Raises:
            ExtenderError: the listen address is invalid.
        """
        self._insecure, model = config.extender.insecure, config.model()
        self._model = model
        self._stopping = threading.Event()
        self._started = False
        self.state = ClusterState(model, clock=clock)
        self._nodes, self._pods = _reflectors(self.state, client, model)
        objects = KubeObjects(client)
        binder = Binder(
            objects=objects,
            state=self.state,
            freshness=Freshness(objects=objects, state=self.state, pods=self._pods, clock=clock),
            model=model,
            hold_back=hold_back,
            clock=clock,
        )
        self._service = ExtenderVerbs(
            state=self.state,
            binder=binder,
            preemption=Preemption(
                state=self.state,
                model=model,
                budgets=lambda: [read_budget(item) for item in objects.list_budgets()],
            ),
            model=model,
            policy=config.policy,
            synced=self.synced,
        )
        tls = None if self._insecure else config.extender.tls
        self.server = ExtenderServer(config.extender.listen, routes=self, tls=tls)
        self.posts: Mapping[str, Callable[[bytes], bytes]] = {
            "/filter": lambda body: _json(self._service.filter(_read(ExtenderArgs, body))),
            "/prioritize": lambda body: _SCORES.dump_json(
                self._service.prioritize(_read(ExtenderArgs, body)), by_alias=True
            ),
            "/preempt": lambda body: _json(self._service.preempt(_read(PreemptionArgs, body))),
            "/bind": lambda body: _json(self._service.bind(_read(BindingArgs, body))),
        }

    def run(self) -> None:
        """Start the extender unless it runs, and return after `stop`.

        Raises:
            ExtenderError: the server cannot listen, or one of its threads has ended.
        """
        if not self._started:
            self.start()
        while not self._stopping.wait(_LOOK_S):
            if self.server.failed() or not (self._nodes.alive() and self._pods.alive()):
                raise ExtenderError(f"the extender cannot go on: {'; '.join(self.problems())}: it must be started anew")

    def start(self) -> None:
        """Listen, then begin to read the cluster; until it is read, every verb answers that.

        Raises:
            ExtenderError: the server cannot listen.
        """
        if self._insecure:
            _log.warning("extender: no TLS (extender.insecure): every process of this machine can bind pods")
        self.server.start()
        self._started = True
        self._nodes.start()
        self._pods.start()

    def stop(self, *, watches_s: float = 5.0) -> None:
        """End the extender: calls that wait are answered with an error, which makes the scheduler try again.

        `watches_s` is how long to wait for the end of each watch, which a silent API server may delay.
        """
        self._stopping.set()
        self.state.close()
        self.server.close()
        self._nodes.stop(watches_s)
        self._pods.stop(watches_s)

    def synced(self) -> bool:
        """Return whether nodes and pods have been read."""
        return self._nodes.synced.is_set() and self._pods.synced.is_set()

    def wait_synced(self, timeout_s: float) -> bool:
        """Wait until nodes and pods have been read; return False after the timeout."""
        ends = time.monotonic() + timeout_s
        return self._nodes.synced.wait(timeout_s) and self._pods.synced.wait(max(0.0, ends - time.monotonic()))

    def healthy(self) -> bool:
        """Return whether all of the extender's threads run, even if the cluster cannot be read at present."""
        return self.server.alive() and self._nodes.alive() and self._pods.alive()

    def problems(self) -> tuple[str, ...]:
        """Return the present problems as texts; empty when there are none."""
        found = [] if self.server.alive() else ["the extender does not listen"]
        for name, reflector in (("nodes", self._nodes), ("pods", self._pods)):
            quiet_s = None if reflector.last_contact is None else time.monotonic() - reflector.last_contact
            if not reflector.alive():
                found.append(f"the watch of {name} has ended")
            elif not reflector.synced.is_set():
                found.append(f"the {name} are not read yet")
            elif quiet_s is not None and quiet_s > _QUIET_S:
                found.append(f"no word of {name} from the API server for {quiet_s:.0f} s")
        return tuple(found)

    def document(self) -> dict[str, Any]:
        """Return this part's entries of the status document: pods that wait for a node, and the nodes if several.

        `pending_silent` says why both may be old, and since when; None while the watches keep them current.
        """
        silent = {"pending_silent": self._pods.silence or self._nodes.silence}
        if not self.synced():
            return silent
        nodes = nodes_part(self.state)
        return {**silent, **pending_part(self.state, self._model), **({"nodes": nodes} if nodes else {})}

    @property
    def api_problem(self) -> str:
        """Why the cluster cannot be read at present; empty when it can."""
        return self._nodes.problem or self._pods.problem

    def health(self) -> tuple[bool, str]:
        """Return the answer to /healthz."""
        problems = self.problems()
        return not problems, "; ".join(problems) or "ok"


def _reflectors(
    state: ClusterState, client: KubeClient, model: ResourceModel
) -> tuple[Reflector[KnownNode], Reflector[PodView]]:
    nodes = Reflector(
        client,
        NODES,
        convert=lambda item: known_node(item, model),
        handlers=Handlers(state.replace_nodes, state.change_node, state.delete_node),
    )
    pods = Reflector(
        client,
        PODS,
        convert=lambda item: pod_view(item, model),
        handlers=Handlers(state.replace_pods, state.change_pod, state.delete_pod),
    )
    return nodes, pods


def _read(kind: type[T], body: bytes) -> T:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise BadRequest(f"cannot read {kind.__name__}: {where}: {first['msg']}") from error


def _json(value: BaseModel) -> bytes:
    return value.model_dump_json(by_alias=True).encode()
