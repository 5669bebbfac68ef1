"""A box: its folder, its programs, its plugin's answers, its agent; and the ledger of what it really did."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.kept import Kept
from kits.agentyaml import written

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
DISK_MIB = 40
"""The journal takes some 16 MiB of it."""

_UNITS = ("k3s.service", "edgegpu-plugin.service")
_STATUS = {
    "version": "0",
    "unit_mib": 256,
    "cards": [{"uuid": "GPU-7d2f0c1e-3a44-4b6e-9d55-0a1b2c3d4e5f", "healthy": True}],
    "pods": [],
    "driver": {"version": "580.65.06", "problem": ""},
}


class _Plugin(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(_STATUS).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "box"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Who hangs up in the middle is meant."""


def programs(folder: Path) -> Path:
    """Make the folder of programs that boxes have on the PATH."""
    folder.mkdir()
    for name in ("systemctl", "journalctl", "nvidia-smi"):
        shutil.copy(HERE / "standins" / name, folder / name)
    text = (HERE / "standins/edgegpu.py").read_text()
    (folder / "edgegpu").write_text(f"#!{sys.executable}\n{text}")
    (folder / "edgegpu").chmod(0o755)
    return folder


@dataclass(slots=True, kw_only=True)
class Machine:
    """`folder` is its `/`, `ledger` lies outside; `disk` says why its disk is not one that can be filled."""

    name: str
    folder: Path
    ledger: Path
    agent: Kept
    disk: str = "it is not its own"
    device: str = ""
    _server: _Server = field(init=False)

    def serve(self) -> None:
        """Answer as the plugin does."""
        socket = self.folder / "run/edgegpu/plugin.sock"
        self._server = _Server(str(socket), _Plugin)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.agent.stop()
        self._server.shutdown()
        self._server.server_close()
        if not self.disk:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)

    def lines(self, name: str) -> list[list[str]]:
        """Return the lines of one of its ledgers, each in words; the first is when, in 1/100 s since the boot."""
        path = self.ledger / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def size(self) -> int:
        """Return how much its restarts and changes have written."""
        return sum(path.stat().st_size for path in self.ledger.iterdir())

    def fill_disk(self) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as file:
            try:
                while file.write(bytes(65_536)):
                    pass
            except OSError:
                return

    def free_disk(self) -> None:
        (self.folder / "filler").unlink(missing_ok=True)

    def installer(self) -> int | None:
        """Return the process that holds the installer's lock."""
        try:
            pid = int((self.folder / "run/edgegpu-tx.lock").read_text())
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if b"--transaction-id" in words else None


def make(name: str, place: Path, *, bin_: Path, launcher: Sequence[str], own_disk: bool) -> Machine:
    """Make a box that has sharing installed, and belongs to no cloud yet; its agent is not started.

    Args:
        name: of the box.
        place: the folder in which its folders are made.
        bin_: what `programs` made.
        launcher: the agent's command line, without its options.
        own_disk: a file system of its own, which can be filled.
    """
    folder, ledger = place / name, place / f"{name}.ledger"
    folder.mkdir()
    ledger.mkdir()
    disk = _mounted(folder) if own_disk else "it is not its own"
    units = folder / "etc/systemd/system"
    for path in (units, folder / "run/edgegpu", folder / "etc/edgegpu", folder / "var/lib/edgegpu"):
        path.mkdir(parents=True)
    (folder / "proc").symlink_to("/proc")
    (folder / "etc/machine-id").write_text(os.urandom(16).hex())
    (units / _UNITS[1]).touch()
    for unit in _UNITS:
        (ledger / unit).write_text("0 boot\n")
    (ledger / "changes").write_text("0 boot sharing on\n")
    env = {
        **os.environ,
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "CHAOS_ROOT": str(folder),
        "CHAOS_LEDGER": str(ledger),
        "CHAOS_UNITS": str(units),
    }
    command = (*launcher, "--root", str(folder), "--edgegpu", str(bin_ / "edgegpu"))
    return Machine(
        name=name,
        folder=folder,
        ledger=ledger,
        agent=Kept(name=name, command=command, log=place / f"{name}.log", env=env),
        disk=disk,
    )


def _mounted(folder: Path) -> str:
    if os.geteuid() != 0:
        return "only root can mount one"
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,nr_inodes=4096", "chaos", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip() or "it cannot be mounted"


def belongs(machine: Machine, *, url: str, ca_sha256: str, token: str) -> None:
    """Write what an install line writes."""
    etc = machine.folder / "etc/edgegpu"
    (etc / "agent.yaml").write_text(written(url, ca_sha256))
    (etc / "cloud-token").write_text(token)
