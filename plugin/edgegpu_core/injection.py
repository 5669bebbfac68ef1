"""How cards come into containers: chosen by what kubelet and containerd can do; pure, one rule for all who ask."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

FIRST_WITH_CDI = (1, 29)
"""Kubelets pass CDI names of device plugins on by default from here (an alpha gate in 1.28, silence before: on 1.20 the
answer was ignored without a word, and the pod ran without a card)."""


class Injection(StrEnum):
    """How cards come into containers."""

    AUTO = "auto"
    CDI = "cdi"
    RUNTIME = "runtime"
    DEVICES = "devices"


@dataclass(frozen=True, slots=True)
class ContainerdSupport:
    """What containerd's configuration says about ways for cards."""

    path: str
    cdi: bool
    cdi_folders: Sequence[str]
    nvidia_runtime: bool


@dataclass(frozen=True, slots=True)
class InjectionChoice:
    """How cards come into containers, why so, and why not by CDI where CDI is not it (empty where it would do)."""

    mode: Injection
    why: str
    cdi_problem: str = ""


def choose(
    wanted: Injection, *, kubelet: str | None, containerd: ContainerdSupport | None, cdi_folder: str | None = None
) -> InjectionChoice:
    """Choose: CDI where kubelet and containerd have it, else the nvidia runtime, else kubelet's own way for devices.

    What the configuration asks for outright is obeyed; `cdi_problem` says what is wrong with that.

    Args:
        wanted: the configuration's `driver.injection`.
        kubelet: its version (`v1.33.13+k3s1`); one that is not known counts as new.
        containerd: what its configuration says; None where there is none.
        cdi_folder: where our spec is written; None where nobody has decided otherwise than containerd's own.
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
    """Say why CDI does not work on a node; nothing when it does."""
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
    """Whether a kubelet of this version passes on the CDI names that a device plugin answers."""
    version = kubernetes_version(kubelet)
    return version is None or version >= FIRST_WITH_CDI


def kubernetes_version(text: str | None) -> tuple[int, int] | None:
    """Return major and minor of a version such as `v1.33.13+k3s1`; None for what is none."""
    match = re.match(r"v?(\d+)\.(\d+)", text or "")
    return None if match is None else (int(match[1]), int(match[2]))


def plain_folder(folder: str) -> str:
    """Return a folder's path in one form: /var/run has been a link to /run for long."""
    return re.sub(r"^/var/run(?=/|$)", "/run", folder.rstrip("/"))
