"""The k3s of a box: its unit, configuration, version and health."""

import ipaddress
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

import yaml

from edgegpu_installer.layout import (
    K3S_CONFIG,
    K3S_DATA,
    K3S_DROP_IN,
    KUBELET,
    SCHEDULER_YAML,
    START_LINK,
    Layout,
)
from edgegpu_installer.machine import k3s_config
from edgegpu_installer.machine.atomic import FileLocation, read_location
from edgegpu_installer.machine.config_block import holds_block, strip
from edgegpu_installer.machine.k3s_config import SCHEDULER_ARG, CommandLine, ConfigFile, ConfigValue, EffectiveConfig
from edgegpu_installer.machine.node import Kubectl
from edgegpu_installer.machine.programs import SYSTEM_PATH, run
from edgegpu_installer.machine.systemd import UnitState, show_command
from edgegpu_installer.machine.unit_files import KubeUnit

_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)\S*")
_FIRST_WITH_FOLDER, _FIRST_WITH_PLUS = (1, 21, 0), (1, 21, 1)
"""The first k3s that reads drop-ins (k3s-io/k3s 3162), and the first with `+` in them (k3s-io/k3s 3229)."""


RESOLV_CONF = "resolv-conf"
"""The flag of k3s, and kubelet's as well."""

_CHOICES = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
_NAMESERVER = re.compile(r"^nameserver\s+(\S*)", re.MULTILINE)
_METADATA_SERVICE = ipaddress.ip_address("169.254.169.254")
"""The metadata service of clouds: k3s takes its address for a nameserver's, although it is link-local."""
_BROADCAST = ipaddress.ip_address("255.255.255.255")
_SETTING = "resolvConf"
"""The name of kubelet's setting in a file."""
_OF_K3S = "00-k3s-defaults.conf"
"""The file of kubelet's settings that k3s writes at its start (1.32 and newer)."""


@dataclass(frozen=True, slots=True)
class K3sHealth:
    """The health of k3s. `ready`: what its API server's /readyz says; None when it was not asked (an agent node)."""

    active: bool
    restarts: int
    up_s: float
    """For how many seconds this invocation has been up; 0 when it is not up."""
    invocation: str
    ready: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class PodResolvConf:
    """The resolv.conf of a node's kubelet, without edgegpu's line in k3s's configuration."""

    choice: str = ""
    """The file that k3s chooses by itself; empty where it would write one of its own."""
    operator: tuple[ConfigValue, ...] = ()
    """What an operator has set, each with its source."""
    link_to: str = ""
    """Where edgegpu's link leads now; empty without it."""


