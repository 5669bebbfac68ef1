"""The choice of how cards come into containers, by what kubelet and containerd can do: one rule for every caller."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

FIRST_WITH_CDI = (1, 29)
"""The first version whose kubelet passes on a device plugin's CDI names by default. 1.28 has an alpha gate. Before
that the names are ignored silently: on 1.20 the pod ran without a card."""

_CDI_BY_DEFAULT, _CDI_ALWAYS = (2, 0), (2, 4)
"""The versions of containerd from which on CDI is on where `enable_cdi` is not set, and whatever it says. 1.7 has it
off by default; 2.1 and 2.3 have it on (DefaultConfig in internal/cri/config), 2.4 has no `enable_cdi` any more."""

_V3 = 3
_CRI_V3, _CRI_V2, _CRI_V1 = "io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"
_CRI = {1: (_CRI_V1, _CRI_V2), 2: (_CRI_V2, _CRI_V3)}
"""CRI's tables by a file's version, before 3. Each file counts by its own version: containerd 2.3 and later migrate
each import from it. Of version 1 only the default runtime and the cgroups' driver are read."""
_DEFAULT_SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")


class Injection(StrEnum):
    """How cards come into containers."""

    AUTO = "auto"
    CDI = "cdi"
    RUNTIME = "runtime"
    DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class NodeVersions:
    """The versions in a Node object, which kubelet writes there; empty where one is unknown."""

    kubelet: str = ""
    """Such as `v1.37.2+k3s1`."""
    runtime: str = ""
    """What the container runtime calls itself, such as `containerd://2.4.2-k3s1`."""

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Self:
        """Return the versions of a Node object."""
        facts = (node.get("status") or {}).get("nodeInfo") or {}
        return cls(str(facts.get("kubeletVersion") or ""), str(facts.get("containerRuntimeVersion") or ""))

    @classmethod
    def of_line(cls, line: str) -> Self:
        """Return the versions that `line` has written."""
        return cls(*line.strip().split(" ", 1))

    def line(self) -> str:
        """Return both in a line that is kept: kubelet's version, and the runtime's after a space."""
        return f"{self.kubelet} {self.runtime}".rstrip() + "\n"

    @property
    def runtime_name(self) -> str:
        """The runtime's name, such as `containerd`, `cri-o` or `docker`; empty while it is unknown."""
        return self.runtime.partition("://")[0]

    @property
    def has_other_runtime(self) -> bool:
        """Whether the runtime is known, and is not containerd: then no file of containerd's says anything."""
        return self.runtime_name not in {"", "containerd"}

    @property
    def containerd(self) -> tuple[int, int] | None:
        """Major and minor of containerd; None when they are unknown, or the runtime is another one."""
        return None if self.has_other_runtime else major_minor(self.runtime.partition("://")[2])

    @property
    def has_cdi_always(self) -> bool:
        """Whether containerd has CDI on whatever its configuration says."""
        return self.containerd is not None and self.containerd >= _CDI_ALWAYS

    def or_kubelet(self, version: str) -> Self:
        """Return these, or where kubelet's is unknown that one alone."""
        return self if self.kubelet else type(self)(version)


@dataclass(frozen=True, slots=True)
class ContainerdSupport:
    """What containerd says about how cards can come into containers: the running one itself, or its files."""

    path: str
    """The configuration's path."""
    enable_cdi: bool | None
    """What `enable_cdi` says; None where it is not set."""
    version: int
    """The version of the main file."""
    cdi_folders: Sequence[str]
    nvidia_runtime: bool
    default_runtime: str = ""
    systemd_cgroups: bool = False
    asked: str = ""
    """How containerd itself was asked: its socket, or `config dump`; empty where only its files were read."""

    @property
    def witness(self) -> str:
        """Who says all this, as the subject of a sentence."""
        return f"containerd ({self.asked})" if self.asked else self.path

    @classmethod
    def of_answer(cls, answer: Mapping[str, Any], *, path: str, socket: str) -> Self | None:
        """Return what the running containerd says in CRI's Status, in the JSON of `config`; None where that is another.

        `enableCDI` is there from 1.7 to 2.3 (seen: 2.1, 2.3). 2.4 has CDI on always, and the folders of the specs
        alone; before 1.7 there is neither.

        Args:
            answer: the JSON.
            path: of the configuration that this containerd reads.
            socket: where it was asked.
        """
        containerd = answer.get("containerd")
        if not isinstance(containerd, dict):
            return None
        runtimes = containerd.get("runtimes")
        folders = answer.get("cdiSpecDirs")
        return cls(
            path,
            bool(answer.get("enableCDI", "cdiSpecDirs" in answer)),
            version=0,
            cdi_folders=tuple(map(str, folders)) if isinstance(folders, list) else (),
            nvidia_runtime=_has_nvidia(runtimes if isinstance(runtimes, dict) else {}),
            default_runtime=str(containerd.get("defaultRuntimeName") or ""),
            systemd_cgroups=_has_systemd(runtimes.values() if isinstance(runtimes, dict) else ()),
            asked=f"asked on {socket}",
        )

    @classmethod
    def of(cls, path: str, files: Iterable[Mapping[str, Any]]) -> Self:
        """Return what the configuration at `path` says; `files` are its tables and those of its imports, in order."""
        tables = list(files)
        enable: bool | None = None
        default = ""
        folders: Sequence[str] = _DEFAULT_SPEC_FOLDERS
        runtimes: dict[str, Any] = {}
        kinds: list[object] = []
        for table in tables:
            for name in _CRI.get(int(table.get("version", 1)), (_CRI_V3,)):
                cri = table.get("plugins", {}).get(name, {})
                containerd = cri.get("containerd", {})
                default = str(containerd.get("default_runtime_name", default))
                there = containerd.get("runtimes", {})
                kinds += there.values()
                if name == _CRI_V1:
                    continue
                enable = bool(cri["enable_cdi"]) if "enable_cdi" in cri else enable
                folders = cri.get("cdi_spec_dirs", folders)
                runtimes |= there
        return cls(
            path,
            enable,
            version=int(tables[0].get("version", 1)),
            cdi_folders=tuple(folders),
            nvidia_runtime=_has_nvidia(runtimes),
            default_runtime=default,
            systemd_cgroups=_has_systemd(kinds),
        )

    def has_cdi(self, versions: NodeVersions) -> bool:
        """Return whether containerd of this version has CDI on with this configuration.

        Without its version the file's own is the sign: k3s writes version 3 for containerd 2.
        """
        if versions.has_cdi_always and not self.asked:
            return True
        if self.enable_cdi is not None:
            return self.enable_cdi
        containerd = versions.containerd
        return self.version >= _V3 if containerd is None else containerd >= _CDI_BY_DEFAULT


