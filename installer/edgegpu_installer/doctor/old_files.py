"""Checks of what installs left: old versions, half-unpacked folders, other products' files, the recover drop-in."""

import os
from collections.abc import Iterator

from edgegpu_installer.doctor.probe import BoxProbe
from edgegpu_installer.doctor.verdict import CheckProblem, CheckResult, broken, judge, warning
from edgegpu_installer.layout import CURRENT, K3S_CONFIG, K3S_FOLDER, OPT, SCHEDULER_YAML

_FOREIGN = {
    "/usr/local/vgpu": "HAMi",
    "/etc/gpu-manager": "gpu-manager",
    "/var/lib/kubelet/device-plugins/vcore.sock": "gpu-manager",
    "/var/lib/kubelet/device-plugins/vmemory.sock": "gpu-manager",
    "/etc/kubernetes/scheduler-policy-config.json": "gpu-manager",
    "/tmp/vgpulock": "HAMi",  # noqa: S108  (its folder, which is only looked at)
}
_BY_HAND = ("/etc/edgegpu/scheduler.yaml",)
_KEPT = 2
"""The version that runs, and the one before it."""


def look_leftovers(sight: BoxProbe) -> CheckResult:
    """Look for old versions, half-unpacked folders and files of other products."""
    troubles = [*_versions(sight), *_foreign(sight)]
    if sight.at(f"{K3S_FOLDER}/{SCHEDULER_YAML}").exists():
        troubles += [
            warning(f"{path} is of an install by hand, and read by nobody", f"sudo rm {path}")
            for path in _BY_HAND
            if sight.at(path).exists() and not _named(sight, path)
        ]
    return judge(troubles, well="none")


def _versions(sight: BoxProbe) -> Iterator[CheckProblem]:
    names = [name for name in sight.names(OPT) if name != "current"]
    current = sight.at(CURRENT)
    target = current.readlink().name if current.is_symlink() else ""
    if target and target not in names:
        yield broken(f"{CURRENT} leads to {target}, which is not there", "run the installer's line again")
    whole = [name for name in names if sight.at(f"{OPT}/{name}/bin/edgegpu").exists() and not name.startswith(".")]
    for name in sorted(set(names) - set(whole)):
        yield warning(f"{OPT}/{name} is a half-unpacked version", f"sudo rm -rf {OPT}/{name}")
    old = [name for name in whole if name != target]
    if len(old) >= _KEPT:
        paths = " ".join(f"{OPT}/{name}" for name in old)
        yield warning(f"{len(old)} old versions: {', '.join(old)}", f"sudo rm -rf {paths}")


def _foreign(sight: BoxProbe) -> Iterator[CheckProblem]:
    for path, product in _FOREIGN.items():
        if os.path.lexists(sight.at(path)):
            yield warning(f"{path} is {product}'s", f"uninstall {product} first; only then remove {path}")


def _named(sight: BoxProbe, path: str) -> bool:
    folder = f"{K3S_CONFIG}.d"
    files = [K3S_CONFIG, *(f"{folder}/{name}" for name in sight.names(folder))]
    return any(path in (sight.text(file) or "") for file in files)
