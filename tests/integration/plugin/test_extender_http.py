import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.extender_run import DEADLINE_S, Caller, Running, extender_config, running
from integration.extender_world import node, plain_node, pod, uuid
from integration.kube_stub import Fault, KubeStub
from kits.cert import Certs, make_certs

from edgegpu_base.kube import KubeClient
from edgegpu_plugin.config.schema import PluginConfig, Tls
from edgegpu_plugin.extender.bind import HoldBackTime
from edgegpu_plugin.extender.extender import Extender
from edgegpu_plugin.extender.server import BadRequest, ExtenderError, ExtenderServer


@pytest.fixture(scope="module")
def certs() -> Certs:
    return make_certs()


@pytest.fixture
def tls(certs: Certs, tmp_path: Path) -> Tls:
    files = {"ca.crt": certs.ca, "server.crt": certs.server.cert, "server.key": certs.server.key}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return Tls(cert=tmp_path / "server.crt", key=tmp_path / "server.key", client_ca=tmp_path / "ca.crt")


def client_context(certs: Certs, tmp_path: Path, *, identified: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=certs.ca)
    if identified:
        both = tmp_path / "client.pem"
        both.write_text(certs.client.cert + certs.client.key)
        context.load_cert_chain(both)
    return context


@pytest.fixture
def run() -> Iterator[Running]:
    with running(hold_back=HoldBackTime(each_s=0)) as made:
        made.add(node("a", [29, 29]), node("b", [9]), plain_node("c"))
        yield made


def test_filter_by_names(run: Running) -> None:
    asking = pod("p", (20, 1))
    answer = run.filter(asking, ["a", "b", "c"])
    reasons = {
        "b": "needs 20 vcuda-memory on one card; card 0 has 9 free",
        "c": "has no edgegpu plugin (no card list published)",
    }
    # A scheduler of 1.20 reads FailedNodes alone; later ones let the other win.
    assert answer == {
        "Nodes": None,
        "NodeNames": ["a"],
        "FailedNodes": reasons,
        "FailedAndUnresolvableNodes": reasons,
        "Error": "",
    }
    assert run.filter(asking, ["b"])["NodeNames"] == []


def test_filter_by_whole_nodes_answers_with_whole_nodes(run: Running) -> None:
    nodes = [node("a", [29, 29]), node("b", [9])]
    with run.caller() as caller:
        answer = caller.ask("/filter", {"Pod": pod("p", (20, 1)), "Nodes": {"items": nodes}, "NodeNames": None})
    assert answer["Nodes"] == {"items": nodes[:1]}
    assert answer["NodeNames"] == []


def test_a_pod_without_shares_passes_everywhere(run: Running) -> None:
    assert run.filter(pod("p"), ["a", "zzz"])["NodeNames"] == ["a", "zzz"]


def test_prioritize_by_the_pods_policy(run: Running) -> None:
    held = pod("old", (20, 1), node="a", cards={"c0": (uuid("a", 0),)})
    run.add(held)
    with run.caller() as caller:
        names = {"Nodes": None, "NodeNames": ["a", "b"]}
        packed = caller.ask("/prioritize", {"Pod": pod("p", (4, 1)), **names})
        spread = caller.ask("/prioritize", {"Pod": pod("p", (4, 1), policy="spread"), **names})
        neither = caller.ask("/prioritize", {"Pod": pod("p"), **names})
    assert packed == [{"Host": "a", "Score": 4}, {"Host": "b", "Score": 0}]
    assert spread == [{"Host": "a", "Score": 6}, {"Host": "b", "Score": 10}]
    assert neither == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 0}]


def test_before_the_cluster_is_read_nothing_is_judged() -> None:
    with KubeStub() as stub:
        stub.faults += [Fault("GET /api/v1/", 503)] * 1000
        client = KubeClient(stub.access)
        extender = Extender(extender_config(), client)
        extender.start()
        caller = Caller(extender.server.port)
        words = "edgegpu extender is still reading the cluster"
        assert caller.filter(pod("p", (4, 1)), ["a"])["Error"] == words
        assert caller.bind(pod("p", (4, 1)), "a") == words
        status, text = caller.call("/healthz", b"", "GET")
        assert (status, text) == (503, b"the nodes are not read yet; the pods are not read yet\n")
        assert extender.healthy()
        caller.close()
        extender.stop()
        assert not extender.healthy()
        client.close()


