"""HTTPS as boxes meet it: a real server on a free port, with the certificates that a controller makes."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import urllib3
from fastapi.testclient import TestClient
from kits.enrol import Box, office
from kits.https import ARCHIVE, Served, serving
from kits.mqtt import wait_for

from edgegpu_cloud.enrolment import tokens
from edgegpu_cloud.enrolment.bootstrap import make_server, read_key
from edgegpu_cloud.enrolment.enrolment import RENEW_DOMAIN
from edgegpu_cloud.enrolment.key_files import pin
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.http import guard, server
from edgegpu_cloud.http.app import REFUSED_WITH_TOKEN, REFUSED_WITH_TOKEN_HERE, make_app
from edgegpu_cloud.http.release import BundleFolder
from edgegpu_cloud.http.server import HttpsServer, ServerLimits
from edgegpu_cloud.store.notes import Refusal
from edgegpu_sync.wire import to_base64

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("common")) as one:
        yield one


@pytest.fixture
def served(common: Served) -> Served:
    """The server of this file; enough time has passed since the last test's wrong tries."""
    common.here.clock.now_s += 601
    return common


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Served]:
    """One for a test that breaks it."""
    with serving(tmp_path) as one:
        yield one


def test_a_box_enrols_and_renews(served: Served) -> None:
    box = Box(served.here.token())
    status, granted = served.post("/v1/enrol", box.ask())
    assert status == 200
    assert sorted(granted) == [
        "broker",
        "broker_ca",
        "certificate",
        "device",
        "enrolment",
        "keys",
        "name",
        "root",
        "server_time",
    ]
    assert served.post("/v1/enrol", box.ask())[1] == granted
    body = {"device": granted["device"], "enrolment": 1, "csr": box.new_csr(), "instance": box.instance, "nonce": "n"}
    data = json.dumps(body).encode()
    signature = to_base64(box.sign.sign(RENEW_DOMAIN + data))
    status, renewed = served.post("/v1/renew", data, **{"Edgegpu-Signature": signature})
    assert status == 200
    assert renewed["certificate"] != granted["certificate"]
    assert (
        served.post("/v1/renew", data, **{"Edgegpu-Signature": signature})[1]["certificate"] == renewed["certificate"]
    )
    status, denied = served.post("/v1/renew", data)
    assert (status, denied["code"]) == (403, "REFUSED")


def test_a_box_that_waits_is_told_so(served: Served) -> None:
    box = Box(served.here.token(approval=True))
    status, answer = served.post("/v1/enrol", box.ask())
    assert (status, answer) == (202, {"state": "waiting", "retry_s": 15})


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"token": "wrong"}, 401, "TOKEN_UNKNOWN"),
        ({"request": "no"}, 400, "BAD_REQUEST"),
        ({"sign_key": "short"}, 400, "BAD_REQUEST"),
        ({"instance": None}, 400, "BAD_REQUEST"),
        ({"csr": "x" * 10_000}, 400, "BAD_REQUEST"),
    ],
)
def test_refusals_say_what_is_wrong_and_what_to_do(
    served: Served, change: dict[str, object], status: int, code: str
) -> None:
    found, denied = served.post("/v1/enrol", Box(served.here.token()).ask(**change))
    assert (found, denied["code"]) == (status, code)
    assert denied["text"]
    assert denied["remedy"]
    assert "Traceback" not in json.dumps(denied)


@pytest.mark.parametrize("body", [b"", b"nothing", b"[]", b"null", b"\xff\xfe", b'{"token": NaN}', b"[" * 20_000])
def test_what_is_no_request_at_all(served: Served, body: bytes) -> None:
    status, denied = served.post("/v1/enrol", body)
    assert (status, denied["code"]) == (400, "BAD_REQUEST")
    assert served.post("/v1/renew", body)[0] == 400


def test_what_is_too_long_is_not_read(served: Served) -> None:
    answer = served.pool.request("POST", f"{served.url}/v1/enrol", body=b"x" * 40_000, retries=False)
    assert answer.status == 413
    assert served.get("/healthz").status == 200


def test_an_address_with_too_many_wrong_tokens_has_to_wait(served: Served) -> None:
    for _ in range(20):
        assert served.post("/v1/enrol", Box("wrong").ask())[0] == 401
    body = json.dumps(Box("wrong").ask()).encode()
    answer = served.pool.request("POST", f"{served.url}/v1/enrol", body=body, retries=False)
    assert answer.status == 429
    assert int(answer.headers["Retry-After"]) == 600
    assert served.post("/v1/enrol", Box(served.here.token()).ask())[0] == 200, "its neighbours are taken in"
    served.here.clock.now_s += 601
    assert served.post("/v1/enrol", Box("wrong").ask())[0] == 401