@dataclass(frozen=True, slots=True)
class K3s:
    """The k3s of a box; paths are those on the box."""

    unit: KubeUnit
    config: str
    """The file that k3s reads first."""
    files: tuple[ConfigFile, ...]
    """That file and its drop-ins, those that exist, in k3s's order."""
    version: str
    """The version, such as `v1.33.13+k3s1`; empty when it is not known."""
    health: K3sHealth
    place: FileLocation = field(default_factory=FileLocation)
    """The location of the file that k3s reads first."""
    resolv_conf: PodResolvConf = field(default_factory=PodResolvConf)
    """The resolv.conf that kubelet gets for pods."""

    @property
    def line(self) -> CommandLine:
        """The command line of k3s."""
        return k3s_config.command_line(self.unit.words)

    @property
    def is_server(self) -> bool:
        """Whether this k3s is a server."""
        return self.line.role == "server"

    @property
    def has_kubelet(self) -> bool:
        """Whether this k3s runs a kubelet; a server with `--disable-agent` does not."""
        return not (self.is_server and self.effective().on("disable-agent"))

    @property
    def minor(self) -> int | None:
        """The minor version, 33 for 1.33; None when it is not known."""
        found = _VERSION.match(self.version)
        return None if found is None else int(found[2])

    @property
    def takes_drop_in(self) -> bool:
        """Whether a drop-in can add an argument for the scheduler; else our lines are in `config`."""
        return self._is_from(_FIRST_WITH_PLUS)

    def _is_from(self, release: tuple[int, int, int]) -> bool:
        """Return whether this k3s is of a release or newer; an unknown version counts as new."""
        found = _VERSION.match(self.version)
        return found is None or (int(found[1]), int(found[2]), int(found[3])) >= release

    @property
    def folder(self) -> str:
        """The folder of k3s's configuration, in which our scheduler file is."""
        return str(PurePosixPath(self.config).parent)

    @property
    def drop_in(self) -> str:
        """The path of our drop-in of k3s's configuration."""
        return f"{self.config}.d/{K3S_DROP_IN}"

    @property
    def has_block(self) -> bool:
        """Whether our lines are in the file that k3s reads first."""
        return any(holds_block(file.text or "") for file in self.files if file.path == self.config)

    @property
    def named_in(self) -> str:
        """The path of the file that names our scheduler configuration to k3s."""
        return self.drop_in if self.takes_drop_in else self.config

    @property
    def scheduler_file(self) -> str:
        """The path of our scheduler configuration."""
        return f"{self.folder}/{SCHEDULER_YAML}"

    def effective(self, *, without_ours: bool = False) -> EffectiveConfig:
        """Return k3s's flags in effect, or those that would be without our drop-in and our lines."""
        files = self.files
        if not self._is_from(_FIRST_WITH_FOLDER):
            files = tuple(file for file in files if file.path == self.config)
        if without_ours:
            files = tuple(replace(file, text=file.text and strip(file.text)) for file in files)
        ours = self.drop_in if without_ours else ""
        return k3s_config.effective(self.line, self.unit.environment, files, without=ours)

    @property
    def data(self) -> str:
        """The data folder of k3s."""
        return self.effective().last("data-dir", K3S_DATA).rstrip("/")

    @property
    def scheduler_kubeconfig(self) -> str:
        """The path of the scheduler's kubeconfig."""
        return f"{self.data}/server/cred/scheduler.kubeconfig"

    @property
    def admin_kubeconfig(self) -> str:
        """The path of the administrator's kubeconfig on a server, of kubelet's on an agent node."""
        return f"{self.data}/server/cred/admin.kubeconfig" if self.is_server else self.kubelet_kubeconfig

    @property
    def kubelet_kubeconfig(self) -> str:
        """The path of kubelet's kubeconfig."""
        return f"{self.data}/agent/kubelet.kubeconfig"

    @property
    def containerd_config(self) -> str:
        """The path of the configuration that k3s's containerd reads."""
        return f"{self.data}/agent/etc/containerd/config.toml"

    @property
    def containerd_program(self) -> str:
        """The path of the containerd that k3s unpacks and starts."""
        return f"{self.data}/data/current/bin/containerd"

    @property
    def endpoint(self) -> str:
        """The socket of a container runtime that k3s does not start itself; empty when it runs its own containerd."""
        return self.effective().last("container-runtime-endpoint")

    @property
    def kubelet_folder(self) -> str:
        """Kubelet's folder, which `--kubelet-arg=root-dir=` may move."""
        return self.kubelet_flag("root-dir").rstrip("/") or KUBELET

    def kubelet_flag(self, name: str) -> str:
        """Return the value that k3s's configuration gives a flag of kubelet's; empty when it gives none."""
        pairs = (value.text.lstrip("-").partition("=") for value in self.effective().values("kubelet-arg"))
        return ([value for flag, _, value in pairs if flag == name] or [""])[-1]

    @property
    def foreign_scheduler_files(self) -> tuple[ConfigValue, ...]:
        """The scheduler configurations that k3s would use without edgegpu."""
        return k3s_config.scheduler_file(self.effective(without_ours=True).values(SCHEDULER_ARG))

    @property
    def scheduler_flags(self) -> dict[str, str]:
        """The scheduler's flags from k3s's configuration without edgegpu; k3s takes them with and without dashes."""
        given = (value.text.removeprefix("--") for value in self.effective(without_ours=True).values(SCHEDULER_ARG))
        return {name: value if sign else "true" for name, sign, value in (word.partition("=") for word in given)}

    @property
    def drop_in_text(self) -> str:
        """The text of our drop-in: one argument more, or the whole list when the scheduler has a file already."""
        foreign = self.foreign_scheduler_files
        before = self.effective(without_ours=True).values(SCHEDULER_ARG)
        return k3s_config.render_drop_in(self.scheduler_file, foreign[-1].text if foreign else "", before)


def read_k3s(
    layout: Layout,
    units: list[KubeUnit],
    *,
    path: str = SYSTEM_PATH,
    timeout_s: float = 10.0,
    clock: Callable[[], float] = time.monotonic,
) -> K3s | None:
    """Return the k3s of a box: of several units the running, else the enabled, else the first one; None without k3s."""
    if not units:
        return None
    states = {unit.name: _state(unit.name, path, timeout_s) for unit in units}
    running = [unit for unit in units if states[unit.name].active in {"active", "activating"}]
    enabled = [unit for unit in units if states[unit.name].enabled == "enabled"]
    unit = (running or enabled or units)[0]
    line = k3s_config.command_line(unit.words)
    config = k3s_config.config_path(line, unit.environment, K3S_CONFIG)
    program = str(layout.at(unit.program))
    told = run((program, "--version"), timeout_s=timeout_s, path=path)
    version = _VERSION.search(told.out)
    files, place = tuple(_files(layout, config)), read_location(layout, config)
    k3s = K3s(unit, config, files, version[0] if version else "", _HEALTHLESS, place)
    health = _health(k3s, states[unit.name], layout, path=path, timeout_s=timeout_s, now_s=clock())
    return replace(k3s, health=health, resolv_conf=_resolv_conf(layout, k3s))


