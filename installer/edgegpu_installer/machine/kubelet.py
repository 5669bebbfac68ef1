"""A kubelet of its own, as on nodes of kubeadm's: its flags and its files, as its process, its unit and its files say.

The command line of the running process counts first. Without one the unit's counts, with the files of variables that it
names; without a unit those files themselves, in the order in which kubeadm's unit reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from edgegpu_installer.layout import KUBELET, Layout
from edgegpu_installer.machine.programs import SYSTEM_PATH, run
from edgegpu_installer.machine.unit_files import environment_file, unit_command
from edgegpu_installer.scheduler.manifest import flags_of

_UNIT = "kubelet"
_KUBECONFIG = "/etc/kubernetes/kubelet.conf"
_VARIABLES = (
    "/etc/kubernetes/kubelet.env",
    "/var/lib/kubelet/kubeadm-flags.env",
    "/etc/default/kubelet",
    "/etc/sysconfig/kubelet",
)
"""The files of variables of kubespray's unit and of kubeadm's on Debian and on Fedora."""
_CONFIG = "/var/lib/kubelet/config.yaml"
"""The file that kubeadm's unit names by --config."""


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The flags of a kubelet and the settings of the file that its --config names."""

    flags: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def node_name(self) -> str:
        """The node's name that it is told; empty when it takes the machine's."""
        return self.flags.get("hostname-override", "").strip().lower()

    @property
    def kubelet_folder(self) -> str:
        """The folder of kubelet, its --root-dir."""
        return self.flags.get("root-dir", "").rstrip("/") or KUBELET

    @property
    def kubelet_kubeconfig(self) -> str:
        """The path of its kubeconfig."""
        return self.flags.get("kubeconfig") or _KUBECONFIG

    @property
    def endpoint(self) -> str:
        """The socket of the container runtime, such as `unix:///run/containerd/containerd.sock`; empty when not set."""
        flag = self.flags.get("container-runtime-endpoint")
        return flag or str(self.settings.get("containerRuntimeEndpoint") or "")


def read_kubelet(layout: Layout, *, path: str = SYSTEM_PATH, timeout_s: float = 10.0) -> Kubelet:
    """Return the kubelet of a machine without k3s; what cannot be read is left out."""
    words = _running(layout, path, timeout_s) or _in_unit(layout) or _in_files(layout)
    flags = flags_of(words)
    return Kubelet(flags, _settings(layout, flags.get("config", _CONFIG)))


def _running(layout: Layout, path: str, timeout_s: float) -> tuple[str, ...]:
    """Return the words of the running process after the program; empty when none runs."""
    shown = run(("systemctl", "show", "--property=MainPID", "--", f"{_UNIT}.service"), timeout_s=timeout_s, path=path)
    name, _, number = shown.out.strip().partition("=")
    if name != "MainPID" or number in {"", "0"}:
        return ()
    try:
        line = layout.at(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return ()
    program, *words = line.decode(errors="replace").rstrip("\0").split("\0")
    return tuple(words) if PurePosixPath(program).name == _UNIT else ()


def _in_unit(layout: Layout) -> tuple[str, ...]:
    words, _ = unit_command(layout, _UNIT)
    programs = [index for index, word in enumerate(words) if PurePosixPath(word).name == _UNIT]
    return tuple(words[programs[0] + 1 :]) if programs else ()


def _in_files(layout: Layout) -> tuple[str, ...]:
    return tuple(
        word for path in _VARIABLES for value in environment_file(layout, path).values() for word in value.split()
    )


def _settings(layout: Layout, path: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(layout.at(path).read_text(encoding="utf-8", errors="replace"))
    except (OSError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}
