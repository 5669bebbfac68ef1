"""The small scheduler asks, refuses and retries as kube-scheduler does."""

from __future__ import annotations

import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from edgegpu_sim.api import ObjectSelector, Registry
from edgegpu_sim.scheduler.extender import ExtenderSettings
from edgegpu_sim.scheduler.scheduler import SchedulerSettings, SimScheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
MEMORY = "baidu.com/vcuda-memory"


class ToyExtender:
    """An extender that answers what it was given to answer, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Json]] = []
        self.refusals: dict[str, str] = {}
        self.scores: dict[str, int] = {}
        self.bind: Callable[[Json], str] = lambda _: ""
        self.code = 200
        toy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(toy.answer(self.path.strip("/"), body)).encode()
                self.send_response(toy.code)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, verb: str, body: Json) -> object:
        self.asked.append((verb, body))
        if verb == "bind":
            return {"Error": self.bind(body)}
        if verb == "prioritize":
            return [{"Host": name, "Score": self.scores.get(name, 0)} for name in body["NodeNames"]]
        kept = [name for name in body["NodeNames"] if name not in self.refusals]
        return {"NodeNames": kept, "FailedNodes": self.refusals, "FailedAndUnresolvableNodes": {}, "Error": ""}

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.asked]

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Desk:
    """A registry with a scheduler and nothing else."""

    def __init__(self, extender: ToyExtender | None) -> None:
        self.registry = Registry(random_names=random.Random(1))
        settings = None if extender is None else ExtenderSettings(url=extender.url)
        self.scheduler = SimScheduler(
            SchedulerSettings(extender=settings), registry=self.registry, order=random.Random(2)
        )

    def node(self, name: str, units: int) -> None:
        status = {"allocatable": {"pods": "110", MEMORY: str(units)}}
        self.registry.create("nodes", {"metadata": {"name": name, "labels": {"host": name}}, "spec": {}})
        self.registry.patch("nodes", "", name, {"status": status}, sub="status")

    def pod(self, name: str, units: int = 0, **spec: object) -> None:
        limits = {MEMORY: units} if units else {}
        containers = [{"name": "c", "resources": {"limits": limits}}]
        self.registry.create("pods", {"metadata": {"name": name}, "spec": {"containers": containers, **spec}})

    def node_of(self, name: str) -> str:
        return str(self.registry.get("pods", "default", name)["spec"].get("nodeName", ""))

    def events(self, name: str) -> list[str]:
        found = self.registry.items("events", "", ObjectSelector.parse(fields=f"involvedObject.name={name}"))
        return [f"{event['reason']}: {event['message']}" for event in found]

    def until(self, look: Callable[[], object]) -> None:
        ends = time.monotonic() + 5
        while not look():
            assert time.monotonic() < ends
            self.registry.store.wait(self.registry.store.version, 0.02)

    def told(self, name: str, text: str) -> None:
        self.until(lambda: any(text in line for line in self.events(name)))


@pytest.fixture
def extender() -> Iterator[ToyExtender]:
    toy = ToyExtender()
    yield toy
    toy.stop()


@pytest.fixture
def desk(extender: ToyExtender) -> Iterator[Desk]:
    desk = Desk(extender)
    desk.scheduler.start()
    yield desk
    desk.scheduler.stop()


@pytest.fixture
def plain() -> Iterator[Desk]:
    desk = Desk(None)
    desk.scheduler.start()
    yield desk
    desk.scheduler.stop()


def binds(desk: Desk) -> Callable[[Json], str]:
    def bind(body: Json) -> str:
        named = {"name": body["PodName"], "uid": body["PodUID"]}
        desk.registry.bind(body["PodNamespace"], body["PodName"], {"metadata": named, "target": {"name": body["Node"]}})
        return ""

    return bind


def test_nodes_are_filled_by_their_numbers_and_the_rest_waits_in_the_real_words(plain: Desk) -> None:
    plain.node("box", 10)
    plain.pod("first", 6)
    plain.until(lambda: plain.node_of("first") == "box")
    plain.pod("second", 6)
    why = f"0/1 nodes are available: 1 Insufficient {MEMORY}."
    tail = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    plain.told("second", f"FailedScheduling: {why} {tail}")
    condition = plain.registry.get("pods", "default", "second")["status"]["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("Unschedulable", f"{why} {tail}")
    plain.registry.delete("pods", "default", "first", {"gracePeriodSeconds": 0})
    plain.until(lambda: plain.node_of("second") == "box")
    assert any("Successfully assigned default/second to box" in line for line in plain.events("second"))


def test_labels_choose_nodes_and_unknown_resources_fit_nowhere(plain: Desk) -> None:
    plain.node("one", 10)
    plain.node("two", 10)
    plain.pod("chosen", nodeSelector={"host": "two"})
    plain.until(lambda: plain.node_of("chosen") == "two")
    plain.pod("nowhere", nodeSelector={"host": "three"})
    plain.told("nowhere", "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.")
    plain.told("nowhere", "2 Preemption is not helpful for scheduling.")


def test_the_extender_chooses_and_binds(desk: Desk, extender: ToyExtender) -> None:
    extender.bind = binds(desk)
    extender.scores = {"two": 7}
    desk.node("one", 10)
    desk.node("two", 10)
    desk.pod("p", 4)
    desk.until(lambda: desk.node_of("p"))
    assert desk.node_of("p") == "two"
    assert extender.verbs() == ["filter", "prioritize", "bind"]
    filtered = extender.asked[0][1]
    assert (filtered["NodeNames"], filtered["Nodes"]) == (["one", "two"], None)
    assert filtered["Pod"]["metadata"]["name"] == "p"


def test_one_node_that_is_left_is_not_ranked_and_other_pods_are_none_of_its_business(
    desk: Desk, extender: ToyExtender
) -> None:
    extender.bind = binds(desk)
    desk.node("one", 10)
    desk.node("two", 2)
    desk.pod("plain")
    desk.until(lambda: desk.node_of("plain"))
    assert extender.asked == []
    desk.pod("p", 4)
    desk.until(lambda: desk.node_of("p"))
    assert extender.verbs() == ["filter", "bind"]
    assert extender.asked[0][1]["NodeNames"] == ["one"]


def test_the_extenders_reasons_are_counted_and_a_node_annotation_brings_the_pod_back(
    desk: Desk, extender: ToyExtender
) -> None:
    extender.bind = binds(desk)
    extender.refusals = {"one": "card 0 has 3 free", "two": "card 0 has 1 free"}
    desk.node("one", 10)
    desk.node("two", 10)
    desk.pod("p", 4)
    desk.told("p", "0/2 nodes are available: 1 card 0 has 1 free, 1 card 0 has 3 free.")
    extender.refusals = {}
    asked = len(extender.asked)
    desk.registry.patch("nodes", "", "two", {"metadata": {"annotations": {"x": "y"}}})
    desk.until(lambda: desk.node_of("p"))
    assert len(extender.asked) > asked


def test_a_heartbeat_brings_nobody_back(desk: Desk, extender: ToyExtender) -> None:
    extender.refusals = {"one": "no"}
    desk.node("one", 10)
    beat = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}]}
    desk.registry.patch("nodes", "", "one", {"status": beat}, sub="status")
    desk.pod("p", 4)
    desk.told("p", "1 no.")
    desk.until(lambda: desk.scheduler.parked() == 1)
    asked = len(extender.asked)
    later = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2"}]}
    desk.registry.patch("nodes", "", "one", {"status": later}, sub="status")
    desk.pod("other", 4)
    desk.told("other", "1 no.")
    assert [body["Pod"]["metadata"]["name"] for _, body in extender.asked[asked:]] == ["other"]


def test_an_extender_that_errs_or_is_gone_is_asked_again(desk: Desk, extender: ToyExtender) -> None:
    extender.bind = binds(desk)
    extender.code = 500
    desk.node("one", 10)
    desk.pod("p", 4)
    desk.told("p", f"failed filter with extender at URL {extender.url}, code 500")
    extender.code = 200
    desk.until(lambda: desk.node_of("p"))


def test_a_binding_that_is_refused_says_so_and_is_tried_again(desk: Desk, extender: ToyExtender) -> None:
    extender.bind = lambda _: "the card was taken meanwhile"
    desk.node("one", 10)
    desk.pod("p", 4)
    desk.told("p", "FailedScheduling: binding rejected: the card was taken meanwhile")
    extender.bind = binds(desk)
    desk.until(lambda: desk.node_of("p"))


def test_nobody_listens(desk: Desk, extender: ToyExtender) -> None:
    extender.stop()
    desk.node("one", 10)
    desk.pod("p", 4)
    host = extender.url.removeprefix("http://")
    desk.told("p", f'Post "{extender.url}/filter": dial tcp {host}: connect: connection refused')
    assert not desk.node_of("p")
