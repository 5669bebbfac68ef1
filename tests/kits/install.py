"""What the tests of install.sh need: a bundle whose edgegpu records its calls, a root, a PATH, a host with faults."""

from __future__ import annotations

import base64
import contextlib
import http.server
import re
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from box.webcert import WebCert, make_web_cert

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
VERSION = "1.2.3"
BASENAME = f"edgegpu-{VERSION}-linux-amd64"
TOOLS = (
    "cat",
    "curl",
    "date",
    "df",
    "dirname",
    "flock",
    "grep",
    "gzip",
    "ln",
    "mkdir",
    "mv",
    "readlink",
    "rm",
    "rmdir",
)
MORE_TOOLS = ("openssl", "tr", "sed", "sh", "sha256sum", "sync", "tail", "tar", "uname", "wc", "xz")

EDGEGPU = """#!/bin/sh
# Stands in for edgegpu: writes down how it was called, and makes the link as a real install does.
case $1 in
version) echo "edgegpu $(cat "${0%/bin/*}/VERSION")" ;;
install)
    for word in "$@"; do echo "$word"; done > "$RECORD/words"
    printf '%s' "${EDGEGPU_TOKEN-none}" > "$RECORD/token"
    printf '%s' "${EDGEGPU_JOIN-none}" > "$RECORD/join"
    printf '%s' "${EDGEGPU_PROXY-none}" > "$RECORD/proxy"
    printf '%s' "${EDGEGPU_URL-none}" > "$RECORD/url"
    echo "$EDGEGPU_ROOT"/opt/edgegpu/.*.new > "$RECORD/halves"
    case " $* " in *" --dry-run "*) exit 0 ;; esac
    [ -z "${REFUSE-}" ] || exit "$REFUSE"
    ln -sfn "$(cat "${0%/bin/*}/VERSION")" "$EDGEGPU_ROOT/opt/edgegpu/current"
    ;;
esac
"""


def make_environment(folder: Path, version: str = VERSION, *, build: str = "b" * 64) -> Path:
    """Make an environment that has only what tools/bundle and install.sh look at."""
    (folder / "bin").mkdir(parents=True)
    (folder / "VERSION").write_text(f"{version}\n")
    (folder / "BUILD").write_text(f"{build}\n")
    (folder / "ballast").write_bytes(b"".join(bytes([n % 251, n % 241]) for n in range(40_000)))
    (folder / "sbom.cdx.json").write_text("{}\n")
    (folder / "bin/edgegpu").write_text(EDGEGPU)
    (folder / "bin/edgegpu").chmod(0o755)
    (folder / "bin/link").symlink_to("../ballast")
    (folder / "installer").mkdir()
    for name in ("edgegpu-recover", "edgegpu-recover-lib.sh"):
        shutil.copy(ROOT / "installer" / name, folder / "installer")
    return folder


def make_bundle(out: Path, environment: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run tools/bundle on a ready environment."""
    command = [ROOT / "tools/bundle", out, environment]
    path = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=path | env)


def unpinned(script: str) -> str:
    """Return install.sh as it is before tools/bundle has pinned anything, its functions in it all the same."""
    return re.sub(
        r"^(VERSION|BUILD|SHA256_..|BYTES_..|NEED_KIB|RELEASE_KEYS)='.*'$",
        r"\1='@EDGEGPU_\1@'",
        script,
        flags=re.MULTILINE,
    )


@dataclass
class Sandbox:
    """A root of its own and a PATH whose programs write down each call."""

    base: Path
    shell: Sequence[str] = ("dash",)
    root: Path = field(init=False)
    path: Path = field(init=False)
    record: Path = field(init=False)

    def __post_init__(self) -> None:
        self.root, self.path, self.record = (self.base / name for name in ("root", "path", "record"))
        (self.root / "run/systemd/system").mkdir(parents=True)
        self.path.mkdir()
        self.record.mkdir()
        for name in TOOLS + MORE_TOOLS:
            self.program(name, f'exec {shutil.which(name) or "/bin/" + name} "$@"')
        self.program("id", "echo 0")
        self.program("sleep", "")

    def program(self, name: str, text: str) -> None:
        """Put a program on the PATH, or take another's place."""
        place = self.path / name
        # The call is written down by the shell itself: nothing else is started for it.
        place.write_text(f'#!/bin/sh\necho "{name} $*" >> "{self.record}/calls"\n{text}\n')
        place.chmod(0o755)

    def without(self, *names: str) -> None:
        """Take programs off the PATH."""
        for name in names:
            (self.path / name).unlink()

    def calls(self, of: str = "") -> list[str]:
        """Return the calls of one program, or of all."""
        log = self.record / "calls"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in lines if line.startswith(of)]

    def run(self, script: str, *words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        """Give the script to a shell on standard input, as the one line does."""
        command = [shutil.which(self.shell[0]) or "sh", *self.shell[1:], "-s", "--", *words]
        full = {"PATH": str(self.path), "EDGEGPU_ROOT": str(self.root), "RECORD": str(self.record), **env}
        return subprocess.run(
            command, input=script, capture_output=True, text=True, check=False, env=full, cwd=self.base, timeout=60
        )

    def start(self, script: str, *words: str | Path, stderr: int) -> subprocess.Popen[bytes]:
        """Give the script to a shell in a file, and do not wait; what it complains of goes to a descriptor."""
        file = self.base / "install.sh"
        file.write_text(script)
        command = [shutil.which(self.shell[0]) or "sh", *self.shell[1:], file, *words]
        full = {"PATH": str(self.path), "EDGEGPU_ROOT": str(self.root), "RECORD": str(self.record)}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr, env=full, cwd=self.base)

    def words(self) -> list[str]:
        """Return what edgegpu was called with, `install` first."""
        return (self.record / "words").read_text().splitlines()

    def noted(self, name: str) -> str:
        """Return another thing that edgegpu wrote down: token, url."""
        return (self.record / name).read_text()

    def tree(self) -> dict[str, str]:
        """Return every path of the root with what it is."""
        return {
            str(path.relative_to(self.root)): str(path.readlink()) if path.is_symlink() else oct(path.stat().st_mode)
            for path in self.root.rglob("*")
        }


