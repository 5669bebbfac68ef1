"""What containerd's configuration on a box says about how cards can come into containers."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgegpu_installer.layout import Layout

_V3 = 3
_CRI = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_MOST_IMPORTS = 64


@dataclass(frozen=True, slots=True)
class ContainerdConfig:
    """One configuration of containerd; `why` says why it could not be read."""

    path: str
    cdi: bool = False
    nvidia_runtime: bool = False
    default_runtime: str = ""
    systemd_cgroups: bool = False
    why: str = ""


def read_containerd(layout: Layout, path: str) -> ContainerdConfig | None:
    """Read a configuration with its imports; None when there is no such file."""
    file = layout.at(path)
    if not file.is_file():
        return None
    try:
        parts = list(_parts(file))
    except (OSError, ValueError) as error:
        return ContainerdConfig(path, why=f"{path} cannot be read: {error}")
    version = int(parts[0].get("version", 1))
    cdi, default, runtimes = version >= _V3, "", dict[str, Any]()
    for part in parts:
        cri = part.get("plugins", {}).get(_CRI.get(version, _CRI[2]), {})
        cdi = bool(cri.get("enable_cdi", cdi))
        containerd = cri.get("containerd", {})
        default = str(containerd.get("default_runtime_name", default))
        runtimes |= containerd.get("runtimes", {})
    return ContainerdConfig(
        path,
        cdi=cdi and version > 1,
        nvidia_runtime=any(_is_nvidia(name, runtime) for name, runtime in runtimes.items()),
        default_runtime=default,
        systemd_cgroups=any(_options(runtime).get("SystemdCgroup") is True for runtime in runtimes.values()),
    )


def _options(runtime: object) -> Mapping[str, Any]:
    options = runtime.get("options") if isinstance(runtime, dict) else None
    return options if isinstance(options, dict) else {}


def _is_nvidia(name: str, runtime: object) -> bool:
    return name == "nvidia" or "nvidia-container-runtime" in str(_options(runtime).get("BinaryName", ""))


def _parts(file: Path) -> Iterator[dict[str, Any]]:
    main = tomllib.loads(file.read_text(encoding="utf-8"))
    yield main
    for pattern in main.get("imports", ()):
        base = Path(pattern) if Path(pattern).is_absolute() else file.parent / pattern
        for found in sorted(base.parent.glob(base.name))[:_MOST_IMPORTS]:
            if found != file:
                yield tomllib.loads(found.read_text(encoding="utf-8"))
