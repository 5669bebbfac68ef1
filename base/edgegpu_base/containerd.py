"""Reader of containerd's configuration files, and of where it can be asked."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgegpu_base.errors import EdgegpuError

CONTAINERD_CONFIGS = (
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/containerd/config.toml",
)
"""The usual paths of containerd's configuration; k3s writes its own at each start. The first that exists counts."""

CONTAINERD_SOCKET, K3S_SOCKET = "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"
"""Where containerd listens by default, and where k3s and RKE2 have theirs listen, wherever their data folder is."""

_OF_K3S = "agent/etc/containerd/config.toml"
_GRPC, _GRPC_PLUGIN_SINCE = "io.containerd.server.v1.grpc", 4
_MOST_IMPORTS = 64


class ContainerdConfigError(EdgegpuError):
    """A configuration of containerd cannot be read; the text names the file."""


def read_config(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a configuration, its imports, and theirs, each file once: in containerd the later one wins.

    Raises:
        ContainerdConfigError: one of the files cannot be read.
    """
    pending, seen = [path], {path}
    while pending:
        file = pending.pop(0)
        table = _read(file)
        yield table
        for imported in _imports(file, table):
            if imported not in seen and len(seen) <= _MOST_IMPORTS:
                seen.add(imported)
                pending.append(imported)


def socket_of(config: Path | None) -> str:
    """Return the socket of the containerd that reads this configuration, or without one of that with its defaults.

    It is what the configuration names: in `grpc`, from version 4 on in the plugin of that name alone (seen with 2.3
    and 2.4). k3s gives its own by a flag too. A configuration that cannot be read names none.
    """
    socket = K3S_SOCKET if config is not None and config.match(_OF_K3S) else CONTAINERD_SOCKET
    if config is None:
        return socket
    try:
        for table in read_config(config):
            is_plugin = int(table.get("version", 1)) >= _GRPC_PLUGIN_SINCE
            section = table.get("plugins", {}).get(_GRPC, {}) if is_plugin else table.get("grpc", {})
            socket = str(section.get("address") or socket)
    except (ContainerdConfigError, AttributeError, ValueError, TypeError):
        pass
    return socket.removeprefix("unix://")


def _imports(path: Path, table: dict[str, Any]) -> Iterator[Path]:
    for pattern in map(str, table.get("imports", ())):
        base = Path(pattern) if Path(pattern).is_absolute() else path.parent / pattern
        name = re.sub(r"\*+", "*", base.name)  # Go's Glob, and so containerd, takes ** for *; pathlib refuses it here
        try:
            yield from sorted(base.parent.glob(name))[:_MOST_IMPORTS]
        except (OSError, ValueError) as error:
            raise ContainerdConfigError(f"cannot read the imports {pattern!r} of {path}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ContainerdConfigError(f"cannot read containerd's configuration {path}: {error}") from error