@dataclass
class Faults:
    """What a host does wrong with an archive, each so many times, and what it was asked for."""

    cut: int = 0
    """Answers that end in the middle."""
    busy: int = 0
    """Answers 503."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Path and Range header of each request."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *args: Any, folder: Path, faults: Faults) -> None:  # noqa: ANN401  (the base class's own)
        self.folder, self.faults = folder, faults
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer with a file, or a part of it."""
        wanted = self.headers.get("Range", "")
        self.faults.asked.append((self.path, wanted))
        path = self.folder / self.path.lstrip("/")
        if self.faults.busy and ".tar." in self.path:
            self.faults.busy -= 1
            self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        elif path.is_file():
            found = re.fullmatch(r"bytes=(\d+)-", wanted)
            self._answer(path.read_bytes(), int(found[1]) if found else 0)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, content: bytes, start: int) -> None:
        body = content[start:]
        self.send_response(HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.faults.cut and ".tar." in self.path:
            self.faults.cut -= 1
            body, self.close_connection = body[: len(body) // 2], True
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Stay quiet."""


@dataclass(frozen=True)
class Host:
    """A running HTTPS host."""

    url: str
    cert: WebCert
    faults: Faults

    @property
    def trusted(self) -> tuple[str, ...]:
        """Return the options that name it and its CA."""
        return ("--url", self.url, "--ca-sha256", self.cert.ca_sha256)


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, *_args: object) -> None:
        """Clients that go away in a handshake are what some tests are about."""


@contextlib.contextmanager
def serve(folder: Path, keys: Path) -> Iterator[Host]:
    """Serve a folder by HTTPS, with a CA of its own that is put there as ca.crt."""
    cert = make_web_cert(keys, "127.0.0.1")
    (folder / "ca.crt").write_text(cert.ca)
    faults = Faults()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert.cert_file, cert.key_file)
    with running(_Server(("127.0.0.1", 0), partial(_Handler, folder=folder, faults=faults))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        yield Host(f"https://127.0.0.1:{server.server_address[1]}", cert, faults)


@contextlib.contextmanager
def running(server: _Server) -> Iterator[_Server]:
    """Answer on a thread until the block ends."""
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    with server:
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Proxy(http.server.BaseHTTPRequestHandler):
    def __init__(self, *args: Any, asked: list[str], wants: str | None) -> None:  # noqa: ANN401  (the base class's own)
        self.asked, self.wants = asked, wants
        super().__init__(*args)

    def do_CONNECT(self) -> None:
        """Pass bytes to and fro until either side ends."""
        self.asked.append(self.path)
        if self.wants is not None and self.headers.get("Proxy-Authorization") != self.wants:
            self.send_error(HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)
            return
        name, _, port = self.path.partition(":")
        with socket.create_connection((name, int(port))) as there:
            self.send_response(HTTPStatus.OK)
            self.end_headers()
            back = threading.Thread(target=_pass, args=(there, self.connection))
            back.start()
            _pass(self.connection, there)
            back.join()
        self.close_connection = True

    def log_message(self, *_args: object) -> None:
        """Stay quiet."""


def _pass(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while some := source.recv(65536):
            target.sendall(some)
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy(*, refuses: bool = False, user: str = "") -> Iterator[tuple[str, list[str]]]:
    """Run an HTTP proxy; yields its address and the hosts that it was asked for. `user`: NAME:PASSWORD, wanted."""
    asked: list[str] = []
    wants = f"Basic {base64.b64encode(user.encode()).decode()}" if user else "nobody" if refuses else None
    with running(_Server(("127.0.0.1", 0), partial(_Proxy, asked=asked, wants=wants))) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
