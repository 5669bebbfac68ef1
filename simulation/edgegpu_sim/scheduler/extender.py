"""Client of a scheduler extender, as in kube-scheduler (k8s.io/kube-scheduler/extender/v1), by HTTP or mutual TLS."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError, NewConnectionError

from edgegpu_base.tls import client_context
from edgegpu_sim.api.objects import Json
from edgegpu_sim.errors import SimError
from edgegpu_sim.kubelet.admission import request_of
from edgegpu_sim.scheduler.fit import NodeRefusal

_OK = 200


class ExtenderCallError(SimError):
    """The extender gave no valid answer; the text is kube-scheduler's."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The files of kube-scheduler's `tlsConfig`."""

    ca: Path
    cert: Path
    key: Path
    server_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderSettings:
    """One entry of `extenders` in the scheduler's configuration."""

    url: str
    managed_resources: tuple[str, ...] = ("baidu.com/vcuda-memory", "baidu.com/vcuda-core")
    filter_verb: str = "filter"
    prioritize_verb: str = "prioritize"
    bind_verb: str = "bind"
    weight: int = 1
    ignorable: bool = False
    timeout_s: float = 5.0
    tls: ClientTls | None = None


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """The extender's answer to filter."""

    nodes: tuple[str, ...]
    refusals: dict[str, NodeRefusal] = field(default_factory=dict)


class ExtenderClient:
    """The client of one extender; thread-safe."""

    def __init__(self, settings: ExtenderSettings) -> None:
        self.settings = settings
        self._pool = _pool(settings)

    def interested(self, pod: Json) -> bool:
        """Return whether a pod asks for a resource that the extender manages."""
        return any(name in self.settings.managed_resources for name in request_of(pod["spec"]))

    def filter(self, pod: Json, nodes: Sequence[str]) -> FilterAnswer:
        """Ask which of the nodes have room. Raises ExtenderCallError."""
        answer = self._post(self.settings.filter_verb, {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        if answer.get("Error"):
            raise ExtenderCallError(answer["Error"])
        names = tuple(answer.get("NodeNames") or ())
        for name in names:
            if name not in nodes:
                claim = f'claims a filtered node "{name}" which is not found in the input node list'
                raise ExtenderCallError(f'extender "{self.settings.url}" {claim}')
        failed = {name: NodeRefusal((why,)) for name, why in (answer.get("FailedNodes") or {}).items()}
        hopeless = (answer.get("FailedAndUnresolvableNodes") or {}).items()
        return FilterAnswer(
            names, {**failed, **{name: NodeRefusal((why,), unresolvable=True) for name, why in hopeless}}
        )

    def scores(self, pod: Json, nodes: Sequence[str]) -> dict[str, int]:
        """Return the nodes' weighted scores; after an error there are none, as in kube-scheduler."""
        try:
            answer = self._post(self.settings.prioritize_verb, {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        except ExtenderCallError:
            return {}
        return {one["Host"]: int(one["Score"]) * self.settings.weight for one in answer}

    def bind(self, pod: Json, node: str) -> None:
        """Ask the extender to bind a pod. Raises ExtenderCallError."""
        metadata = pod["metadata"]
        named = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        answer = self._post(self.settings.bind_verb, {**named, "Node": node})
        if answer.get("Error"):
            raise ExtenderCallError(answer["Error"])

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _post(self, verb: str, body: Json) -> Any:  # noqa: ANN401  (an object, or a list for prioritize)
        url = f"{self.settings.url}/{verb}"
        try:
            answer = self._pool.request(
                "POST",
                f"{urlsplit(self.settings.url).path}/{verb}",
                body=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
                timeout=self.settings.timeout_s,
                retries=False,
            )
        except NewConnectionError as error:
            host = urlsplit(url).netloc
            raise ExtenderCallError(f'Post "{url}": dial tcp {host}: connect: connection refused') from error
        except HTTPError as error:
            raise ExtenderCallError(f'Post "{url}": {error}') from error
        if answer.status != _OK:
            raise ExtenderCallError(f"failed {verb} with extender at URL {self.settings.url}, code {answer.status}")
        try:
            return json.loads(answer.data)
        except ValueError as error:
            raise ExtenderCallError(f"cannot read the extender's answer: {error}") from error


def _pool(settings: ExtenderSettings) -> urllib3.HTTPConnectionPool:
    url = urlsplit(settings.url)
    host = url.hostname or ""
    if settings.tls is None:
        return urllib3.HTTPConnectionPool(host, url.port, maxsize=8)
    tls = settings.tls
    name = tls.server_name
    context = client_context(ca_pem=tls.ca.read_text(), cert_pem=tls.cert.read_text(), key_pem=tls.key.read_text())
    return urllib3.HTTPSConnectionPool(
        host, url.port, maxsize=8, ssl_context=context, server_hostname=name, assert_hostname=name
    )
