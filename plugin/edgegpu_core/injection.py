"""The choice of how cards come into containers, by what kubelet and containerd can do: one rule for every caller."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

FIRST_WITH_CDI = (1, 29)
"""The first version whose kubelet passes on a device plugin's CDI names by default. 1.28 has an alpha gate. Before
that the names are ignored silently: on 1.20 the pod ran without a card."""

_V3 = 3
_CRI_V3 = "io.containerd.cri.v1.runtime"
_CRI = {1: "cri", 2: "io.containerd.grpc.v1.cri"}
"""CRI's table by version, before 3. Of version 1 only the default runtime and the cgroups' driver are read."""
_DEFAULT_SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")


class Injection(StrEnum):
    """How cards come into containers."""

    AUTO = "auto"
    CDI = "cdi"
    RUNTIME = "runtime"
    DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class ContainerdSupport:
    """What containerd's configuration says about how cards can come into containers."""

    path: str
    cdi: bool
    cdi_folders: Sequence[str]
    nvidia_runtime: bool
    default_runtime: str = ""
    systemd_cgroups: bool = False

    @classmethod
    def of(cls, path: str, files: Iterable[Mapping[str, Any]]) -> Self:
        """Return what the configuration at `path` says; `files` are its tables and those of its imports, in order."""
        tables = list(files)
        version = int(tables[0].get("version", 1))
        cdi, default = version >= _V3, ""
        folders: Sequence[str] = _DEFAULT_SPEC_FOLDERS
        runtimes: dict[str, Any] = {}
        for table in tables:
            cri = table.get("plugins", {}).get(_CRI.get(version, _CRI_V3), {})
            containerd = cri.get("containerd", {})
            cdi = bool(cri.get("enable_cdi", cdi))
            folders = cri.get("cdi_spec_dirs", folders)
            default = str(containerd.get("default_runtime_name", default))
            runtimes |= containerd.get("runtimes", {})
        options = {name: _options(runtime) for name, runtime in runtimes.items()}
        return cls(
            path,
            cdi=cdi and version > 1,
            cdi_folders=tuple(folders),
            nvidia_runtime=version > 1
            and any(
                name == "nvidia" or "nvidia-container-runtime" in str(given.get("BinaryName", ""))
                for name, given in options.items()
            ),
            default_runtime=default,
            systemd_cgroups=any(given.get("SystemdCgroup") is True for given in options.values()),
        )


def _options(runtime: object) -> Mapping[str, Any]:
    options = runtime.get("options") if isinstance(runtime, dict) else None
    return options if isinstance(options, dict) else {}


@dataclass(frozen=True, slots=True)
class InjectionChoice:
    """The chosen injection, the reason, and why CDI does not work on the node (empty when it does)."""

    mode: Injection
    why: str
    cdi_problem: str = ""


def choose(
    wanted: Injection, *, kubelet: str | None, containerd: ContainerdSupport | None, cdi_folder: str | None = None
) -> InjectionChoice:
    """Choose CDI where kubelet and containerd have it, else the nvidia runtime, else device nodes through kubelet.

    A mode that the configuration sets is used as it is; `cdi_problem` still says why CDI does not work.

    Args:
        wanted: the configuration's `driver.injection`.
        kubelet: kubelet's version (`v1.33.13+k3s1`); an unknown version counts as new.
        containerd: what containerd's configuration says; None when no configuration was found.
        cdi_folder: the folder of our spec; None for containerd's own.
    """
    problem = cdi_problem(containerd, kubelet=kubelet, cdi_folder=cdi_folder)
    if wanted is not Injection.AUTO:
        return InjectionChoice(wanted, "driver.injection says so", problem)
    if not problem:
        if containerd is None:
            return InjectionChoice(
                Injection.CDI, "no configuration of containerd was found, and those of today have CDI"
            )
        return InjectionChoice(Injection.CDI, f"{containerd.path} has CDI on")
    if containerd is not None and containerd.nvidia_runtime:
        return InjectionChoice(Injection.RUNTIME, f"{problem}; {containerd.path} has the nvidia runtime", problem)
    return InjectionChoice(Injection.DEVICES, f"{problem}; kubelet is given device nodes and files", problem)


def cdi_problem(containerd: ContainerdSupport | None, *, kubelet: str | None, cdi_folder: str | None = None) -> str:
    """Return why CDI does not work on a node; empty when it does."""
    if not passes_cdi(kubelet):
        return f"kubelet {kubelet} passes no CDI devices on ({'.'.join(map(str, FIRST_WITH_CDI))} and later do)"
    if containerd is None:
        return ""
    if not containerd.cdi:
        return f"{containerd.path} has CDI off"
    known = {plain_folder(folder) for folder in containerd.cdi_folders}
    if cdi_folder is not None and plain_folder(cdi_folder) not in known:
        return f"{containerd.path} reads CDI specs from {', '.join(containerd.cdi_folders)} and not from {cdi_folder}"
    return ""


def passes_cdi(kubelet: str | None) -> bool:
    """Return whether a kubelet of this version passes on the CDI names that a device plugin answers."""
    version = kubernetes_version(kubelet)
    return version is None or version >= FIRST_WITH_CDI


def kubernetes_version(text: str | None) -> tuple[int, int] | None:
    """Return major and minor of a version such as `v1.33.13+k3s1`; None when the text is no version."""
    match = re.match(r"v?(\d+)\.(\d+)", text or "")
    return None if match is None else (int(match[1]), int(match[2]))


def plain_folder(folder: str) -> str:
    """Return a folder's path in one form, with /run for /var/run, which is a link to it."""
    return re.sub(r"^/var/run(?=/|$)", "/run", folder.rstrip("/"))