def test_a_box_that_is_refused_for_ever_keeps_no_other_one_waiting(served: Served) -> None:
    token = served.here.token(uses=3)
    used = Box(token)
    assert served.post("/v1/enrol", used.ask())[0] == 200
    again = Box(token, request=used.request)
    assert [served.post("/v1/enrol", again.ask())[0] for _ in range(21)] == [403] * 20 + [429]
    assert served.post("/v1/enrol", Box(token).ask())[0] == 200, "another box with the same token"


def test_ever_other_machines_with_a_used_token_are_throttled_and_counted_in_one_alarm(served: Served) -> None:
    box = Box(served.here.token())
    assert served.post("/v1/enrol", box.ask())[0] == 200
    refused_s = served.here.clock.now_s
    statuses = [served.post("/v1/enrol", Box(box.token).ask())[0] for _ in range(REFUSED_WITH_TOKEN_HERE + 30)]
    assert statuses == [403] * REFUSED_WITH_TOKEN_HERE + [429] * 30, "each is another machine, with keys of its own"
    body = json.dumps(Box(box.token).ask()).encode()
    answer = served.pool.request("POST", f"{served.url}/v1/enrol", body=body, retries=False)
    denied = json.loads(answer.data)
    assert (answer.status, denied["code"], answer.headers["Retry-After"]) == (429, "TOO_MANY", "600")
    assert "used already" in denied["text"]
    assert "edgegpu-cloud enrol" in denied["remedy"]
    assert served.post("/v1/enrol", box.ask())[0] == 200, "the box itself gets its answer again"
    assert served.post("/v1/enrol", Box(served.here.token()).ask())[0] == 200, "and its neighbours are taken in"
    served.here.desk.tell_throttled()
    served.here.desk.tell_throttled()
    found = {one.kind: one for one in served.here.fleet.alarms() if one.at_s >= refused_s}
    assert found["enrol.TOO_MANY"].times == 31
    assert "box-1 at 127.0.0.1, with the token" in found["enrol.TOO_MANY"].text
    with served.here.store.read() as tx:
        assert tx.notes.refusals()[Refusal.THROTTLED] == 31
    served.here.clock.now_s += 601
    assert served.post("/v1/enrol", Box(box.token).ask())[0] == 403


def test_whoever_holds_a_bulk_token_keeps_no_box_of_its_site_waiting(served: Served) -> None:
    token = served.here.token(uses=3 * REFUSED_WITH_TOKEN)
    known = Box(token)
    assert served.post("/v1/enrol", known.ask())[0] == 200
    for _ in range(REFUSED_WITH_TOKEN_HERE):
        assert served.post("/v1/enrol", Box(token, request=known.request).ask())[0] == 403
    assert served.post("/v1/enrol", Box(token, request=known.request).ask())[0] == 429
    taken = [served.post("/v1/enrol", Box(token).ask())[0] for _ in range(REFUSED_WITH_TOKEN + 20)]
    assert taken == [200] * (REFUSED_WITH_TOKEN + 20), "as many as are wanted, from the one address"


def test_a_token_that_was_taken_back_is_throttled_whatever_address_sends_it(tmp_path: Path) -> None:
    here = office(tmp_path / "cloud")
    text = here.token()
    with here.store.write() as tx:
        made = tx.enrolments.token(tokens.digest(text))
        assert made is not None
        tx.enrolments.put_token(replace(made, revoked=True))
    app = make_app(here.desk, BundleFolder(tmp_path, "https://cloud.example"), ca_pem="", clock=here.clock)
    statuses = [
        TestClient(app, client=(f"10.0.{at // 40}.{at % 40}", 50_000))
        .post("/v1/enrol", json=Box(text).ask())
        .status_code
        for at in range(REFUSED_WITH_TOKEN + 5)
    ]
    assert statuses == [403] * REFUSED_WITH_TOKEN + [429] * 5
    here.store.close()