_HEALTHLESS = K3sHealth(active=False, restarts=0, up_s=0.0, invocation="", ready=None)


def kubectl_of(k3s: K3s, layout: Layout, *, path: str = SYSTEM_PATH, timeout_s: float = 10.0) -> Kubectl:
    """Return the kubectl of a k3s, with the kubeconfig that the box has."""
    return Kubectl((str(layout.at(k3s.unit.program)), "kubectl"), str(layout.at(k3s.admin_kubeconfig)), path, timeout_s)


def _health(k3s: K3s, state: UnitState, layout: Layout, *, path: str, timeout_s: float, now_s: float) -> K3sHealth:
    ready, why = None, "" if state.is_active else f"{k3s.unit.name} is {state.active or 'not known to systemd'}"
    if state.is_active and k3s.is_server:
        asked = kubectl_of(k3s, layout, path=path, timeout_s=timeout_s)("get", "--raw", "/readyz")
        ready, why = asked.well, asked.why
    return K3sHealth(
        active=state.is_active,
        restarts=state.restarts,
        up_s=max(0.0, now_s - state.up_since_s) if state.is_active and state.up_since_s else 0.0,
        invocation=state.invocation,
        ready=ready,
        why=why,
    )


def _state(unit: str, path: str, timeout_s: float) -> UnitState:
    return UnitState.parse(unit, run(show_command(f"{unit}.service"), timeout_s=timeout_s, path=path).out)


def _files(layout: Layout, config: str) -> Iterator[ConfigFile]:
    if layout.at(config).exists():
        yield _file(layout, config)
    folder = layout.at(f"{config}.d")
    names = sorted(path.name for path in folder.glob("*") if k3s_config.is_drop_in(path.name) and not path.is_dir())
    for name in names:
        yield _file(layout, f"{config}.d/{name}")


def _file(layout: Layout, path: str) -> ConfigFile:
    try:
        return ConfigFile(path, layout.at(path).read_bytes().decode())
    except UnicodeDecodeError:
        return ConfigFile(path, None, "it is not text")
    except OSError as error:
        return ConfigFile(path, None, error.strerror or "it cannot be read")


def _resolv_conf(layout: Layout, k3s: K3s) -> PodResolvConf:
    """Return which resolv.conf k3s gives kubelet; files that cannot be read are left out.

    Source: k3s, `pkg/agent/config/config.go` (`locateOrGenerateResolvConf`, `isValidNameserver`): the first of two
    files whose nameservers all are of use in a pod. Where neither fits k3s writes a file that names 8.8.8.8. What
    kubelet itself is told, by `--kubelet-arg` or a file of its settings, counts more than what k3s tells it.
    """
    fitting = (path for path in _CHOICES if fits_pods(_text(layout, path)))
    link = layout.at(START_LINK)
    return PodResolvConf(
        choice=next(fitting, ""),
        operator=tuple(_operators(layout, k3s)),
        link_to=str(link.readlink()) if link.is_symlink() else "",
    )


def fits_pods(text: str) -> bool:
    """Return whether k3s takes a resolv.conf for pods: it has a nameserver, and each is one that a pod reaches."""
    servers = _NAMESERVER.findall(text)
    return bool(servers) and all(_is_reached(server) for server in servers)


def _is_reached(server: str) -> bool:
    """Return what Go's IsGlobalUnicast says, or whether it is the metadata service."""
    try:
        address = ipaddress.ip_address(server)
    except ValueError:
        return False
    inner = getattr(address, "ipv4_mapped", None) or address
    special = inner.is_unspecified or inner.is_loopback or inner.is_multicast or inner.is_link_local
    return inner == _METADATA_SERVICE or not (special or inner == _BROADCAST)


def _operators(layout: Layout, k3s: K3s) -> Iterator[ConfigValue]:
    flags = k3s.effective(without_ours=True)
    yield from flags.values(RESOLV_CONF)
    files = []
    for value in flags.values("kubelet-arg"):
        name, _, text = value.text.lstrip("-").partition("=")
        if name == RESOLV_CONF:
            yield ConfigValue(text, value.source)
        elif name == "config":
            files.append(text)
        elif name == "config-dir":
            files += _settings_files(layout, text)
    for path in dict.fromkeys([*files, *_settings_files(layout, f"{k3s.data}/agent/etc/kubelet.conf.d")]):
        if text := _setting(_text(layout, path)):
            yield ConfigValue(text, path)


def _settings_files(layout: Layout, folder: str) -> list[str]:
    """Return the files of kubelet's settings below a folder, without the one that k3s writes."""
    found = sorted(layout.at(folder).glob("**/*.conf"))
    return [f"/{path.relative_to(layout.root)}" for path in found if path.name != _OF_K3S]


def _setting(text: str) -> str:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return ""
    return str(document.get(_SETTING) or "") if isinstance(document, dict) else ""


def _text(layout: Layout, path: str) -> str:
    return (layout.read(path) or b"").decode(errors="replace")
