"""The extender put together: two watches, the picture of the cluster, the verbs and the server."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from edgegpu_core.model import ResourceModel
from edgegpu_core.podview import PodView, pod_view
from edgegpu_core.policy import Policy
from edgegpu_plugin.extender.binding import Binder, HoldBack
from edgegpu_plugin.extender.cluster import ASSUMED_S, ClusterState
from edgegpu_plugin.extender.handler import BadRequest
from edgegpu_plugin.extender.messages import BindingArgs, ExtenderArgs, HostPriority
from edgegpu_plugin.extender.room import NodeView, node_view
from edgegpu_plugin.extender.server import ExtenderServer, TlsFiles
from edgegpu_plugin.extender.service import Service
from edgegpu_plugin.kube import Handlers, KubeClient, KubeObjects, Reflector
from edgegpu_plugin.kube.objects import NODES, PODS

_QUIET_S = 300.0
"""The API server says something about each minute; the watch is opened anew after two."""

T = TypeVar("T", bound=BaseModel)
_SCORES = TypeAdapter(list[HostPriority])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """What the extender needs of the configuration; `tls` None = plain HTTP on loopback (`extender.insecure`)."""

    listen: str
    tls: TlsFiles | None
    model: ResourceModel
    policy: Policy = Policy.FIRST_FIT
    """How nodes are ranked for pods that name no policy; on a node its own policy counts."""
    hold_back: HoldBack = field(default_factory=HoldBack)
    assumed_s: float = ASSUMED_S


class Extender:
    """Runs between `start` and `stop`; `server` alone can be closed and started, `state` can be looked at."""

    def __init__(
        self,
        config: ExtenderConfig,
        client: KubeClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        """Put it together; nothing runs yet.

        Raises:
            ExtenderError: the listen address cannot be.
        """
        model = config.model
        self._clock = clock
        self.state = ClusterState(model, assumed_s=config.assumed_s, clock=clock)
        self._nodes, self._pods = _reflectors(self.state, client, model, rng)
        binder = Binder(
            objects=KubeObjects(client),
            state=self.state,
            model=model,
            hold_back=config.hold_back,
            clock=clock,
        )
        self._service = Service(
            state=self.state,
            binder=binder,
            model=model,
            policy=config.policy,
            synced=self.synced,
        )
        self.server = ExtenderServer(config.listen, routes=self, tls=config.tls)
        self.posts: Mapping[str, Callable[[bytes], bytes]] = {
            "/filter": lambda body: _json(self._service.filter(_read(ExtenderArgs, body))),
            "/prioritize": lambda body: _SCORES.dump_json(
                self._service.prioritize(_read(ExtenderArgs, body)), by_alias=True
            ),
            "/bind": lambda body: _json(self._service.bind(_read(BindingArgs, body))),
        }

    def start(self) -> None:
        """Listen, then begin to read the cluster; until it is read every verb says so.

        Raises:
            ExtenderError: it cannot listen.
        """
        self.state.close(yes=False)
        self.server.start()
        self._nodes.start()
        self._pods.start()

    def stop(self) -> None:
        """End for good: calls that wait are answered with an error, which makes the scheduler try again."""
        self.state.close(yes=True)
        self.server.close()
        self._nodes.stop()
        self._pods.stop()

    def synced(self) -> bool:
        """Say whether nodes and pods have been read."""
        return self._nodes.synced.is_set() and self._pods.synced.is_set()

    def healthy(self) -> bool:
        """Say whether all of its threads run; a cluster that cannot be read at present is no fault of ours."""
        return self.server.alive() and self._nodes.alive() and self._pods.alive()

    def problems(self) -> tuple[str, ...]:
        """Return what is not as it should be, in words; empty when all is well."""
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

    def health(self) -> tuple[bool, str]:
        """Answer /healthz."""
        problems = self.problems()
        return not problems, "; ".join(problems) or "ok"


def _reflectors(
    state: ClusterState, client: KubeClient, model: ResourceModel, rng: random.Random | None
) -> tuple[Reflector[NodeView], Reflector[PodView]]:
    nodes = Reflector(
        client,
        NODES,
        convert=lambda item: node_view(item, model),
        handlers=Handlers(state.replace_nodes, state.change_node, state.delete_node),
        rng=rng,
    )
    pods = Reflector(
        client,
        PODS,
        convert=lambda item: pod_view(item, model),
        handlers=Handlers(state.replace_pods, state.change_pod, state.delete_pod),
        rng=rng,
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