def test_requests_that_are_none(run: Running, caplog: pytest.LogCaptureFixture) -> None:
    with run.caller() as caller:
        assert caller.call("/healthz", b"", "GET") == (200, b"ok\n")
        assert caller.call("/other", b"", "GET")[0] == 404
        assert caller.call("/other", b"{}")[0] == 404
        status, text = caller.call("/filter", b"{not json")
        assert status == 400
        assert b"cannot read ExtenderArgs" in text
        status, text = caller.call("/filter", json.dumps({"Pod": 1}).encode())
        assert (status, text) == (400, b"cannot read ExtenderArgs: Pod: Input should be an object\n")
        broken = pod("p", (4, 1))
        broken["spec"]["containers"] = [1]
        assert caller.call("/filter", json.dumps({"Pod": broken, "NodeNames": ["a"]}).encode())[0] == 500
        assert "/filter failed" in caplog.text
        assert caller.filter(pod("p", (4, 1)), ["a"])["NodeNames"] == ["a"]


def test_too_much_and_unmeasured_bodies_are_refused(run: Running) -> None:
    for header, status in (("Content-Length: 99999999", b"413"), ("Transfer-Encoding: chunked", b"411")):
        with socket.create_connection(("127.0.0.1", run.extender.server.port), timeout=DEADLINE_S) as raw:
            raw.sendall(f"POST /filter HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode())
            assert raw.recv(65_536).split(b" ")[1] == status


def test_only_a_client_with_a_certificate_of_the_ca_gets_in(tls: Tls, certs: Certs, tmp_path: Path) -> None:
    with running(tls=tls) as run:
        run.add(node("a", [29]))
        with run.caller(client_context(certs, tmp_path)) as caller:
            assert caller.filter(pod("p", (4, 1)), ["a"])["NodeNames"] == ["a"]
        stranger = make_certs()
        strange = ssl.create_default_context(cadata=certs.ca)
        (tmp_path / "strange.pem").write_text(stranger.client.cert + stranger.client.key)
        strange.load_cert_chain(tmp_path / "strange.pem")
        for context in (client_context(certs, tmp_path, identified=False), strange):
            with run.caller(context) as caller, pytest.raises(OSError, match=r"(?i)ssl|reset|alert"):
                caller.call("/healthz", b"", "GET")
        with run.caller() as caller, pytest.raises(OSError, match=r"(?i)closed|reset"):
            caller.call("/healthz", b"", "GET")


def test_the_servers_own_certificate_is_no_clients(tls: Tls, certs: Certs, tmp_path: Path) -> None:
    with running(tls=tls) as run:
        context = ssl.create_default_context(cadata=certs.ca)
        (tmp_path / "own.pem").write_text(certs.server.cert + certs.server.key)
        context.load_cert_chain(tmp_path / "own.pem")
        with run.caller(context) as caller, pytest.raises(OSError, match=r"(?i)ssl|reset|alert"):
            caller.call("/healthz", b"", "GET")


def test_clients_that_stall_their_handshake_block_nobody(tls: Tls, certs: Certs, tmp_path: Path) -> None:
    with running(tls=tls) as run:
        port = run.extender.server.port
        stalled = [socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) for _ in range(10)]
        with run.caller(client_context(certs, tmp_path)) as caller:
            assert caller.call("/healthz", b"", "GET")[0] == 200
        for raw in stalled:
            raw.close()


def test_too_many_connections_are_turned_away_and_end(run: Running) -> None:
    port = run.extender.server.port
    crowd = [socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) for _ in range(80)]
    ended = 0
    for raw in crowd[64:]:
        ended += raw.recv(1) == b""
    assert ended == 16
    for raw in crowd:
        raw.close()


