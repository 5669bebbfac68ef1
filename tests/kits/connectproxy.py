"""Proxies for HTTP CONNECT: a small one of ours with faults on real sockets, and tinyproxy as Debian has it."""

from __future__ import annotations

import base64
import os
import select
import shutil
import socket
import subprocess
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import pytest
from kits.mqtt import wait_for

from edgegpu_sim.ports import answers, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

USER, PASSWORD = "edge", "hunter22:and more"
_PIECE = 65_536


@dataclass
class ConnectProxy:
    """A proxy that tunnels, or answers as a test wants; use it with `with`."""

    answer: Callable[[bytes], bytes | None] = lambda _: None
    """Returns what to send to a request instead of tunnelling; None: tunnel."""
    idle_s: float = 0.0
    """A tunnel in which nothing passes for so long is reset; 0: never."""
    slow_s: float = 0.0
    """The pause between two bytes of an answer."""
    server_port: int = 0
    """The port of this machine to which every tunnel leads, whatever was asked for; 0: where it was asked to."""
    requests: list[bytes] = field(default_factory=list)
    idle_cuts: int = 0

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """End all tunnels."""
        for sock in list(self._open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        with suppress(OSError), closing(client):
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                if not (piece := client.recv(1)):
                    return
                request += piece
            self.requests.append(request)
            answer = self.answer(request)
            if answer is not None:
                self._say(client, answer)
                return
            host, _, port = request.split()[1].decode().rpartition(":")
            place = ("127.0.0.1", self.server_port) if self.server_port else (host, int(port))
            with socket.create_connection(place, 10) as server:
                self._open.add(server)
                self._say(client, b"HTTP/1.1 200 Connection established\r\nVia: 1.1 site\r\n\r\n")
                self._pass(client, server)
        self._open.discard(client)

    def _say(self, client: socket.socket, answer: bytes) -> None:
        if not self.slow_s:
            client.sendall(answer)
        else:
            for at in range(len(answer)):
                client.sendall(answer[at : at + 1])
                if self._stopping.wait(self.slow_s):
                    return
        with suppress(OSError):
            if self.answer(self.requests[-1]) is not None:
                client.shutdown(socket.SHUT_WR)
                client.recv(_PIECE)

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        others = {client: server, server: client}
        heard = time.monotonic()
        while not self._stopping.is_set():
            left_s = min(1.0, self.idle_s - (time.monotonic() - heard)) if self.idle_s else 1.0
            ready, _, _ = select.select(list(others), [], [], max(0.0, left_s))
            if not ready and self.idle_s and time.monotonic() - heard >= self.idle_s:
                self.idle_cuts += 1
                return
            for sock in ready:
                if not (data := sock.recv(_PIECE)):
                    return
                heard = time.monotonic()
                others[sock].sendall(data)


def says(status: str, *headers: str) -> Callable[[bytes], bytes]:
    """Return what answers each request with this status and these headers."""
    head = "\r\n".join([f"HTTP/1.1 {status}", *headers, "Content-Length: 4", "", "body"])
    return lambda _: head.encode()


def signed_in(request: bytes) -> bytes | None:
    """Ask for Basic credentials, and tunnel for those of the tests alone."""
    wanted = base64.b64encode(f"{USER}:{PASSWORD}".encode())
    if b"Proxy-Authorization: Basic " + wanted + b"\r\n" in request:
        return None
    return b'HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm="site"\r\n\r\n'


def need_tinyproxy() -> str:
    """Return the program; without it the test is skipped, in CI it fails."""
    found = shutil.which("tinyproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no tinyproxy: apt-get install tinyproxy-bin")
    return found


@dataclass
class Tinyproxy:
    """A tinyproxy that runs."""

    port: int
    log: Path
    _process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)


@contextmanager
def tinyproxy(folder: Path, *lines: str, port: int = 0) -> Iterator[Tinyproxy]:
    """Yield a tinyproxy with these further lines of configuration."""
    port = port or free_port()
    log, config = folder / "tinyproxy.log", folder / "tinyproxy.conf"
    text = [
        f"Port {port}",
        "Listen 127.0.0.1",
        "Allow 127.0.0.1",
        f'LogFile "{log}"',
        "LogLevel Connect",
        "Timeout 600",
    ]
    config.write_text("\n".join([*text, *lines, ""]))
    process = subprocess.Popen([need_tinyproxy(), "-d", "-c", str(config)], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(port), what="tinyproxy listens")
        yield Tinyproxy(port, log, process)
    finally:
        process.terminate()
        process.wait(30)
