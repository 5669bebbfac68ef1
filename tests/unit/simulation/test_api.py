"""The small API is as the real one where edgegpu leans on it."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from edgegpu_sim.api import ApiServer, ObjectSelector, Registry, Route, ServerSettings, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]
MEMORY = "baidu.com/vcuda-memory"


def a_pod(name: str, *, limits: Json | None = None, requests: Json | None = None, **spec: object) -> Json:
    resources = {"limits": limits or {}, **({"requests": requests} if requests else {})}
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": resources}], **spec}}


TOKEN = "sesame"  # noqa: S105


class Client:
    """A client in the standard library alone."""

    def __init__(self, server: ApiServer, token: str = TOKEN) -> None:
        self.server, self.token = server, token

    def open(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Any:  # noqa: ANN401
        request = urllib.request.Request(self.server.url + path, method=method)  # noqa: S310
        request.add_header("Authorization", f"Bearer {self.token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", kind)
        return urllib.request.urlopen(request, timeout=30)  # noqa: S310

    def call(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        try:
            with self.open(method, path, body, kind) as answer:
                found: Json = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                found = json.load(error)
        return found

    def merge(self, path: str, body: Json) -> Json:
        return self.call("PATCH", path, body, "application/merge-patch+json")

    def watch(self, query: str, count: int) -> list[Json]:
        """The first events of a watch."""
        with self.open("GET", f"/api/v1/pods?watch=true&{query}") as answer:
            return [json.loads(answer.readline()) for _ in range(count)]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    server = ApiServer(Registry(random_names=random.Random(1)), ServerSettings({TOKEN: "me"}, bookmark_s=0.1))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: ApiServer) -> Client:
    return Client(server)


PODS = "/api/v1/namespaces/a/pods"


def test_created_objects_get_what_the_server_gives(client: Client) -> None:
    made = client.call("POST", PODS, a_pod("one", limits={MEMORY: 4}))
    assert made["metadata"]["namespace"] == "a"
    assert {"uid", "resourceVersion", "creationTimestamp"} <= set(made["metadata"])
    assert made["spec"]["containers"][0]["resources"]["requests"] == {MEMORY: "4"}
    again = client.call("POST", PODS, a_pod("one"))
    assert (again["code"], again["reason"]) == (409, "AlreadyExists")
    assert client.call("GET", f"{PODS}/none")["code"] == 404
    named = client.call("POST", PODS, {**a_pod(""), "metadata": {"generateName": "web-"}})
    assert named["metadata"]["name"].startswith("web-")


@pytest.mark.parametrize(
    ("limits", "requests", "word"),
    [
        ({MEMORY: 4}, {MEMORY: 3}, "must be equal to"),
        ({}, {MEMORY: 3}, "Limit must be set"),
        ({MEMORY: "1.5"}, None, "must be an integer"),
    ],
)
def test_extended_resources_must_be_whole_and_equal(client: Client, limits: Json, requests: Json, word: str) -> None:
    refused = client.call("POST", PODS, a_pod("one", limits=limits, requests=requests))
    assert refused["code"] == 422
    assert word in refused["message"]


def test_lists_are_selected_and_paged(client: Client) -> None:
    for name in ("one", "two", "three"):
        client.call("POST", PODS, a_pod(name))
    client.merge(f"{PODS}/two", {"metadata": {"labels": {"app": "x"}}})
    found = client.call("GET", "/api/v1/pods?labelSelector=app%3Dx")
    assert [item["metadata"]["name"] for item in found["items"]] == ["two"]
    found = client.call("GET", f"{PODS}?fieldSelector=metadata.name!%3Dtwo,spec.nodeName%3D")
    assert [item["metadata"]["name"] for item in found["items"]] == ["one", "three"]
    first = client.call("GET", "/api/v1/pods?limit=2")
    client.call("DELETE", f"{PODS}/two")
    rest = client.call("GET", f"/api/v1/pods?limit=2&continue={first['metadata']['continue']}")
    assert len(first["items"]) == 2
    assert [item["metadata"]["name"] for item in rest["items"]] == ["two"]  # the list is of one moment
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.parametrize("text", ["a b", "(", "=x"])
def test_selectors_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot read the selector"):
        ObjectSelector.parse(text)


@pytest.mark.parametrize(
    ("text", "met"),
    [("a=1", True), ("a!=1", False), ("b!=1", True), ("a", True), ("!a", False), ("a in (1, 2)", True),
     ("a notin (1,2),b!=2", False), ("", True)],
)  # fmt: skip
def test_label_selectors(text: str, met: bool) -> None:  # noqa: FBT001
    assert ObjectSelector.parse(text).matches({"metadata": {"labels": {"a": "1"}}}) is met


def test_watches_begin_where_they_are_told(client: Client) -> None:
    version = client.call("POST", PODS, a_pod("one"))["metadata"]["resourceVersion"]
    client.merge(f"{PODS}/one", {"metadata": {"annotations": {"x": "y"}}})
    client.call("DELETE", f"{PODS}/one")
    events = client.watch(f"resourceVersion={version}", 2)
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
    client.call("POST", PODS, a_pod("two"))
    assert [event["type"] for event in client.watch("allowWatchBookmarks=true", 2)] == ["ADDED", "BOOKMARK"]


def test_an_object_that_comes_into_a_selector_is_added_and_one_that_leaves_is_deleted(client: Client) -> None:
    version = client.call("POST", PODS, a_pod("one"))["metadata"]["resourceVersion"]
    client.merge(f"{PODS}/one", {"metadata": {"labels": {"app": "x"}}})
    client.merge(f"{PODS}/one", {"metadata": {"labels": {"app": None}}})
    events = client.watch(f"resourceVersion={version}&labelSelector=app%3Dx", 2)
    assert [event["type"] for event in events] == ["ADDED", "DELETED"]


def test_a_watch_from_before_the_compaction_is_told_so(client: Client) -> None:
    client.call("POST", PODS, a_pod("one"))
    client.server.registry.store.forget()
    (event,) = client.watch("resourceVersion=1", 1)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_late_watch_is_late(client: Client) -> None:
    client.server.settings.watch_delay_s["pods"] = 0.2
    version = client.call("POST", PODS, a_pod("one"))["metadata"]["resourceVersion"]
    client.call("DELETE", f"{PODS}/one")
    began = time.monotonic()
    client.watch(f"resourceVersion={version}", 1)
    assert time.monotonic() - began > 0.1


def test_the_binding_writes_node_and_annotations_at_once_and_only_for_the_pod_that_was_meant(client: Client) -> None:
    pod = client.call("POST", PODS, a_pod("one"))
    target = {"target": {"kind": "Node", "name": "box"}}
    other = client.call("POST", f"{PODS}/one/binding", {"metadata": {"uid": "another"}, **target})
    assert (other["code"], "UID in precondition" in other["message"]) == (409, True)
    wanted = {"uid": pod["metadata"]["uid"], "annotations": {"edgegpu.io/cards": "…"}}
    assert client.call("POST", f"{PODS}/one/binding", {"metadata": wanted, **target})["status"] == "Success"
    bound = client.call("GET", f"{PODS}/one")
    assert bound["spec"]["nodeName"] == "box"
    assert bound["metadata"]["annotations"] == {"edgegpu.io/cards": "…"}
    assert int(bound["metadata"]["resourceVersion"]) == int(pod["metadata"]["resourceVersion"]) + 1
    again = client.call("POST", f"{PODS}/one/binding", target)
    assert "already assigned to node" in again["message"]


def test_a_pod_on_a_node_stays_until_its_kubelet_or_force_removes_it(client: Client) -> None:
    client.call("POST", PODS, a_pod("one", nodeName="box"))
    assert client.call("POST", f"{PODS}/one/eviction", {"metadata": {"name": "one"}})["status"] == "Success"
    assert client.call("GET", f"{PODS}/one")["metadata"]["deletionGracePeriodSeconds"] == 30
    wrong = client.call("DELETE", f"{PODS}/one", {"preconditions": {"uid": "another"}, "gracePeriodSeconds": 0})
    assert wrong["code"] == 409
    client.call("DELETE", f"{PODS}/one?gracePeriodSeconds=0")
    assert client.call("GET", f"{PODS}/one")["code"] == 404


def test_status_and_spec_are_written_apart(client: Client) -> None:
    client.call("POST", PODS, a_pod("one"))
    done = client.merge(f"{PODS}/one/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}})
    assert (done["status"]["phase"], "nodeName" in done["spec"]) == ("Running", False)
    same = client.merge(f"{PODS}/one", {"status": {"phase": "Failed"}})
    assert same["metadata"]["resourceVersion"] == done["metadata"]["resourceVersion"]
    assert client.merge(f"{PODS}/one", {"spec": {"nodeName": "x"}})["code"] == 422
    other = client.merge(f"{PODS}/one", {"metadata": {"uid": "another"}})
    assert (other["code"], "metadata.uid" in other["message"]) == (422, True)


def test_a_server_that_stops_drops_its_watches_and_comes_back_on_its_port(client: Client, server: ApiServer) -> None:
    url = server.url
    client.call("POST", PODS, a_pod("one"))
    began, ended = threading.Event(), threading.Event()

    def watch() -> None:
        with client.open("GET", "/api/v1/pods?watch=true") as answer:
            answer.readline()
            began.set()
            with contextlib.suppress(http.client.HTTPException, OSError):  # it may break off in the middle
                answer.read()
        ended.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert began.wait(30)
    server.stop()
    assert ended.wait(30)
    watcher.join()
    with pytest.raises(urllib.error.URLError):
        client.call("GET", PODS)
    server.start()
    assert server.url == url
    assert len(client.call("GET", PODS)["items"]) == 1


def test_who_asks_for_what_is_logged_and_can_be_forbidden(server: ApiServer, tmp_path: Path) -> None:
    client = Client(server)
    client.call("POST", PODS, a_pod("one"))
    client.merge(f"{PODS}/one/status", {"status": {"phase": "Running"}})
    seen = [(call.verb, call.resource, call.sub) for call in server.calls if call.user == "me"]
    assert seen == [("create", "pods", ""), ("patch", "pods", "status")]

    def allow(_: str, route: Route) -> bool:
        return route.verb != "delete"

    server.settings.allow = allow
    assert client.call("DELETE", f"{PODS}/one")["code"] == 403
    assert Client(server, "wrong").call("GET", PODS)["code"] == 401
    write_kubeconfig(tmp_path / "kubeconfig", url=server.url, token=TOKEN, user="me")
    assert (tmp_path / "kubeconfig").stat().st_mode & 0o077 == 0
