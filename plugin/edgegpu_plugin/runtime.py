"""Chooses how cards get into containers: by CDI, or by the nvidia runtime's environment; and says why."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegpu_plugin.config import Injection
from edgegpu_plugin.errors import PluginError

CONTAINERD_CONFIGS = (
    Path("/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
    Path("/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
    Path("/etc/containerd/config.toml"),
)
"""Where containerd's configuration is; k3s writes its own at each start."""

_FIRST_KUBELET = (1, 29)
"""Kubelets pass CDI names of device plugins on by default from here (an alpha gate in 1.28, silence before)."""

_V3 = 3
_CRI_V3 = "io.containerd.cri.v1.runtime"
_CRI_V2 = "io.containerd.grpc.v1.cri"
_DEFAULT_SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_MOST_IMPORTS = 64


@dataclass(frozen=True, slots=True)
class Choice:
    """How cards get into containers, and why so."""

    mode: Injection
    why: str


@dataclass(frozen=True, slots=True)
class Containerd:
    """What containerd's configuration says about ways for cards."""

    path: Path
    version: int
    cdi: bool
    cdi_folders: tuple[str, ...]
    nvidia_runtime: bool


def choose(
    wanted: Injection, *, cdi_folder: Path, kubelet: str | None, configs: Sequence[Path] = CONTAINERD_CONFIGS
) -> Choice:
    """Choose; what the configuration asks for outright is obeyed.

    Args:
        wanted: the configuration's `driver.injection`.
        cdi_folder: where our spec is written.
        kubelet: kubelet's version (`v1.33.13+k3s1`) as far as it is known.
        configs: containerd's configuration, the first that is there counts.

    Raises:
        PluginError: neither way is possible; the text has the remedy.
    """
    if wanted is not Injection.AUTO:
        return Choice(wanted, "driver.injection says so")
    containerd = read_containerd(configs)
    problem = _cdi_problem(containerd, cdi_folder, kubelet)
    if not problem:
        if containerd is None:
            return Choice(Injection.CDI, "no configuration of containerd was found, and those of today have CDI")
        return Choice(Injection.CDI, f"{containerd.path} (version {containerd.version}) has CDI on")
    if containerd is not None and containerd.nvidia_runtime:
        return Choice(Injection.RUNTIME, f"{problem}; {containerd.path} has the nvidia runtime")
    raise PluginError(
        f"cannot bring cards into containers: {problem}, and containerd has no nvidia runtime: upgrade k3s to 1.29 or "
        "later with CDI on, or install the NVIDIA container toolkit and restart k3s"
    )


def read_containerd(configs: Sequence[Path]) -> Containerd | None:
    """Read the first configuration of containerd that is there; None when none is.

    Raises:
        PluginError: it cannot be read.
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
    return Containerd(path, version, cdi and version > 1, tuple(folders), any(map(_is_nvidia, runtimes.items())))


def _cdi_problem(containerd: Containerd | None, cdi_folder: Path, kubelet: str | None) -> str:
    """Say why CDI does not work here; nothing when it does."""
    version = _kubelet_version(kubelet)
    if version is not None and version < _FIRST_KUBELET:
        return f"kubelet {kubelet} passes no CDI devices on (1.29 and later do)"
    if containerd is None:
        return ""
    if not containerd.cdi:
        return f"{containerd.path} (version {containerd.version}) has CDI off"
    known = {_plain(folder) for folder in containerd.cdi_folders}
    if _plain(str(cdi_folder)) not in known:
        return f"{containerd.path} reads CDI specs from {', '.join(containerd.cdi_folders)} and not from {cdi_folder}"
    return ""


def _plain(folder: str) -> str:
    """/var/run has been a link to /run for long."""
    return re.sub(r"^/var/run(?=/|$)", "/run", folder.rstrip("/"))


def _kubelet_version(text: str | None) -> tuple[int, int] | None:
    match = re.match(r"v?(\d+)\.(\d+)", text or "")
    return None if match is None else (int(match[1]), int(match[2]))


def _is_nvidia(runtime: tuple[str, Any]) -> bool:
    name, settings = runtime
    binary = str((settings.get("options") or {}).get("BinaryName", "")) if isinstance(settings, dict) else ""
    return name == "nvidia" or "nvidia-container-runtime" in binary


def _parts(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a configuration and then what it imports: containerd lets the later win."""
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
            f"cannot read containerd's configuration {path}: {error}; set driver.injection to cdi or runtime"
        ) from error
