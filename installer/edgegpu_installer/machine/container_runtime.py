"""The container runtime of a box: whose it is, and what containerd's configuration says."""

from dataclasses import dataclass

from edgegpu_base.containerd import CONTAINERD_CONFIGS, ContainerdConfigError, read_config
from edgegpu_core.injection import ContainerdSupport, NodeVersions
from edgegpu_installer.layout import Layout
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
    """What the configuration says; None without one that can be read, or with another runtime."""


def read_runtime(layout: Layout, *, endpoint: str, own_config: str, versions: NodeVersions) -> RuntimeFacts:
    """Return the container runtime of a box.

    Args:
        layout: the box's paths.
        endpoint: the socket that kubelet is told, empty for the distribution's own.
        own_config: the configuration of the distribution's own containerd, empty where it has none.
        versions: of the Node object, which names the runtime.
    """
    config = own_config if own_config and not endpoint else _config_of_unit(layout)
    usual = next((path for path in CONTAINERD_CONFIGS if layout.at(path).is_file()), _CONFIG)
    support = None if versions.has_other_runtime else _support(layout, config)
    return RuntimeFacts(endpoint, config, config == usual, support)


def _config_of_unit(layout: Layout) -> str:
    """Return the configuration that a containerd of its own unit reads."""
    words, _ = unit_command(layout, "containerd")
    return flags_of(tuple("--config" if word == "-c" else word for word in words)).get("config") or _CONFIG


def _support(layout: Layout, path: str) -> ContainerdSupport | None:
    file = layout.at(path)
    try:
        return ContainerdSupport.of(path, read_config(file)) if file.is_file() else None
    except ContainerdConfigError:
        return None
