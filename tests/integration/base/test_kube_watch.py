import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from integration.kube_stub import Fault, Json, KubeStub

from edgegpu_base.kube import (
    ApiAccess,
    Conflict,
    Forbidden,
    Handlers,
    KubeClient,
    KubeObjects,
    NotFound,
    Pace,
    Reflector,
    Unavailable,
)

DEADLINE_S = 60.0


def pod(name: str, *, node: str = "", kind: str = "gpu") -> Json:
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", "labels": {"kind": kind}, "annotations": {}}
    return {"metadata": metadata, "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Pending"}}


@dataclass
class Listener:
    """Keeps what a reflector tells, as a queue that a test waits on."""

    told: "queue.Queue[tuple[str, object]]" = field(default_factory=queue.Queue)

    def handlers(self) -> Handlers[str]:
        return Handlers(
            on_replace=lambda found: self.told.put(("replace", found)),
            on_change=lambda uid, value: self.told.put(("change", (uid, value))),
            on_delete=lambda uid: self.told.put(("delete", uid)),
        )

    def next(self) -> tuple[str, object]:
        return self.told.get(timeout=DEADLINE_S)


def name_of(item: Json) -> str | None:
    metadata = item["metadata"]
    return None if metadata["labels"]["kind"] == "plain" else metadata["name"]


@pytest.fixture
def stub() -> Iterator[KubeStub]:
    with KubeStub() as running:
        yield running


@pytest.fixture
def client(stub: KubeStub) -> Iterator[KubeClient]:
    made = KubeClient(stub.access, timeout_s=5)
    yield made
    made.close()


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def reflector(client: KubeClient, listener: Listener) -> Iterator[Reflector[str]]:
    made = Reflector(client, "/api/v1/pods", convert=name_of, handlers=listener.handlers(), page=2)
    yield made
    made.stop()
    assert not made.alive()


def test_it_lists_in_pages_then_tells_each_change(
    stub: KubeStub, reflector: Reflector[str], listener: Listener
) -> None:
    for index in range(5):
        stub.add_pod(pod(f"p{index}"))
    stub.add_pod(pod("boring", kind="plain"))
    reflector.start()
    assert listener.next() == ("replace", {f"uid-p{i}": f"p{i}" for i in range(5)})
    assert reflector.synced.is_set()
    assert stub.count("GET /api/v1/pods.*continue") == 2
    stub.add_pod(pod("new"))
    assert listener.next() == ("change", ("uid-new", "new"))
    stub.add_pod(pod("new", kind="plain"))
    assert listener.next() == ("delete", "uid-new")
    stub.store.remove("pods", "default/p0")
    assert listener.next() == ("delete", "uid-p0")
    assert reflector.last_contact is not None


def test_a_version_that_is_gone_makes_it_list_again(
    stub: KubeStub, reflector: Reflector[str], listener: Listener
) -> None:
    reflector.start()
    assert listener.next() == ("replace", {})
    stub.forget_history()
    stub.add_pod(pod("late"))
    assert listener.next() == ("replace", {"uid-late": "late"})


def test_a_cut_watch_goes_on_where_it_was(stub: KubeStub, reflector: Reflector[str], listener: Listener) -> None:
    reflector.start()
    assert listener.next() == ("replace", {})
    stub.add_pod(pod("one"))
    assert listener.next() == ("change", ("uid-one", "one"))
    stub.cut_watches()
    stub.add_pod(pod("two"))
    assert listener.next() == ("change", ("uid-two", "two"))
    assert stub.count(r"GET /api/v1/pods\?limit") == 1


def test_a_watch_that_is_opened_anew_long_after_the_list_begins_with_a_list(
    stub: KubeStub, client: KubeClient, listener: Listener
) -> None:
    made = Reflector(client, "/api/v1/pods", convert=name_of, handlers=listener.handlers(), pace=Pace(relist_s=0))
    made.start()
    assert listener.next() == ("replace", {})
    stub.add_pod(pod("one"))
    assert listener.next() == ("change", ("uid-one", "one"))
    stub.cut_watches()
    assert listener.next() == ("replace", {"uid-one": "one"})
    made.stop()


def test_bookmarks_move_the_version_on(stub: KubeStub, reflector: Reflector[str], listener: Listener) -> None:
    reflector.start()
    listener.next()
    stub.store.bookmark("pods")
    stub.add_pod(pod("after"))
    assert listener.next() == ("change", ("uid-after", "after"))


def test_a_failing_server_is_tried_again(stub: KubeStub, reflector: Reflector[str], listener: Listener) -> None:
    stub.faults += [Fault("GET /api/v1/pods", 503), Fault("GET /api/v1/pods", drop=True)]
    reflector.start()
    assert listener.next() == ("replace", {})


def test_a_list_that_is_asked_for_is_told_though_it_fails_at_first(
    stub: KubeStub, reflector: Reflector[str], listener: Listener
) -> None:
    reflector.start()
    assert listener.next() == ("replace", {})
    stub.stall_watches()
    stub.add_pod(pod("unseen"))
    assert not reflector.wait_version(stub.pod("unseen")["metadata"]["resourceVersion"], 0)
    stub.faults.append(Fault(r"GET /api/v1/pods\?limit", 503))
    assert reflector.list_again(DEADLINE_S)
    assert listener.next() == ("replace", {"uid-unseen": "unseen"})
    assert reflector.wait_version(stub.pod("unseen")["metadata"]["resourceVersion"], 0)
    assert not reflector.wait_version("no number", 0)


