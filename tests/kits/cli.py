"""What the command line's tests share: a status document, the plugin's own server for it, and a run of `edgegpu`."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import StreamRequestHandler, UnixStreamServer
from typing import TYPE_CHECKING, Any

from typer.main import get_command
from typer.testing import CliRunner

from edgegpu_agent.cli.tree import app
from edgegpu_base.cli.lazy_commands import LazyCommand
from edgegpu_plugin.status import StatusServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import typer

    from edgegpu_base.http_unix import ChangeRequest, Response

CARD_0 = "GPU-11111111-1111-1111-1111-111111111111"
CARD_1 = "GPU-22222222-2222-2222-2222-222222222222"
LABELS = {CARD_0: "0", CARD_1: "1"}


def card(uuid: str = CARD_0, *, units: int = 29, free: int = 29, **more: object) -> dict[str, Any]:
    base = {"index": LABELS[uuid], "uuid": uuid, "name": "Tesla P4", "units": units, "units_free": free}
    return {**base, "core_free": 100, "healthy": True, **more}


def pod(name: str, units: int, *cards: str, **more: object) -> dict[str, Any]:
    return {
        "namespace": "baetyl-edge",
        "pod": name,
        "uid": f"uid-{name}",
        "container": "main",
        "memory_units": units,
        "core": 1,
        "cards": [{"index": LABELS[uuid], "uuid": uuid} for uuid in cards],
        "phase": "Running",
        "state": "allocated",
        "reason": "",
        **more,
    }


def document(**more: object) -> dict[str, Any]:
    return {
        "v": 1,
        "version": "0.1.0",
        "node": "box-1",
        "role": "server",
        "policy": "first-fit",
        "unit_mib": 256,
        "resources": {"memory": "baidu.com/vcuda-memory", "core": "baidu.com/vcuda-core"},
        "injection": {"mode": "cdi", "why": "containerd reads /var/run/cdi"},
        "driver": {"version": "560.35.03", "problem": ""},
        "kubelet": {"registered": True, "registered_ms": 12.3, "waiting_for": ""},
        "api": {"synced": True, "problem": ""},
        "extender": {"listen": "127.0.0.1:8787", "healthy": True, "insecure": False},
        "cards": [card(CARD_0, free=9, core_free=99), card(CARD_1, free=9, core_free=99)],
        "pods": [pod("face", 20, CARD_0), pod("plate", 20, CARD_1)],
        "report_generation": 12,
        **more,
    }


@contextmanager
def plugin(
    folder: Path, answer: dict[str, Any], *, change: Callable[[ChangeRequest], Response] | None = None
) -> Iterator[Path]:
    """Serve a document as the plugin does, and what answers requests; the socket's path comes out."""
    server = StatusServer(folder, lambda: answer, change=change)
    server.open()
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield folder / "plugin.sock"
    finally:
        server.stop()
        thread.join(30)


@contextmanager
def raw_server(path: Path, answer: bytes | None) -> Iterator[Path]:
    """Answer every connection with these bytes; with None, with nothing for as long as it lasts."""
    ended = threading.Event()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            self.rfile.readline()
            if answer is None:
                ended.wait(30)
            else:
                self.wfile.write(answer)

    with UnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield path
        ended.set()
        server.shutdown()
        thread.join(30)


def http(body: str, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


def edgegpu(*args: str | Path, env: dict[str, str] | None = None) -> Done:
    """Run the command in this process, with no terminal."""
    clean: dict[str, str | None] = dict.fromkeys(("COLUMNS", "FORCE_COLOR", "NO_COLOR"))
    done = CliRunner().invoke(app, list(map(str, args)), prog_name="edgegpu", env={**clean, **(env or {})})
    return Done(done.exit_code, done.stdout, done.stderr)


def edgegpu_process(*args: str | Path, timeout_s: float = 60) -> Done:
    """Run the command as a process of its own."""
    command = [sys.executable, "-m", "edgegpu_agent.cli.app", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    return Done(done.returncode, done.stdout, done.stderr)


def commands(app: typer.Typer) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command below a command line's tree, groups among them, the tree itself first."""
    yield from _below(get_command(app))


def _below(command: object, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    for name, one in subcommands(command).items():
        yield from _below(one, *words, name)


def subcommands(command: object) -> dict[str, Any]:
    """Return the commands of a group by name, whether they are imported late or not; of a command none."""
    found: dict[str, Any] = getattr(command, "commands", {})
    return {name: loaded(one) for name, one in found.items()}


def loaded(command: Any) -> Any:  # noqa: ANN401  (typer keeps the common class of commands and groups to itself)
    """Return a command that is imported when it is used, or the command as it is."""
    return command.loaded() if isinstance(command, LazyCommand) else command