def test_a_stranger_keeps_no_box_of_its_address_from_renewing(served: Served) -> None:
    box = Box(served.here.token())
    granted = served.post("/v1/enrol", box.ask())[1]
    body = {"enrolment": 1, "csr": box.new_csr(), "instance": box.instance, "nonce": "n"}
    mine = json.dumps(body | {"device": granted["device"]}).encode()
    assert [served.post("/v1/renew", mine)[0] for _ in range(21)] == [403] * 20 + [429], "in its name, unsigned"
    signature = to_base64(box.sign.sign(RENEW_DOMAIN + mine))
    assert served.post("/v1/renew", mine, **{"Edgegpu-Signature": signature})[0] == 200
    old = json.dumps(body | {"device": granted["device"], "enrolment": 7}).encode()
    signed = {"Edgegpu-Signature": to_base64(box.sign.sign(RENEW_DOMAIN + old))}
    assert [served.post("/v1/renew", old, **signed)[0] for _ in range(21)] == [403] * 20 + [429], "signed, refused"
    assert served.post("/v1/enrol", Box(served.here.token()).ask())[0] == 200


def test_a_fault_in_here_says_no_more_outside(alone: Served, caplog: pytest.LogCaptureFixture) -> None:
    box = Box(alone.here.token())
    with alone.here.store.write() as tx:
        tx.notes._connection.exec_driver_sql("DROP TABLE certificates")  # noqa: SLF001  (a broken store)
    with caplog.at_level(logging.ERROR):
        status, denied = alone.post("/v1/enrol", box.ask())
    assert (status, denied["code"]) == (503, "ERROR")
    assert "certificates" not in json.dumps(denied)
    assert "certificates" in caplog.text


def test_the_log_has_requests_and_no_tokens(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    token = served.here.token()
    with caplog.at_level(logging.INFO):
        served.post("/v1/enrol", Box(token).ask())
        served.post(f"/v1/enrol?token={token}", Box(token).ask())
        served.get("/install.sh")
        served.get("/a%0ab")
    assert "127.0.0.1 POST /v1/enrol 200" in caplog.text
    assert "GET /install.sh 200" in caplog.text
    assert token not in caplog.text
    assert "/a\nb" not in caplog.text


# TLS and connections


def test_the_chain_is_verified_by_the_ca_alone_and_openssl_agrees(served: Served) -> None:
    words = ["openssl", "s_client", "-connect", f"127.0.0.1:{served.port}", "-CAfile"]
    words += [str(served.here.layout.ca_cert("servers")), "-verify_ip", "127.0.0.1", "-verify_return_error"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20, stdin=subprocess.DEVNULL)
    assert "Verify return code: 0 (ok)" in done.stdout, done.stdout[-2_000:]
    assert "TLSv1.3" in done.stdout
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    stranger = urllib3.PoolManager(ssl_context=context, retries=False)
    with pytest.raises(urllib3.exceptions.SSLError):
        stranger.request("GET", f"{served.url}/healthz")


def test_old_tls_is_refused(served: Served) -> None:
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{served.port}", "-tls1_1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode != 0


def shown(served: Served) -> bytes:
    """Return the certificate that the server shows."""
    with tls(served) as secure:
        return secure.getpeercert(binary_form=True) or b""


def test_a_certificate_whose_file_changes_is_shown_without_a_restart_and_the_pin_stays(served: Served) -> None:
    before = shown(served)
    key = pin(read_key(served.here.layout, "https").public_key())
    make_server(served.here.layout, served.here.config, "https", now_s=served.here.clock())
    wait_for(lambda: shown(served) != before, what="the new certificate is shown")
    assert pin(read_key(served.here.layout, "https").public_key()) == key


def test_a_certificate_that_is_not_its_keys_leaves_the_one_before_shown(
    alone: Served, caplog: pytest.LogCaptureFixture
) -> None:
    before, layout = shown(alone), alone.here.layout
    layout.cert("https").write_bytes(layout.cert("broker").read_bytes())
    wait_for(lambda: "what was shown before is shown on" in caplog.text, what="the files are looked at")
    assert shown(alone) == before, "and handshakes go on"


def test_a_port_that_is_taken_and_a_certificate_that_is_none(served: Served, tmp_path: Path) -> None:
    layout = served.here.layout
    cert, key = layout.cert("https"), layout.key("https")

    async def app(_scope: object, _receive: object, _send: object) -> None:
        pass

    with pytest.raises(CloudError, match="cannot listen"):
        HttpsServer(app, host="127.0.0.1", port=served.port, cert=cert, key=key)
    with pytest.raises(CloudError, match="cannot use"):
        HttpsServer(app, host="127.0.0.1", port=0, cert=cert, key=layout.key("broker"))
    with pytest.raises(CloudError, match="cannot use"):
        HttpsServer(app, host="127.0.0.1", port=0, cert=tmp_path / "none", key=key)


@contextmanager
def tls(served: Served, *, source: str = "127.0.0.1") -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(served.here.layout.ca_cert("servers")))
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=20, source_address=(source, 0)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        yield secure


