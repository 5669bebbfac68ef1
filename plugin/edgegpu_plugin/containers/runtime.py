"""Reader of containerd's configuration, by which the injection mode is chosen."""

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgegpu_core import injection
from edgegpu_core.injection import ContainerdSupport, Injection, InjectionChoice
from edgegpu_plugin.errors import PluginError

CONTAINERD_CONFIGS = (
    Path("/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
    Path("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
    Path("/etc/containerd/config.toml"),
)
"""The paths of containerd's configuration; k3s writes its own at each start."""

_V3 = 3
_CRI_V3 = "io.containerd.cri.v1.runtime"
_CRI_V2 = "io.containerd.grpc.v1.cri"
_DEFAULT_SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_MOST_IMPORTS = 64


def choose(
    wanted: Injection, *, cdi_folder: Path, kubelet: str | None, configs: Sequence[Path] = CONTAINERD_CONFIGS
) -> InjectionChoice:
    """Choose how cards come into containers, by containerd's configuration.

    Args:
        wanted: the configuration's `driver.injection`.
        cdi_folder: the folder of our spec.
        kubelet: kubelet's version (`v1.33.13+k3s1`); None while it is unknown.
        configs: paths of containerd's configuration; the first that exists counts.

    Raises:
        PluginError: the choice depends on containerd's configuration, which cannot be read.
    """
    containerd = None if wanted is not Injection.AUTO else read_containerd(configs)
    return injection.choose(wanted, kubelet=kubelet, containerd=containerd, cdi_folder=str(cdi_folder))


def read_containerd(configs: Sequence[Path]) -> ContainerdSupport | None:
    """Read the first configuration of containerd that exists; None when there is none.

    Raises:
        PluginError: the configuration cannot be read.
    """
    path = next((path for path in configs if path.is_file()), None)
    if path is None:
        return None
    parts = list(_parts(path))
    version = int(parts[0].get("version", 1))
    cri = [part.get("plugins", {}).get(_CRI_V3 if version >= _V3 else _CRI_V2, {}) for part in parts]
    cdi = version >= _V3
    folders: Sequence[str] = _DEFAULT_SPEC_FOLDERS
    runtimes: dict[str, Any] = {}
    for part in cri:
        cdi = bool(part.get("enable_cdi", cdi))
        folders = part.get("cdi_spec_dirs", folders)
        runtimes |= part.get("containerd", {}).get("runtimes", {})
    return ContainerdSupport(str(path), cdi and version > 1, tuple(folders), any(map(_is_nvidia, runtimes.items())))


def _is_nvidia(runtime: tuple[str, Any]) -> bool:
    name, settings = runtime
    binary = str((settings.get("options") or {}).get("BinaryName", "")) if isinstance(settings, dict) else ""
    return name == "nvidia" or "nvidia-container-runtime" in binary


def _parts(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a configuration and then its imports: in containerd the later one wins."""
    main = _read(path)
    imports = [str(pattern) for pattern in main.get("imports", ())]
    yield main
    for pattern in imports:
        base = Path(pattern) if Path(pattern).is_absolute() else path.parent / pattern
        for found in sorted(base.parent.glob(base.name))[:_MOST_IMPORTS]:
            if found != path:
                yield _read(found)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PluginError(
            f"cannot read containerd's configuration {path}: {error}; set driver.injection to cdi, devices or runtime"
        ) from error
