"""HTTPS as boxes and curl meet it: a real server on a free port, with the certificates that a controller makes."""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
from enrolkit import Box, Office, office

from edgegpu_cloud import http_guard, http_server
from edgegpu_cloud.enrolment import RENEW_DOMAIN
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.founding import make_server, read_key
from edgegpu_cloud.http import make_app
from edgegpu_cloud.http_server import HttpsServer
from edgegpu_cloud.keyfiles import file_sha256, pin
from edgegpu_cloud.release import Release
from edgegpu_sync.base64url import to_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCRIPT = """#!/bin/sh
set -eu
BASE_URL='@EDGEGPU_URL@'
main() { echo "$BASE_URL|$#|$*|${EDGEGPU_TOKEN-}"; }
{ main "$@"; }
"""
ARCHIVE = "edgegpu-0.1.0-linux-amd64.tar.xz"


@dataclass
class Served:
    here: Office
    url: str
    port: int
    pool: urllib3.PoolManager
    server: HttpsServer
    bundle: Path

    def get(self, path: str, **headers: str) -> urllib3.BaseHTTPResponse:
        return self.pool.request("GET", self.url + path, headers=headers, retries=False)

    def post(self, path: str, body: object, **headers: str) -> tuple[int, dict[str, Any]]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.pool.request("POST", self.url + path, body=data, headers=headers, retries=False)
        return answer.status, json.loads(answer.data)


def make_bundle(folder: Path) -> Path:
    folder.mkdir()
    files = {"install.sh": SCRIPT.encode(), "uninstall.sh": b"#!/bin/sh\n", ARCHIVE: b"0123456789" * 1_000}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()]
    (folder / "SHA256SUMS").write_text("".join(lines))
    (folder / "secret.key").write_text("secret")
    return folder


@contextmanager
def serving(folder: Path) -> Iterator[Served]:
    here = office(folder / "cloud", names=["127.0.0.1", "localhost"])
    release = Release(make_bundle(folder / "bundle"), "https://cloud.example:8443")
    app = make_app(here.desk, release, ca_pem=here.layout.ca_cert("servers").read_text(), clock=here.clock)
    server = HttpsServer(app, host="127.0.0.1", port=0, cert=here.layout.cert("https"), key=here.layout.key("https"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    pool = urllib3.PoolManager(ca_certs=str(here.layout.ca_cert("servers")), timeout=10)
    url = f"https://127.0.0.1:{server.port}"
    try:
        yield Served(here, url, server.port, pool, server, release.folder)
    finally:
        pool.clear()
        server.stop()
        thread.join(10)
        here.store.close()
        assert not thread.is_alive()


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
        "root",
        "server_time",
    ]
    assert served.post("/v1/enrol", box.ask())[1] == granted
    body = {"device": granted["device"], "enrolment": 1, "csr": box.new_csr(), "instance": box.instance, "nonce": "n"}
    data = json.dumps(body).encode()
    signature = to_text(box.sign.sign(RENEW_DOMAIN + data))
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
    answer = served.pool.request("POST", f"{served.url}/v1/enrol", body=b"{}", retries=False)
    assert answer.status == 429
    assert int(answer.headers["Retry-After"]) == 600
    served.here.clock.now_s += 601
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


# the bundle


def test_install_sh_has_the_address_in_it_and_its_checksum_is_right(served: Served) -> None:
    script = served.get("/install.sh").data
    assert script == SCRIPT.replace("@EDGEGPU_URL@", "https://cloud.example:8443").encode()
    lines = [line.split() for line in served.get("/SHA256SUMS").data.decode().splitlines()]
    sums = {name: found for found, name in lines}
    assert sums["install.sh"] == hashlib.sha256(script).hexdigest()
    assert sums[ARCHIVE] == hashlib.sha256(served.get(f"/{ARCHIVE}").data).hexdigest()
    assert list(Release(served.bundle, served.url).problems()) == []


def test_a_broken_download_goes_on(served: Served) -> None:
    answer = served.get(f"/{ARCHIVE}", Range="bytes=9990-")
    assert (answer.status, answer.data) == (206, b"0123456789")


@pytest.mark.parametrize(
    "path",
    ["/secret.key", "/..%2fcloud%2fcontroller.yaml", "/%2e%2e/x", "/edgegpu-..%2f-linux-amd64.tar.xz", "/", "/docs"],
)
def test_nothing_else_is_served(served: Served, path: str) -> None:
    assert served.get(path).status == 404


def test_a_link_is_not_followed(served: Served) -> None:
    (served.bundle / "edgegpu-9.9-linux-amd64.tar.gz").symlink_to(served.bundle / "secret.key")
    assert served.get("/edgegpu-9.9-linux-amd64.tar.gz").status == 404


def test_problems_of_a_bundle_are_told(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "bundle")
    (bundle / ARCHIVE).write_bytes(b"other")
    (bundle / "uninstall.sh").unlink()
    found = " ".join(Release(bundle, "https://x").problems())
    assert "uninstall.sh is missing" in found
    assert f"{ARCHIVE} is not what" in found
    assert "there is no bundle" in next(Release(tmp_path, "https://x").problems())
    with pytest.raises(CloudError, match="cannot put"):
        Release(bundle, "https://x';rm -rf /;'").installer()


def test_the_line_that_people_paste_works_with_curl(served: Served) -> None:
    key = pin(read_key(served.here.layout, "https").public_key())
    options = "--url https://cloud.example:8443 --ca-sha256 abc"
    line = (
        f"curl -fsSLk --pinnedpubkey 'sha256//{key}' {served.url}/install.sh | EDGEGPU_TOKEN=secret sh -s -- {options}"
    )
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"https://cloud.example:8443|4|{options}|secret\n"
    wrong = subprocess.run(
        ["sh", "-c", line.replace(key, pin(read_key(served.here.layout, "broker").public_key()))],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert wrong.stdout == "", "another server's script is not run"
    assert "pinned" in wrong.stderr


def test_ca_crt_has_the_checksum_that_the_line_names(served: Served) -> None:
    pem = served.get("/ca.crt").data.decode()
    assert file_sha256(pem) == file_sha256(served.here.layout.ca_cert("servers").read_text())


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


def test_a_new_certificate_is_shown_without_a_restart_and_the_pin_stays(served: Served) -> None:
    def shown() -> bytes:
        context = ssl.create_default_context(cafile=str(served.here.layout.ca_cert("servers")))
        with (
            socket.create_connection(("127.0.0.1", served.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            return secure.getpeercert(binary_form=True) or b""

    before = shown()
    key = pin(read_key(served.here.layout, "https").public_key())
    make_server(served.here.layout, served.here.config, "https", now_s=served.here.clock())
    served.server.reload()
    assert shown() != before
    assert pin(read_key(served.here.layout, "https").public_key()) == key


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


def test_limits_are_those_of_the_docs() -> None:
    assert (http_guard.BODY_MAX_BYTES, http_guard.BODY_MAX_S, http_server.HEADERS_MAX_S) == (32_768, 20.0, 20.0)
