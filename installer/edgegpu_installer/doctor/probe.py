"""The checks' access to a box: its files below a root, its programs, and the answers of what runs on it."""

import datetime as dt
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from edgegpu_core.injection import ContainerdSupport
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import CURRENT, PLUGIN_UNIT, PLUGIN_YAML, UNITS, Layout
from edgegpu_installer.machine.facts import MachineFacts, read_facts
from edgegpu_installer.machine.k3s import K3s
from edgegpu_installer.machine.programs import ProgramResult, run
from edgegpu_installer.transaction import baseline

_T = TypeVar("_T")
_MOST_TEXT = 8 * 1024 * 1024


class ProbeError(Exception):
    """Something could not be read or asked; the text is "cannot x: cause"."""

    def __init__(self, text: str, *, remedy: str) -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy


class SkippedCheck(Exception):  # noqa: N818  (the name says what happened)
    """A check cannot be made because of another problem, which the check `reported_by` reports."""

    def __init__(self, shut: ProbeError, reported_by: str) -> None:
        super().__init__(shut.text)
        self.shut = shut
        self.reported_by = reported_by


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The plugin's configuration; where it cannot be read, the defaults and the `problem`."""

    problem: str
    node: str
    has_plugin: bool
    has_extender: bool
    memory_resource: str
    core_resource: str
    exclude: tuple[str, ...]
    kubelet_folder: Path
    kubeconfig: Path
    driver_root: Path
    library_folders: tuple[str, ...]
    """Where the driver's libraries may be, relative to its root."""
    cdi_file: Path
    listen: str
    insecure: bool
    tls: tuple[Path, ...]
    """The extender's certificates; empty when it runs without TLS."""
    kubelet_resolv_conf: Path | None = None
    """The link at which kubelet is to wait at its start; None where plugin.yaml names none."""


@dataclass(frozen=True, slots=True)
class ApiReply:
    """An answer of the API server; `date` is the time of its clock."""

    status: int
    body: Mapping[str, Any]
    date: dt.datetime | None


@dataclass(frozen=True, slots=True)
class FileSystemSpace:
    """The free space of a file system, in bytes and as shares of 1."""

    free_bytes: int
    free_share: float
    free_inodes_share: float
    read_only: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudProbe:
    """What agent.yaml, the identity and the agent say about this box and its cloud."""

    url: str
    ca_sha256: str
    problem: str
    """What is wrong with agent.yaml."""
    standing: Mapping[str, Any]
    """The state of the box's identity as the agent writes it; empty when there is none."""
    agent: Mapping[str, Any] | None
    """The agent's answer; None when there is none."""
    silence: str
    """Why the agent does not answer."""
    broker: str
    """The broker's address, HOST:PORT; empty before the enrolment."""
    proxy: bool = False
    """Whether agent.yaml names a proxy."""


class Api(Protocol):
    """A client of the API server with edgegpu's own kubeconfig."""

    server: str

    def get(self, path: str) -> ApiReply:
        """Return the answer to GET. Raises ProbeError when there is no answer; a refusal is an answer."""

    def post(self, path: str, body: Mapping[str, Any]) -> ApiReply:
        """Return the answer to POST. Raises ProbeError when there is no answer; a refusal is an answer."""


class DoctorClients(Protocol):
    """The clients that the doctor asks through; code that may import the plugin's implements them."""

    def settings(self) -> PluginSettings:
        """Return the settings of plugin.yaml."""

    def status(self) -> Mapping[str, Any]:
        """Return the running plugin's status document. Raises ProbeError."""

    def containerd(self, usual: str) -> ContainerdSupport | None:
        """Return what containerd's configuration says, None when there is none; `usual` is the path that k3s writes.

        Raises:
            ProbeError: the configuration cannot be read.
        """

    def api(self) -> Api:
        """Return a client for the API server. Raises ProbeError when the kubeconfig cannot be used."""

    def cloud(self) -> CloudProbe | None:
        """Return the state of this box and its cloud; None when the box belongs to no cloud."""

    def reach_cloud(self) -> None:
        """Call the cloud's HTTPS. Raises ProbeError when it cannot be reached or not be trusted."""