def test_the_listener_closes_and_opens_again(tls: Tls, certs: Certs, tmp_path: Path) -> None:
    with running(tls=tls) as run:
        run.add(node("a", [29]))
        context = client_context(certs, tmp_path)
        with run.caller(context) as kept:
            assert kept.call("/healthz", b"", "GET")[0] == 200
            run.extender.server.close()
            assert not run.extender.healthy()
            with pytest.raises(OSError, match=r"(?i)closed|reset|ssl|refused|EOF"):
                kept.call("/healthz", b"", "GET")
        run.extender.server.start()
        with run.caller(context) as caller:
            assert caller.filter(pod("p", (4, 1)), ["a"])["NodeNames"] == ["a"]


class SlowRoutes:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.posts = {"/slow": self._slow, "/bad": self._bad}

    def health(self) -> tuple[bool, str]:
        return True, "ok"

    def _slow(self, body: bytes) -> bytes:
        self.asked.set()
        assert self.go_on.wait(DEADLINE_S)
        return body

    def _bad(self, _body: bytes) -> bytes:
        raise BadRequest("no")


def test_a_call_that_is_being_answered_gets_its_answer_while_closing(tls: Tls, certs: Certs, tmp_path: Path) -> None:
    routes = SlowRoutes()
    server = ExtenderServer("127.0.0.1:0", routes=routes, tls=tls)
    server.start()
    caller = Caller(server.port, client_context(certs, tmp_path))
    answers: list[tuple[int, bytes]] = []
    calling = threading.Thread(target=lambda: answers.append(caller.call("/slow", b"words")))
    calling.start()
    assert routes.asked.wait(DEADLINE_S)
    closing = threading.Thread(target=server.close)
    closing.start()
    routes.go_on.set()
    closing.join(DEADLINE_S)
    calling.join(DEADLINE_S)
    assert answers == [(200, b"words")]
    caller.close()


def test_the_configuration_makes_a_task_that_ends_when_told_to(caplog: pytest.LogCaptureFixture) -> None:
    section = {"listen": "localhost:0", "insecure": True}
    config = PluginConfig.model_validate({"version": 1, "role": "extender-only", "extender": section})
    with KubeStub() as stub:
        client = KubeClient(stub.access)
        extender = Extender(config, client)
        task = threading.Thread(target=extender.run)
        task.start()
        assert extender.wait_synced(DEADLINE_S)
        assert extender.healthy()
        assert "every process of this machine can bind pods" in caplog.text
        assert extender.problems() == ()
        extender.stop()
        task.join(DEADLINE_S)
        assert not task.is_alive()
        client.close()


def test_what_cannot_be_listened_on() -> None:
    routes = SlowRoutes()
    for listen, words in (
        ("8787", "is not an address and a port"),
        ("box:8787", "is not an address and a port"),
        ("0.0.0.0:8787", "lets anybody bind pods"),
    ):
        with pytest.raises(ExtenderError, match=words):
            ExtenderServer(listen, routes=routes, tls=None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ExtenderServer(f"127.0.0.1:{taken.getsockname()[1]}", routes=routes, tls=None)
        with pytest.raises(ExtenderError, match=r"Address already in use: end what holds the port"):
            server.start()
        assert not server.failed()


def test_tls_files_that_cannot_be_used(tls: Tls, tmp_path: Path) -> None:
    absent, text = tmp_path / "absent", tmp_path / "text"
    text.write_text("no certificate")
    for files, words in (
        (Tls(cert=absent, key=tls.key, client_ca=tls.client_ca), r"extender\.tls\.cert .*absent.*No such file"),
        (Tls(cert=tls.cert, key=text, client_ca=tls.client_ca), r"extender\.tls\.key .*text"),
        (Tls(cert=tls.cert, key=tls.key, client_ca=text), r"extender\.tls\.client_ca .*text"),
    ):
        with pytest.raises(ExtenderError, match=words):
            ExtenderServer("127.0.0.1:0", routes=SlowRoutes(), tls=files).start()
