"""The container runtime of a box: whose it is, and what containerd makes of its configuration."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgegpu_base.containerd import CONTAINERD_CONFIGS, ContainerdConfigError, read_config
from edgegpu_core.injection import ContainerdSupport, NodeVersions
from edgegpu_installer.layout import Layout
from edgegpu_installer.machine.programs import run
from edgegpu_installer.machine.unit_files import unit_command
from edgegpu_installer.scheduler.manifest import flags_of

_CONFIG = "/etc/containerd/config.toml"
"""What containerd reads without --config."""


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The container runtime that kubelet uses."""

    endpoint: str
    """The socket that kubelet is told; empty for the distribution's own containerd."""
    config: str
    """The path of containerd's configuration."""
    is_usual: bool
    """Whether the plugin finds that configuration by itself."""
    containerd: ContainerdSupport | None
    """What the configuration says, by containerd's own `config dump` where it gives one, else by its files; None
    without one that can be read, or with another runtime."""


@dataclass(frozen=True, slots=True)
class OwnContainerd:
    """The containerd that a distribution brings: its configuration and its program, empty where it has none."""

    config: str = ""
    program: str = ""


def read_runtime(
    layout: Layout, *, endpoint: str, own: OwnContainerd, versions: NodeVersions, timeout_s: float, path: str
) -> RuntimeFacts:
    """Return the container runtime of a box.

    Args:
        layout: the box's paths.
        endpoint: the socket that kubelet is told, empty for the distribution's own.
        own: the distribution's own containerd.
        versions: of the Node object, which names the runtime.
        timeout_s: how long containerd may take to print its configuration.
        path: the folders of programs.
    """
    words, _ = unit_command(layout, "containerd")
    chosen = own if own.config and not endpoint else OwnContainerd(_config_of(words), words[0] if words else "")
    usual = next((name for name in CONTAINERD_CONFIGS if layout.at(name).is_file()), _CONFIG)
    support = None
    if not versions.has_other_runtime:
        support = _dumped(layout, chosen, timeout_s=timeout_s, path=path) or _support(layout, chosen.config)
    return RuntimeFacts(endpoint, chosen.config, chosen.config == usual, support)


def _config_of(words: Sequence[str]) -> str:
    """Return the configuration that a containerd of its own unit reads."""
    return flags_of(tuple("--config" if word == "-c" else word for word in words)).get("config") or _CONFIG


def _dumped(layout: Layout, own: OwnContainerd, *, timeout_s: float, path: str) -> ContainerdSupport | None:
    """Return what containerd's program makes of the configuration, its imports and defaults; None where it does not."""
    program, config = layout.at(own.program), layout.at(own.config)
    if not own.program or not program.is_file() or not config.is_file():
        return None
    answer = run((str(program), "--config", str(config), "config", "dump"), timeout_s=timeout_s, path=path)
    try:
        table = tomllib.loads(answer.out) if answer.well else {}
    except ValueError:
        return None
    return replace(ContainerdSupport.of(own.config, [table]), asked="config dump") if table.get("plugins") else None


def _support(layout: Layout, path: str) -> ContainerdSupport | None:
    file = layout.at(path)
    try:
        return ContainerdSupport.of(path, read_config(file)) if file.is_file() else None
    except ContainerdConfigError:
        return None
