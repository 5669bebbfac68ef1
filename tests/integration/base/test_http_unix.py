"""The Unix socket on which plugin and agent answer this machine's own programs."""

from __future__ import annotations

import logging
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.http_unix import LOOK_S, ChangeRequest, LocalServer, Response, get, send

WAIT_S = 60.0


def answer(target: str) -> Response:
    if target == "/broken":
        raise ValueError("no figures")
    return Response(200, f'"{target}"'.encode())


def change(request: ChangeRequest) -> Response:
    if request.target == "/broken":
        raise ValueError("no figures")
    return Response(201, f"{request.method} {request.target} {request.body.decode()}".encode())


@contextmanager
def served(path: Path, *, changes: bool = False, look_s: float = LOOK_S) -> Iterator[Path]:
    server = LocalServer(path, answer, owner="edgegpu-toy", change=change if changes else None, look_s=look_s)
    server.open()
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield path
    finally:
        server.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_it_answers_whoever_may_open_the_socket_and_takes_it_away(short_tmp: Path) -> None:
    with served(short_tmp / "run/toy.sock") as path:
        assert path.stat().st_mode & 0o777 == 0o600
        assert get(path, "/v1/a?b=1", timeout_s=WAIT_S) == (200, b'"/v1/a?b=1"')
    assert not path.exists()


def test_what_cannot_be_answered_is_logged_and_the_next_is_answered(
    short_tmp: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(short_tmp / "toy.sock") as path, caplog.at_level(logging.ERROR):
        assert get(path, "/broken", timeout_s=WAIT_S) == (500, b'{"error": "see the log of edgegpu-toy"}')
        assert get(path, "/v1/a", timeout_s=WAIT_S) == (200, b'"/v1/a"')
    assert "no figures" in caplog.text


def test_who_goes_without_a_word_is_no_fault(short_tmp: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with served(short_tmp / "toy.sock") as path:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(str(path))
        assert get(path, "/v1/a", timeout_s=WAIT_S) == (200, b'"/v1/a"')
    assert capfd.readouterr().err == ""


def test_a_path_where_another_answers_is_left_alone(short_tmp: Path) -> None:
    with served(short_tmp / "toy.sock") as path:
        with pytest.raises(EdgegpuError, match="another edgegpu-toy answers there; stop it first"):
            LocalServer(path, answer, owner="edgegpu-toy").open()
        assert get(path, "/v1/a", timeout_s=WAIT_S)[0] == 200


def test_what_a_dead_process_left_is_replaced(short_tmp: Path) -> None:
    path = short_tmp / "toy.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with served(path):
        assert get(path, "/v1/a", timeout_s=WAIT_S)[0] == 200


def test_a_folder_that_cannot_be_made_is_said_with_what_to_do(short_tmp: Path) -> None:
    (short_tmp / "file").touch()
    server = LocalServer(short_tmp / "file/toy.sock", answer, owner="edgegpu-toy", remedy="set paths.run")
    with pytest.raises(EdgegpuError, match=r"cannot make .*/file/toy\.sock: .*; set paths\.run$"):
        server.open()


def test_a_change_comes_with_its_body_and_only_where_it_is_wanted(short_tmp: Path) -> None:
    body = b'{"n": "' + b"x" * 30_000 + b'"}'
    with served(short_tmp / "toy.sock", changes=True) as path:
        assert send(path, ChangeRequest("PUT", "/v1/a", body), timeout_s=WAIT_S) == (201, b"PUT /v1/a " + body)
        assert send(path, ChangeRequest("DELETE", "/v1/a"), timeout_s=WAIT_S) == (201, b"DELETE /v1/a ")
        assert send(path, ChangeRequest("PUT", "/v1/a", b"x" * 70_000), timeout_s=WAIT_S)[0] == 400
        assert send(path, ChangeRequest("PUT", "/broken"), timeout_s=WAIT_S)[0] == 500
        assert get(path, "/v1/a", timeout_s=WAIT_S) == (200, b'"/v1/a"')
    with served(short_tmp / "toy.sock") as path:
        assert send(path, ChangeRequest("PUT", "/v1/a"), timeout_s=WAIT_S)[0] == 405


def test_a_change_that_is_cut_off_has_no_effect(short_tmp: Path) -> None:
    with served(short_tmp / "toy.sock", changes=True) as path, socket.socket(socket.AF_UNIX) as half:
        half.settimeout(WAIT_S)
        half.connect(str(path))
        half.sendall(b"PUT /v1/a HTTP/1.0\r\nContent-Length: 9\r\n\r\nhalf")
        half.shutdown(socket.SHUT_WR)
        assert half.recv(1_000).startswith(b"HTTP/1.0 400 ")


@pytest.mark.parametrize("what", ["socket", "folder"])
def test_a_socket_that_is_removed_is_made_again(short_tmp: Path, what: str) -> None:
    with served(short_tmp / "run/toy.sock", look_s=0.05) as path:
        shutil.rmtree(path.parent) if what == "folder" else path.unlink()
        ends_s = time.monotonic() + WAIT_S
        while not path.exists():
            assert time.monotonic() < ends_s
        assert get(path, "/v1/a", timeout_s=WAIT_S) == (200, b'"/v1/a"')
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


def test_where_it_cannot_be_made_again_the_server_tries_on(short_tmp: Path, caplog: pytest.LogCaptureFixture) -> None:
    with served(short_tmp / "run/toy.sock", look_s=0.05) as path, caplog.at_level(logging.WARNING):
        shutil.rmtree(path.parent)
        path.parent.touch()
        ends_s = time.monotonic() + WAIT_S
        while "cannot make" not in caplog.text:
            assert time.monotonic() < ends_s
        path.parent.unlink()
        while not path.exists():
            assert time.monotonic() < ends_s
