"""The kube-scheduler of a kubeadm cluster: our configuration file added to its manifest, and removed again.

kubelet restarts the pod when the manifest's *values* change (it hashes the pod, not the bytes). The scheduler's file is
no part of the manifest, so its hash is in the volume's name: another file makes another pod. kubelet takes every file
in that folder for a manifest, whatever its suffix, except those whose name begins with a dot.
"""

import copy
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import yaml

from edgegpu_installer import yaml_edit as edit
from edgegpu_installer.changes import FileChange
from edgegpu_installer.errors import InstallError
from edgegpu_installer.scheduler.manifest import MANIFEST, REPAIR, SCHEDULER_FILE, Manifest, understand

ADMIN_KUBECONFIG = "/etc/kubernetes/admin.conf"

_FLAG = f"--config={SCHEDULER_FILE}"


def read(text: str) -> Manifest:
    """Parse a manifest.

    Raises:
        InstallError: it is no static pod of kube-scheduler as kubeadm writes it, or its scheduler cannot use our file.
    """
    try:
        return _Parts.of(text).manifest
    except edit.UnexpectedFormError as error:
        raise _unexpected(error) from error


def with_file(text: str, scheduler_file: bytes) -> str:
    """Return a manifest with our flag, volume and mount in it; the same text when it has all of them.

    Another --config stays before ours: the scheduler reads the last, and without ours it has its own again.

    Raises:
        InstallError: as read does, or another --config comes after ours.
    """
    name = volume_name(scheduler_file)
    try:
        parts = _Parts.of(text)
        if parts.flag is not None and not parts.manifest.ours:
            raise InstallError(
                f"cannot give the scheduler edgegpu's configuration: {MANIFEST} names {parts.manifest.config} after it",
                remedy=f"take --config={SCHEDULER_FILE} out of {MANIFEST}, then install again: ours comes last then, "
                "and holds what is in the other file",
            )
        edits = list(parts.additions(text, name))
        return _checked(text, edits, added=name) if edits else text
    except edit.UnexpectedFormError as error:
        raise _unexpected(error) from error


def without_file(text: str) -> str:
    """Return a manifest without our flag, volume and mount; changes by others are kept.

    Raises:
        InstallError: as read does.
    """
    try:
        parts = _Parts.of(text)
        edits = [edit.drop(text, items, item) for items, item in parts.found if item is not None]
        return _checked(text, edits) if edits else text
    except edit.UnexpectedFormError as error:
        raise _unexpected(error) from error


def plan_files(text: str, *, scheduler_file: bytes, mode: int = 0o600) -> tuple[FileChange, ...]:
    """Return the changes that give the scheduler our file; `mode` is the manifest's own.

    The file comes before the manifest, because kubelet acts on the manifest at once.

    Raises:
        InstallError: as with_file does.
    """
    return (
        FileChange(SCHEDULER_FILE, content=scheduler_file, mode=0o600),
        FileChange(MANIFEST, content=with_file(text, scheduler_file).encode(), mode=mode),
    )


def restore_files(changes: Iterable[FileChange], text: str | None, *, mode: int = 0o600) -> tuple[FileChange, ...]:
    """Return an uninstall's changes, with changes by others since the install kept in the manifest.

    `kubeadm upgrade` writes a new manifest with another image: the bytes from before the install would be a downgrade.
    When nobody has changed the manifest, the result is those bytes.

    Args:
        changes: the changes that restore every path (baseline.restore_plan).
        text: the present manifest, None when it is gone.
        mode: the mode of the present manifest.

    Raises:
        InstallError: the manifest names our file, and that cannot be taken out.
    """
    return tuple(_restored(change, text, mode) for change in changes if change.path != MANIFEST or text is not None)


def _restored(change: FileChange, text: str | None, mode: int) -> FileChange:
    if change.path != MANIFEST or text is None:
        return change
    kept = without_file(text) if SCHEDULER_FILE in text else text
    return replace(change, content=kept.encode(), mode=change.mode if kept.encode() == change.content else mode)


