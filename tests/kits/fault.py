"""One box for what goes wrong: the real plugin process over folders of its own, its log read as it is written."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from integration.linkkit import Kubelet
from kits.cert import make_certs

from edgegpu_agent.cli.clients.plugin import fetch_status
from edgegpu_agent.cli.common import CliError
from edgegpu_core.deviceid import core_ids, memory_ids
from edgegpu_sim.api import ApiServer, Registry, ServerSettings, write_kubeconfig
from edgegpu_sim.driver import SimCard, SimDriver, make_card

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")
Json = dict[str, Any]

NODE = "box"
TOKEN = "token-0f9c2d41"  # noqa: S105  (a test's)
MEMORY, CORE = "baidu.com/vcuda-memory", "baidu.com/vcuda-core"
CARD = make_card(0, "Tesla T4", 1024)
UNITS = 4
WAIT_S = 60.0
"""Far more than anything here takes: the machine may be busy with other things."""

STOP_S = 30.0
"""What the process may take for its end before it is said to hang; its unit gives it 10 s."""

_LOOK_S = 0.05
_SAVED = ("uuid", "name", "pci", "minor")
_WITHOUT_DAC = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(24,1);os.execv(sys.executable,[sys.executable]+sys.argv[1:])"
)
"""Root writes everywhere, unless CAP_DAC_OVERRIDE is out of its bounding set (PR_CAPBSET_DROP)."""


class Box:
    """A node's folders, an API server and a kubelet that can be started, and the plugin process."""

    def __init__(self, root: Path, build: Path) -> None:
        self.root = root
        self.build = build
        self.registry = Registry(random_names=random.Random(1))
        self.registry.create("nodes", {"metadata": {"name": NODE}, "status": {"allocatable": {}}})
        self.api = ApiServer(self.registry, ServerSettings(tokens={TOKEN: "plugin"}))
        self.kubeconfig = root / "kubeconfig"
        self.kubelet = Kubelet(root / "k/device-plugins")
        self._kubelet_runs = False
        self.processes: list[Process] = []
        self.config: Json = {
            "version": 1,
            "node_name": NODE,
            "role": "agent",
            "kubelet": {"folder": str(root / "k"), "device_plugins": str(root / "k" / "device-plugins")},
            "kubernetes": {"kubeconfig": str(self.kubeconfig)},
            "driver": {
                "root": str(root / "d"),
                "injection": "cdi",
                "cdi_folder": str(root / "cdi"),
                "poll_s": 0.2,
                "nvml_timeout_s": 5,
            },
            "paths": {"state": str(root / "state"), "run": str(root / "run")},
            "log_level": "debug",
        }

    def start_api(self) -> None:
        self.api.start()
        self.point_to(self.api.url)

    def start_kubelet(self) -> None:
        self.kubelet.start()
        self._kubelet_runs = True

    def point_to(self, url: str) -> None:
        """Write the kubeconfig."""
        write_kubeconfig(self.kubeconfig, url=url, token=TOKEN, user="plugin")

    def driver(self, *cards: SimCard) -> SimDriver:
        """Install the driver, or change its cards."""
        return SimDriver.create(self.root / "d", cards, build=self.build)

    def set(self, section: str, **values: object) -> None:
        self.config[section] = {**self.config.get(section, {}), **values}

    def certificates(self) -> str:
        """Write the extender's files and name them in the configuration; returns what of the key must stay secret."""
        certs = make_certs()
        files = {"cert": certs.server.cert, "key": certs.server.key, "client_ca": certs.ca}
        for name, text in files.items():
            (self.root / name).write_text(text)
        self.set("extender", listen="127.0.0.1:0", tls={name: str(self.root / name) for name in files})
        return certs.server.key.splitlines()[1]

    def save_inventory(self, *cards: SimCard) -> None:
        """Leave the file of an earlier start."""
        entries = [
            {**{key: getattr(card, key) for key in _SAVED}, "index": card.minor, "memory_mib": card.mib}
            for card in cards
        ]
        self.write("state/inventory.json", json.dumps({"version": 1, "cards": entries}))

    def save_checkpoint(self, uid: str, card: SimCard) -> tuple[list[str], list[str]]:
        """Let kubelet's book say that a pod's container has two units and a hundredth; returns the ids."""
        ids = list(memory_ids(card.uuid, 2)), list(core_ids(card.uuid)[:1])
        entries = [
            {"PodUID": uid, "ContainerName": "main", "ResourceName": name, "DeviceIDs": {"-1": some}, "AllocResp": ""}
            for name, some in zip((MEMORY, CORE), ids, strict=True)
        ]
        book = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 0}
        self.write("k/device-plugins/kubelet_internal_checkpoint", json.dumps(book))
        return ids

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def start(self, *, bound: bool = False, **environment: str) -> Process:
        """Start the process; `bound`: permissions of files hold for it, root or not."""
        path = self.write("plugin.yaml", yaml.safe_dump(self.config, sort_keys=False))
        return self.start_with(path, *(["-c", _WITHOUT_DAC] if bound else []), **environment)

    def start_with(self, config: Path, *python: str, **environment: str) -> Process:
        command = [sys.executable, *python, "-m", "edgegpu_plugin", "--config", str(config)]
        self.processes.append(Process(command, self.root / "run/plugin.sock", environment))
        return self.processes[-1]

    def sockets(self) -> list[str]:
        """The names of our sockets."""
        found = [*self.kubelet.folder.rglob("*"), *(self.root / "run").glob("*")]
        return sorted(path.name for path in found if path.is_socket() and path.name != "kubelet.sock")

    def close(self) -> None:
        for process in self.processes:
            process.close()
        if self._kubelet_runs:
            self.kubelet.stop()
        self.api.stop()


