"""A running extender over the small API server, and a caller that speaks to it as the scheduler does."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from integration.extender_world import Json
from integration.kube_stub import KubeStub

from edgegpu_base.kube import KubeClient
from edgegpu_plugin.config.schema import ExtenderSection, PluginConfig, Tls
from edgegpu_plugin.extender.bind import HoldBackTime
from edgegpu_plugin.extender.extender import Extender

DEADLINE_S = 60.0


class Clock:
    """The real one, and what a test adds to it."""

    def __init__(self) -> None:
        self.added = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.added


class Caller:
    """The scheduler's side of one kept connection."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._connection = (
            http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            if tls is None
            else http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=tls)
        )

    def call(self, path: str, body: bytes, method: str = "POST") -> tuple[int, bytes]:
        self._connection.request(method, path, body if method == "POST" else None)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def ask(self, path: str, value: Json) -> Any:  # noqa: ANN401  (whatever the path answers)
        status, text = self.call(path, json.dumps(value).encode())
        assert status == 200, text
        return json.loads(text)

    def filter(self, pod: Json, nodes: Sequence[str]) -> Json:
        found: Json = self.ask("/filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        return found

    def bind(self, pod: Json, node: str) -> str:
        metadata = pod["metadata"]
        value = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        return str(self.ask("/bind", value)["Error"])

    def close(self) -> None:
        self._connection.close()


class Running:
    """An extender that runs, with its API server."""

    def __init__(self, stub: KubeStub, extender: Extender) -> None:
        self.stub = stub
        self.extender = extender

    @contextmanager
    def caller(self, tls: ssl.SSLContext | None = None) -> Iterator[Caller]:
        made = Caller(self.extender.server.port, tls)
        try:
            yield made
        finally:
            made.close()

    def bind(self, pod: Json, node: str) -> str:
        with self.caller() as caller:
            return caller.bind(pod, node)

    def filter(self, pod: Json, nodes: Sequence[str]) -> Json:
        with self.caller() as caller:
            return caller.filter(pod, nodes)

    def add(self, *items: Json) -> None:
        """Put nodes and pods into the API server and wait until the extender knows them as they are."""
        for item in items:
            if "spec" in item:
                self.stub.add_pod(item)
            else:
                self.stub.add_node(item)
        self.wait_seen()

    def wait_seen(self) -> None:
        """Wait until the extender knows all GPU pods and nodes as the API server has them."""
        state, objects = self.extender.state, self.stub.store.objects

        def seen() -> bool:
            pods = {item["metadata"]["uid"]: item["spec"].get("nodeName", "") for item in objects["pods"].values()}
            nodes = {name: item["metadata"]["resourceVersion"] for name, item in objects["nodes"].items()}
            return {pod.uid: pod.node for pod in state.pods()} == pods and {n.name for n in state.nodes()} == set(nodes)

        assert state.wait_for(seen, DEADLINE_S)


def extender_config(tls: Tls | None = None) -> PluginConfig:
    """Return the configuration of an extender on any free port, with these TLS files or without TLS."""
    section = ExtenderSection(listen="127.0.0.1:0", insecure=tls is None, tls=tls or Tls())
    return PluginConfig(version=1, node_name="box", extender=section)


@contextmanager
def running(
    *,
    hold_back: HoldBackTime | None = None,
    tls: Tls | None = None,
    synced: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Running]:
    """Run an extender and its API server."""
    with KubeStub() as stub:
        client = KubeClient(stub.access, timeout_s=5)
        extender = Extender(extender_config(tls), client, hold_back=hold_back or HoldBackTime(), clock=clock)
        extender.start()
        try:
            if synced:
                assert extender.wait_synced(DEADLINE_S)
            yield Running(stub, extender)
        finally:
            extender.stop()
            client.close()