def test_a_value_that_its_owner_chokes_on_is_told_again_in_a_new_list(client: KubeClient, stub: KubeStub) -> None:
    lists: queue.Queue[dict[str, str]] = queue.Queue()

    def choke(_uid: str, _value: str) -> None:
        raise ValueError("choked")

    handlers = Handlers(on_replace=lists.put, on_change=choke, on_delete=lambda _uid: None)
    reflector = Reflector(client, "/api/v1/pods", convert=name_of, handlers=handlers)
    reflector.start()
    assert lists.get(timeout=DEADLINE_S) == {}
    stub.add_pod(pod("odd"))
    assert lists.get(timeout=DEADLINE_S) == {"uid-odd": "odd"}
    reflector.stop()
    assert not reflector.alive()


def test_stop_before_start_and_while_nobody_answers(listener: Listener) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = KubeClient(ApiAccess(server=f"http://127.0.0.1:{silent.getsockname()[1]}"), timeout_s=0.2)
        never = Reflector(client, "/api/v1/pods", convert=name_of, handlers=listener.handlers())
        never.stop()
        reflector = Reflector(client, "/api/v1/pods", convert=name_of, handlers=listener.handlers())
        reflector.start()
        reflector.stop()
        assert not reflector.alive()
        assert not reflector.synced.is_set()
        client.close()


def test_a_call_without_an_answer_ends_at_its_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = KubeClient(ApiAccess(server=f"http://127.0.0.1:{silent.getsockname()[1]}"), timeout_s=0.1)
        with pytest.raises(Unavailable, match="cannot GET /api/v1/nodes/n"):
            client.get("/api/v1/nodes/n")
        client.close()


def test_a_body_that_drips_ends_at_its_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while not stopped.wait(0.02):
                    try:
                        connection.sendall(b"1\r\n \r\n")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        client = KubeClient(ApiAccess(server=f"http://127.0.0.1:{server.getsockname()[1]}"), timeout_s=0.2)
        with pytest.raises(Unavailable, match="did not end in time"):
            client.get("/api/v1/nodes/n")
        stopped.set()
        thread.join(DEADLINE_S)
        client.close()


def test_a_read_survives_a_connection_that_the_server_dropped(stub: KubeStub, client: KubeClient) -> None:
    stub.add_pod(pod("p"))
    stub.faults.append(Fault("GET", drop=True))
    assert client.get("/api/v1/namespaces/default/pods/p")["metadata"]["name"] == "p"


def test_the_calls_by_name(stub: KubeStub, client: KubeClient) -> None:
    objects = KubeObjects(client)
    stub.add_pod(pod("p"))
    stub.add_node({"metadata": {"name": "n", "uid": "n-1"}})
    with pytest.raises(Conflict):
        objects.bind_pod("default", "p", uid="another", node="n", annotations={})
    objects.bind_pod("default", "p", uid="uid-p", node="n", annotations={"a": "1"})
    with pytest.raises(Conflict):
        objects.bind_pod("default", "p", uid="uid-p", node="m", annotations={"a": "2"})
    bound = objects.get_pod("default", "p")
    assert (bound["spec"]["nodeName"], bound["metadata"]["annotations"]) == ("n", {"a": "1"})
    assert [item["metadata"]["name"] for item in objects.list_pods("n")] == ["p"]
    assert list(objects.list_pods("m")) == []
    objects.annotate_pod("default", "p", uid="uid-p", annotations={"b": "2", "a": None})
    assert stub.pod("p")["metadata"]["annotations"] == {"b": "2"}
    with pytest.raises(Conflict):
        objects.annotate_pod("default", "p", uid="another", annotations={})
    objects.annotate_node("n", {"x": "y"})
    assert objects.get_node("n")["metadata"]["annotations"] == {"x": "y"}
    assert objects.running_pods("n") == {"uid-p"}
    assert len(objects.kubelet_pods("n")) == 1
    with pytest.raises(Conflict):
        objects.delete_pod("default", "p", uid="another")
    objects.evict_pod("default", "p", uid="uid-p")
    objects.delete_pod("default", "p", uid="uid-p")
    with pytest.raises(NotFound):
        objects.get_pod("default", "p")


def test_a_node_that_acts_as_itself_annotates_through_the_status(stub: KubeStub, client: KubeClient) -> None:
    objects = KubeObjects(client)
    stub.add_pod(pod("p"))
    stub.faults.append(Fault("PATCH .*/pods/p$", status=403, lasts=True))
    for value in ("1", "2"):
        objects.annotate_pod("default", "p", uid="uid-p", annotations={"a": value})
        assert stub.pod("p")["metadata"]["annotations"] == {"a": value}
    assert stub.count("PATCH .*/pods/p$") == 1
    with pytest.raises(Conflict):
        objects.annotate_pod("default", "p", uid="another", annotations={})
    stub.faults[:] = [Fault("PATCH .*/pods/p/status$", status=403, lasts=True)]
    objects.annotate_pod("default", "p", uid="uid-p", annotations={"a": "3"})
    stub.faults[:] = [Fault("PATCH", status=403, lasts=True)]
    with pytest.raises(Forbidden, match=r"cannot PATCH .*/pods/p: 403"):
        objects.annotate_pod("default", "p", uid="uid-p", annotations={"a": "4"})