def volume_name(scheduler_file: bytes) -> str:
    """Return the name of the volume that holds this file, with the file's hash in it."""
    return f"edgegpu-{hashlib.sha256(scheduler_file).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class _Parts:
    """The lists of a manifest that we add to, each with our item in it, None when it has none."""

    manifest: Manifest
    flags: yaml.SequenceNode
    flag: yaml.Node | None
    mounts: yaml.SequenceNode
    mount: yaml.Node | None
    volumes: yaml.SequenceNode
    volume: yaml.Node | None

    @classmethod
    def of(cls, text: str) -> "_Parts":
        root = edit.compose(text)
        pod = edit.values(text)
        index, manifest = understand(pod)
        spec = _needed(root, "spec")
        container = edit.sequence(spec, "containers").value[index]
        flags = edit.sequence(container, "args" if edit.child(container, "args") else "command")
        mounts, volumes = edit.sequence(container, "volumeMounts"), edit.sequence(spec, "volumes")
        return cls(
            manifest,
            flags,
            _first(flag for flag in flags.value if flag.value == _FLAG),
            mounts,
            _first(mount for mount in mounts.value if _says(edit.child(mount, "mountPath"), SCHEDULER_FILE)),
            volumes,
            _first(volume for volume in volumes.value if _host_path(volume) == SCHEDULER_FILE),
        )

    @property
    def found(self) -> tuple[tuple[yaml.SequenceNode, yaml.Node | None], ...]:
        return (self.flags, self.flag), (self.mounts, self.mount), (self.volumes, self.volume)

    def additions(self, text: str, name: str) -> Iterator[edit.TextEdit]:
        if self.flag is None:
            yield edit.append(text, self.flags, _FLAG)
        for items, item, wanted in (
            (self.mounts, self.mount, _mount(name)),
            (self.volumes, self.volume, _volume(name)),
        ):
            if item is None:
                yield edit.append(text, items, wanted)
            elif not _says(_needed(item, "name"), name):
                yield edit.replace(text, _needed(item, "name"), name)


def _mount(name: str) -> dict[str, object]:
    return {"mountPath": SCHEDULER_FILE, "name": name, "readOnly": True}


def _volume(name: str) -> dict[str, object]:
    # type File: when the file is missing, kubelet reports it in an event and makes no empty folder of that name
    return {"hostPath": {"path": SCHEDULER_FILE, "type": "File"}, "name": name}


def _checked(text: str, edits: list[edit.TextEdit], *, added: str = "") -> str:
    """Return the text with the edits made, after checking that its values change as intended and in nothing else."""
    changed = edit.apply(text, edits)
    pod = edit.values(changed)
    _, manifest = understand(pod)
    same = _bare(pod) == _bare(edit.values(text))
    if not same or manifest.ours != bool(added) or (added and added not in manifest.volumes):
        raise edit.UnexpectedFormError("an edit would change other parts of the file (aliases?)")
    return changed


def _bare(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a pod without our flag, volume and mount."""
    pod = copy.deepcopy(pod)
    spec = pod["spec"]
    spec["volumes"] = [one for one in spec["volumes"] if (one.get("hostPath") or {}).get("path") != SCHEDULER_FILE]
    for container in spec["containers"]:
        for key in ("command", "args"):
            if key in container:
                container[key] = [word for word in container[key] if word != _FLAG]
        if "volumeMounts" in container:
            mounts = container["volumeMounts"]
            container["volumeMounts"] = [one for one in mounts if one.get("mountPath") != SCHEDULER_FILE]
    return pod


def _needed(node: yaml.Node, key: str) -> yaml.Node:
    found = edit.child(node, key)
    if found is None:
        raise edit.UnexpectedFormError(f"{key} is missing in the mapping of line {node.start_mark.line + 1}")
    return found


def _host_path(volume: yaml.Node) -> str:
    source = edit.child(volume, "hostPath")
    path = edit.child(source, "path") if source else None
    return str(path.value) if path else ""


def _says(node: yaml.Node | None, word: str) -> bool:
    return node is not None and node.value == word


def _first(nodes: Iterator[yaml.Node]) -> yaml.Node | None:
    return next(nodes, None)


def _unexpected(error: Exception) -> InstallError:
    return InstallError(f"cannot change {MANIFEST}: {error}", remedy=REPAIR)
