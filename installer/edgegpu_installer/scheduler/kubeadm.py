"""The kube-scheduler of a kubeadm cluster: its static pod's manifest, with our configuration file in it and without.

kubelet starts the pod anew when the manifest *means* something else than before (it hashes the pod, not the bytes).
The file that the scheduler reads is no part of that, so the volume's name carries its hash: another file, another pod.
kubelet takes every file of that folder for a manifest, whatever its ending, except those whose name begins with a dot.
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
    """Return what a manifest says.

    Raises:
        InstallError: it is no static pod that runs kube-scheduler as kubeadm lays it out, or has no use for our file.
    """
    try:
        return _Parts.of(text).manifest
    except edit.UnexpectedFormError as error:
        raise _unexpected(error) from error


def with_file(text: str, scheduler_file: bytes) -> str:
    """Return a manifest with our flag, volume and mount in it; the same text when all is there.

    Raises:
        InstallError: as read does, or the scheduler has another configuration file already.
    """
    name = volume_name(scheduler_file)
    try:
        parts = _Parts.of(text)
        if parts.manifest.config and not parts.manifest.ours:
            raise InstallError(
                f"cannot give the scheduler our configuration: {MANIFEST} names {parts.manifest.config} already",
                remedy=f"take --config={parts.manifest.config} out of {MANIFEST} (and what that file asks for, if the "
                "cluster needs it, to the cluster's administrators), then install again",
            )
        edits = list(parts.additions(text, name))
        return _checked(text, edits, added=name) if edits else text
    except edit.UnexpectedFormError as error:
        raise _unexpected(error) from error


def without_file(text: str) -> str:
    """Return a manifest as it would be had we never touched it: with_file undone, what others changed since then kept.

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
    """Return the changes that give the scheduler our file; mode is the manifest's own.

    Their order counts: kubelet acts on the manifest, and the file must be there by then.

    Raises:
        InstallError: as with_file does.
    """
    return (
        FileChange(SCHEDULER_FILE, content=scheduler_file, mode=0o600),
        FileChange(MANIFEST, content=with_file(text, scheduler_file).encode(), mode=mode),
    )


def restore_files(changes: Iterable[FileChange], text: str | None, *, mode: int = 0o600) -> tuple[FileChange, ...]:
    """Return an uninstall's changes with the manifest's put right: what others did to it since the install is kept.

    `kubeadm upgrade` writes the manifest anew, with another image: the bytes from before the install would be a
    downgrade. Where nobody has touched it the result is those bytes.

    Args:
        changes: what brings every path back to what it was (baseline.restore_plan).
        text: the manifest now, None when there is none any more.
        mode: of the manifest now.

    Raises:
        InstallError: our file is named in it, and cannot be taken out.
    """
    return tuple(_restored(change, text, mode) for change in changes if change.path != MANIFEST or text is not None)


def _restored(change: FileChange, text: str | None, mode: int) -> FileChange:
    if change.path != MANIFEST or text is None:
        return change
    kept = without_file(text) if SCHEDULER_FILE in text else text
    return replace(change, content=kept.encode(), mode=change.mode if kept.encode() == change.content else mode)


def volume_name(scheduler_file: bytes) -> str:
    """Return the name of the volume that brings this file to the scheduler."""
    return f"edgegpu-{hashlib.sha256(scheduler_file).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class _Parts:
    """The lists of a manifest that get something, each with what it has of us."""

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
    # type File: without the file kubelet says so in an event, and makes no empty folder of that name
    return {"hostPath": {"path": SCHEDULER_FILE, "type": "File"}, "name": name}


def _checked(text: str, edits: list[edit.TextEdit], *, added: str = "") -> str:
    """Return the text with the edits made, having seen that it means what it should and nothing else."""
    changed = edit.apply(text, edits)
    pod = edit.values(changed)
    _, manifest = understand(pod)
    same = _bare(pod) == _bare(edit.values(text))
    if not same or manifest.ours != bool(added) or (added and added not in manifest.volumes):
        raise edit.UnexpectedFormError("a change of it would change more than it should (aliases?)")
    return changed


def _bare(pod: dict[str, Any]) -> dict[str, Any]:
    """Return what a pod means without what is ours."""
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