class BoxProbe:
    """A box in one run of the doctor; every answer is kept, failures too, so that nothing is asked twice."""

    def __init__(
        self,
        *,
        root: Path,
        clients: DoctorClients,
        path: str,
        now: Callable[[], dt.datetime],
        space: Callable[[Path], FileSystemSpace] | None = None,
    ) -> None:
        """Probe the box whose `/` is at `root`; `clients` are the clients, `path` is the PATH for its programs."""
        self.layout = Layout(root)
        self.now = now
        self.space = space or _space
        self._clients = clients
        self._path = path
        self._known: dict[str, object] = {}

    @property
    def installed(self) -> bool:
        """Whether edgegpu is installed with sharing, even if the install is broken."""
        there = any(self.at(path).exists() for path in (f"{UNITS}/{PLUGIN_UNIT}", PLUGIN_YAML, CURRENT))
        return there and not self._withdrawn()

    def _withdrawn(self) -> bool:
        """Return whether sharing was taken off while the agent stayed."""
        try:
            return baseline.withdrawn(self.layout)
        except InstallError:
            return False

    @property
    def settings(self) -> PluginSettings:
        """The plugin's settings."""
        return self._cached("settings", "plugin", self._clients.settings)

    @property
    def status(self) -> Mapping[str, Any]:
        """The running plugin's status document. Raises SkippedCheck."""
        return self._cached("status", "plugin", self._clients.status)

    @property
    def known_status(self) -> Mapping[str, Any]:
        """The plugin's status document; empty when the plugin does not answer, which the check `plugin` reports."""
        try:
            return self.status
        except SkippedCheck:
            return {}

    @property
    def facts(self) -> MachineFacts:
        """The facts that the installer reads before it changes anything."""
        return self._cached("facts", "k3s", self._read_facts)

    @property
    def k3s(self) -> K3s | None:
        """The k3s of this machine; None when there is none."""
        return self.facts.k3s

    def _read_facts(self) -> MachineFacts:
        settings = self.settings
        return read_facts(self.layout, driver_root=str(settings.driver_root), node_name=settings.node, path=self._path)

    @property
    def containerd(self) -> ContainerdSupport | None:
        """What containerd says, running or by its files. Raises SkippedCheck."""
        usual = self.facts.runtime.config
        return self._cached("containerd", "runtime", lambda: self._clients.containerd(usual))

    @property
    def api(self) -> Api:
        """The client of the API server. Raises SkippedCheck."""
        return self._cached("api", "kubeconfig", self._clients.api)

    @property
    def cloud(self) -> CloudProbe | None:
        """The state of this box and its cloud; None when the box belongs to no cloud."""
        return self._cached("cloud", "cloud", self._clients.cloud)

    def reach_cloud(self) -> None:
        """Call the cloud's HTTPS. Raises ProbeError."""
        self._clients.reach_cloud()

    def object(self, path: str) -> ApiReply:
        """Return the API server's answer for a path. Raises SkippedCheck."""
        return self._cached(f"GET {path}", "kubeconfig", partial(self.api.get, path))

    @property
    def node(self) -> Mapping[str, Any]:
        """This machine's Node object. Raises SkippedCheck."""
        return self._cached("node", "kubeconfig", self._node)

    def _node(self) -> Mapping[str, Any]:
        name = self.settings.node
        reply = self.object(f"/api/v1/nodes/{name}")
        if reply.status != 200:  # noqa: PLR2004  (HTTP's OK)
            raise ProbeError(
                f"cannot read the node {name}: the API server answers {reply.status} {reply.body.get('message', '')}",
                remedy=f"compare node_name in {PLUGIN_YAML} with `k3s kubectl get nodes`",
            )
        return reply.body

    def at(self, path: str | Path) -> Path:
        """Return the path by which this process reaches a path of the box."""
        return self.layout.at(path)

    def text(self, path: str | Path) -> str | None:
        """Return a file's text, None when there is no file. Raises OSError when it cannot be read."""
        try:
            with self.at(path).open(encoding="utf-8", errors="replace") as file:
                return file.read(_MOST_TEXT)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def names(self, folder: str | Path) -> list[str]:
        """Return the sorted names in a folder; an empty list when there is no folder."""
        try:
            return sorted(os.listdir(self.at(folder)))  # noqa: PTH208  (names are what is wanted)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def devices(self, folder: Path, pattern: str) -> list[Path]:
        """Return the character devices in a folder that match a glob pattern."""
        return sorted(path for path in self.at(folder).glob(pattern) if _is_character(path))

    def run(self, *command: str, timeout_s: float = 10.0, libraries: str = "") -> ProgramResult:
        """Run a program of the box, with `libraries` as LD_LIBRARY_PATH; the same command runs once."""
        environment = {**os.environ, **({"LD_LIBRARY_PATH": libraries} if libraries else {})}
        return self._cached(
            f"run {' '.join(command)}",
            "",
            lambda: run(command, path=self._path, timeout_s=timeout_s, environment=environment),
        )

    def _cached(self, key: str, reported_by: str, ask: Callable[[], _T]) -> _T:
        if key not in self._known:
            try:
                self._known[key] = ask()
            except ProbeError as shut:
                self._known[key] = SkippedCheck(shut, reported_by)
            except SkippedCheck as unseen:
                self._known[key] = unseen
        found = self._known[key]
        if isinstance(found, SkippedCheck):
            raise SkippedCheck(found.shut, found.reported_by)
        return cast("_T", found)


def _is_character(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def _space(path: Path) -> FileSystemSpace:
    found = os.statvfs(path)
    return FileSystemSpace(
        free_bytes=found.f_bavail * found.f_frsize,
        free_share=found.f_bavail / max(1, found.f_blocks),
        free_inodes_share=found.f_favail / found.f_files if found.f_files else 1.0,
        read_only=bool(found.f_flag & os.ST_RDONLY),
    )