WHOLE, HALF = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: a\r\n"


def rest_of(connection: socket.socket) -> bytes:
    """Return all that comes until the other side ends the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while data := connection.recv(65_536):
            found += data
    return found


@pytest.mark.parametrize("said", [b"", HALF, WHOLE + HALF, WHOLE * 3 + HALF])
def test_a_connection_on_which_no_whole_request_comes_is_closed(tmp_path: Path, said: bytes) -> None:
    with serving(tmp_path, patience=ServerLimits(headers_s=0.2)) as served, tls(served) as secure:
        secure.sendall(said)
        assert rest_of(secure).count(b"200 OK") == said.count(WHOLE), "it ends, and half a request is not answered"


def test_a_connection_without_tls_is_closed(tmp_path: Path) -> None:
    with (
        serving(tmp_path, patience=ServerLimits(handshake_s=0.2)) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=20) as plain,
    ):
        assert rest_of(plain) == b""
        wait_for(lambda: served.server.connections == 0, what="its place is free")


def sent_slowly(secure: socket.socket, length: int, *, every_s: float) -> tuple[int, bytes]:
    """Send the body of a request byte by byte until an answer comes; return how many were sent, and the answer."""
    secure.sendall(f"POST /v1/enrol HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n".encode())
    for sent in range(length):
        secure.settimeout(every_s)
        with suppress(TimeoutError):
            return sent, secure.recv(1_000)
        secure.settimeout(20)
        secure.sendall(b"x")
    return length, secure.recv(1_000)


def test_a_body_that_comes_slowly_is_cut_off_however_many_bytes_come_in_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), serving(tmp_path, body_s=0.5) as served:
        with tls(served) as secure:
            sent, answer = sent_slowly(secure, 200, every_s=0.05)
            secure.settimeout(20)
            answer += rest_of(secure)
        assert (1 < sent < 200, answer.partition(b"\r\n")[0]) == (True, b"HTTP/1.1 408 Request Timeout")
        assert b"the request is too long or too slow\n" in answer, "and the connection is closed"
        wait_for(lambda: served.server.connections == 0, what="its place is free")
        with tls(served) as secure:
            sent, answer = sent_slowly(secure, 5, every_s=0.001)
        assert (sent, answer.partition(b"\r\n")[0]) == (5, b"HTTP/1.1 400 Bad Request"), "in time: the application's"
    assert "127.0.0.1 POST /v1/enrol 408" in caplog.text


def test_who_does_not_read_the_answer_is_cut_off(tmp_path: Path) -> None:
    with serving(tmp_path, write_s=0.2, patience=ServerLimits(shutdown_s=0.2)) as served:
        with (served.bundle / ARCHIVE).open("ab") as archive:
            archive.truncate(64 << 20)
        with tls(served) as secure:
            secure.sendall(f"GET /{ARCHIVE} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            wait_for(lambda: served.server.connections == 0, what="its place is free", timeout_s=30)
            assert len(rest_of(secure)) < 64 << 20


def test_a_flood_of_connections_takes_no_place_from_others_and_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path, patience=ServerLimits(connections=20)) as served, ExitStack() as flood:
        quiet = flood.enter_context(tls(served, source="127.0.0.2"))
        for _ in range(100):
            flood.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20))
        wait_for(lambda: served.server.connections == 20, what="all places are taken")
        with tls(served) as secure:
            secure.sendall(WHOLE)
            assert b"200 OK" in secure.recv(1_000), "the oldest of the flood has made room for it"
        quiet.sendall(WHOLE)
        assert b"200 OK" in quiet.recv(1_000), "another address has lost nothing"
        assert served.server.connections <= 20
    lines = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(lines) <= 1, [one.getMessage() for one in lines]


def test_limits_are_those_of_the_docs() -> None:
    assert (guard.BODY_MAX_BYTES, guard.BODY_MAX_S, server.HEADERS_MAX_S) == (32_768, 20.0, 20.0)
    assert (guard.WRITE_MAX_S, server.HANDSHAKE_MAX_S, server.CONNECTIONS) == (120.0, 20.0, 1_024)
