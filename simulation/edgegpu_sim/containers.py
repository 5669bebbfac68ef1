"""The view of a container: a folder with the device files and mounts that the runtime would give it."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from edgegpu_plugin.pb import Allocation
from edgegpu_sim.errors import SimError

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_SEARCH = ("usr/local/bin", "usr/bin", "bin")
_IMAGE_TOOLS = frozenset({"env", "true", "false", "printenv"})
"""The tools that every image has; they run from the host with only the container's environment."""
_EXEC_S = 30.0


class CreateError(SimError):
    """A container cannot be created; the text is containerd's."""


@dataclass(slots=True)
class ContainerEdits:
    """The edits of a container: host paths by the path in the container, and environment."""

    files: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    def add(self, edits: Mapping[str, Any]) -> None:
        """Add one `containerEdits` of a CDI spec."""
        for node in edits.get("deviceNodes") or ():
            self.files[node["path"]] = node.get("hostPath") or node["path"]
        for mount in edits.get("mounts") or ():
            self.files[mount["containerPath"]] = mount["hostPath"]
        for line in edits.get("env") or ():
            name, _, value = line.partition("=")
            self.env[name] = value


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container's root folder and its environment."""

    root: Path
    env: Mapping[str, str]

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command as `kubectl exec` would; if the container lacks it, the result is 126 with runc's message."""
        program = self._find(command[0])
        if program is None:
            why = f'exec: "{command[0]}": executable file not found in $PATH: unknown'
            text = f"OCI runtime exec failed: exec failed: unable to start container process: {why}\n"
            return subprocess.CompletedProcess(list(command), 126, "", text)
        env = {"PATH": os.defpath, **self.env, "LD_LIBRARY_PATH": str(self.root / _LIBRARIES)}
        return subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=_EXEC_S, check=False, env=env
        )

    def _find(self, name: str) -> str | None:
        places = [self.root / name.lstrip("/")] if "/" in name else [self.root / part / name for part in _SEARCH]
        for place in places:
            if place.exists():
                return str(place)
        return shutil.which(name) if Path(name).name in _IMAGE_TOOLS else None


def make_view(
    root: Path, *, cdi_folders: Sequence[Path], given: Allocation, pod_env: Mapping[str, str]
) -> ContainerView:
    """Make a container's root folder and return its view.

    The order of environments is the real one: the pod's own overrides the plugin's, and CDI's overrides both.

    Args:
        root: a folder that does not exist yet.
        cdi_folders: the folders of CDI specs.
        given: what the device plugins answered.
        pod_env: the environment in the pod's spec.

    Raises:
        CreateError: no spec has a CDI name, or a path of the host does not exist.
    """
    edits = ContainerEdits()
    for device in given.devices:
        edits.files[device.container_path] = device.host_path
    for mount in given.mounts:
        edits.files[mount.container_path] = mount.host_path
    _inject(edits, cdi_folders, given.cdi_devices)
    for folder in ("dev", "tmp", _LIBRARIES, "usr/bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for inside, outside in sorted(edits.files.items()):
        if not Path(outside).exists():
            why = f'error mounting "{outside}" to rootfs at "{inside}": stat {outside}: no such file or directory'
            raise CreateError(f"failed to create shim task: OCI runtime create failed: runc create failed: {why}")
        _place(root, inside, outside)
    return ContainerView(root, {**given.envs, **pod_env, **edits.env})


def _inject(edits: ContainerEdits, folders: Sequence[Path], names: Sequence[str]) -> None:
    specs = _specs(folders) if names else {}
    missing: list[str] = []
    common: set[str] = set()
    for name in names:
        kind, _, device = name.partition("=")
        spec = specs.get(kind, {})
        found = next((d for d in spec.get("devices") or () if d["name"] == device), None)
        if found is None:
            missing.append(name)
            continue
        if kind not in common:
            edits.add(spec.get("containerEdits") or {})
            common.add(kind)
        edits.add(found.get("containerEdits") or {})
    if missing:
        why = f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        raise CreateError(f"failed to create containerd container: {why}")


def _specs(folders: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the CDI specs by kind; as with containerd, a broken file is ignored."""
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            try:
                spec = json.loads(path.read_text()) if path.suffix == ".json" else _yaml(path)
                devices = found.get(spec["kind"], {}).get("devices") or []
                found[spec["kind"]] = {**spec, "devices": [*devices, *spec["devices"]]}
            except (ValueError, KeyError, TypeError, OSError):
                continue
    return found


def _yaml(path: Path) -> Any:  # noqa: ANN401  (foreign document)
    return yaml.safe_load(path.read_text()) if path.suffix == ".yaml" else None


def _place(root: Path, inside: str, outside: str) -> None:
    """Link one path; a parent folder that is itself a link becomes a real folder with links to its entries."""
    at = root
    parts = Path(inside.lstrip("/")).parts
    for part in parts[:-1]:
        at /= part
        if at.is_symlink():
            target = at.resolve()
            at.unlink()
            at.mkdir()
            for entry in target.iterdir():
                (at / entry.name).symlink_to(entry)
        at.mkdir(exist_ok=True)
    link = at / parts[-1]
    if link.is_symlink():
        link.unlink()
    elif link.is_dir():
        link.rmdir()  # an empty folder that an earlier path made
    link.symlink_to(outside)