def _has_nvidia(runtimes: Mapping[str, object]) -> bool:
    return any(
        name == "nvidia" or "nvidia-container-runtime" in str(_options(runtime).get("BinaryName", ""))
        for name, runtime in runtimes.items()
    )


def _has_systemd(runtimes: Iterable[object]) -> bool:
    return any(_options(runtime).get("SystemdCgroup") is True for runtime in runtimes)


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
    wanted: Injection, *, versions: NodeVersions, containerd: ContainerdSupport | None, cdi_folder: str | None = None
) -> InjectionChoice:
    """Choose CDI where kubelet and containerd have it, else the nvidia runtime, else device nodes through kubelet.

    A mode that the configuration sets is used as it is; `cdi_problem` still says why CDI does not work.

    Args:
        wanted: the configuration's `driver.injection`.
        versions: kubelet's and containerd's; an unknown kubelet counts as new.
        containerd: what containerd's configuration says; None when no configuration was found.
        cdi_folder: the folder of our spec; None for containerd's own.
    """
    problem = cdi_problem(containerd, versions=versions, cdi_folder=cdi_folder)
    if wanted is not Injection.AUTO:
        return InjectionChoice(wanted, "driver.injection says so", problem)
    if not problem:
        if versions.has_other_runtime:
            return InjectionChoice(Injection.CDI, f"{versions.runtime} is no containerd, and is taken to have CDI on")
        if containerd is None:
            return InjectionChoice(
                Injection.CDI, "no configuration of containerd was found, and those of today have CDI"
            )
        is_always = versions.has_cdi_always and not containerd.asked
        why = f"{versions.runtime} has CDI on always" if is_always else f"{containerd.witness} has CDI on"
        return InjectionChoice(Injection.CDI, why)
    if containerd is not None and containerd.nvidia_runtime:
        return InjectionChoice(Injection.RUNTIME, f"{problem}; {containerd.witness} has the nvidia runtime", problem)
    return InjectionChoice(Injection.DEVICES, f"{problem}; kubelet is given device nodes and files", problem)


def cdi_problem(containerd: ContainerdSupport | None, *, versions: NodeVersions, cdi_folder: str | None = None) -> str:
    """Return why CDI does not work on a node; empty when it does."""
    if not passes_cdi(versions.kubelet):
        return (
            f"kubelet {versions.kubelet} passes no CDI devices on ({'.'.join(map(str, FIRST_WITH_CDI))} and later do)"
        )
    if versions.runtime_name == "docker":
        return f"{versions.runtime} passes no CDI devices on"
    if containerd is None:
        return ""
    if not containerd.has_cdi(versions):
        return f"{containerd.witness} has CDI off"
    folders = containerd.cdi_folders
    if cdi_folder is not None and plain_folder(cdi_folder) not in map(plain_folder, folders):
        return f"{containerd.witness} reads CDI specs from {', '.join(folders)} and not from {cdi_folder}"
    return ""


def passes_cdi(kubelet: str | None) -> bool:
    """Return whether a kubelet of this version passes on the CDI names that a device plugin answers."""
    version = major_minor(kubelet)
    return version is None or version >= FIRST_WITH_CDI


def major_minor(text: str | None) -> tuple[int, int] | None:
    """Return major and minor of a version such as `v1.33.13+k3s1`; None when the text is no version."""
    match = re.match(r"v?(\d+)\.(\d+)", text or "")
    return None if match is None else (int(match[1]), int(match[2]))


def plain_folder(folder: str) -> str:
    """Return a folder's path in one form, with /run for /var/run, which is a link to it."""
    return re.sub(r"^/var/run(?=/|$)", "/run", folder.rstrip("/"))