class Process:
    """The plugin process; what it logs wakes whoever waits for something."""

    def __init__(self, command: Sequence[str], status: Path, environment: Mapping[str, str]) -> None:
        self._status = status
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        self._popen = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=os.environ | environment
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def log(self) -> str:
        return "".join(self._lines)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def catches(self, number: signal.Signals) -> bool:
        """Whether the process has come so far that it minds a signal."""
        try:
            text = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return True
        mask = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")), "0")
        return bool(int(mask, 16) >> (number - 1) & 1)

    def until(self, look: Callable[[], T], what: str = "it") -> T:
        """Look at each line of the log, and now and then, until there is something true."""
        deadline = time.monotonic() + WAIT_S
        with self._changed:
            while not (found := look()):
                assert not self._ended, f"it ended before {what}:\n{self.log}"
                assert time.monotonic() < deadline, f"no {what} in time:\n{self.log}"
                self._changed.wait(_LOOK_S)
        return found

    def says(self, words: str, *, times: int = 1) -> None:
        """Wait until the log has these words."""
        self.until(lambda: self.log.count(words) >= times, f"line with {words!r}")

    def status(self) -> Json:
        """The status document; empty while nobody answers."""
        with contextlib.suppress(CliError):
            return dict(fetch_status(self._status, timeout_s=WAIT_S).raw)
        return {}

    def shows(self, **parts: Mapping[str, object]) -> Json:
        """Wait until the status has these values in its sections."""
        seen: Json = {}

        def look() -> bool:
            seen.update(self.status())
            return bool(seen) and all(
                seen.get(name, {}).get(key) == value for name, part in parts.items() for key, value in part.items()
            )

        self.until(look, f"{parts} in the status")
        return seen

    def cards(self, healthy: list[bool]) -> None:
        """Wait until the status has cards of this health."""
        self.until(lambda: [card["healthy"] for card in self.status().get("cards", ())] == healthy, f"cards {healthy}")

    def ends(self, timeout_s: float = WAIT_S) -> int:
        """Wait for the end; returns the exit status."""
        status = self._popen.wait(timeout_s)
        self._reader.join(WAIT_S)
        return status

    def stop(self) -> None:
        """Stop it as systemd does, in time and without complaints."""
        self.signal(signal.SIGTERM)
        try:
            assert self.ends(STOP_S) == 0, self.log
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there {STOP_S:g} s after TERM:\n{self.log}") from None

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def close(self) -> None:
        """Kill it where it is still there; whatever happened, no log holds a secret or a traceback."""
        self._popen.kill()
        self.ends()
        assert self._popen.stderr is not None
        self._popen.stderr.close()
        assert TOKEN not in self.log
        assert "Traceback" not in self.log, self.log

    def _read(self) -> None:
        assert self._popen.stderr is not None
        for line in self._popen.stderr:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Manager:
    """systemd's end of NOTIFY_SOCKET."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.settimeout(WAIT_S)

    def hears(self) -> str:
        return self._socket.recv(4096).decode()

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def mute_server() -> Iterator[str]:
    """Yield the URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
