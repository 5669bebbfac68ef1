"""The manifest of a kube-scheduler: a static pod as kubeadm writes it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from edgegpu_installer.errors import InstallError
from edgegpu_installer.yaml_edit import UnexpectedFormError

MANIFEST = "/etc/kubernetes/manifests/kube-scheduler.yaml"
FOLDER = "/etc/kubernetes/edgegpu"
SCHEDULER_FILE = f"{FOLDER}/scheduler.yaml"
KUBECONFIG = "/etc/kubernetes/scheduler.conf"
REPAIR = (
    f"put {MANIFEST} back into the form that kubeadm writes (`kubeadm init phase control-plane scheduler`), "
    "and install again"
)

_TAG = re.compile(r":v1\.(\d+)\.\d+[^/:@]*(@|$)")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The fields of a scheduler's manifest that matter to edgegpu."""

    pod: str
    namespace: str
    container: str
    command: tuple[str, ...]
    """The container's command and arguments, joined."""
    volumes: tuple[str, ...]
    flags: dict[str, str]
    """The value of each flag; `true` for a flag without a value."""
    image: str = ""
    mounts: Mapping[str, str] = field(default_factory=dict)
    """The paths in its container that are of this machine, each with its path there."""

    @property
    def config(self) -> str:
        """The file that --config names; empty without that flag."""
        return self.flags.get("config", "")

    @property
    def ours(self) -> bool:
        """Whether --config names our file."""
        return self.config == SCHEDULER_FILE

    @property
    def other_config(self) -> str:
        """The file that it would read without ours; empty when --config names none."""
        paths = [value for name, value in _pairs(self.command[1:]) if name == "config" and value != SCHEDULER_FILE]
        return paths[-1] if paths else ""

    @property
    def minor(self) -> int | None:
        """The minor version in its image's tag, 33 for v1.33.13; None without such a tag."""
        tag = _TAG.search(self.image)
        return None if tag is None else int(tag[1])

    def host_path(self, path: str) -> str:
        """Return where a file of the container is on this machine; the same path when no mount holds it."""
        for parent in (PurePosixPath(path), *PurePosixPath(path).parents):
            if (there := self.mounts.get(str(parent))) is not None:
                return str(PurePosixPath(there) / PurePosixPath(path).relative_to(parent))
        return path

    @property
    def kubeconfig(self) -> str:
        """The scheduler's kubeconfig, which our file has to name (clientConnection.kubeconfig)."""
        return self.flags.get("kubeconfig", KUBECONFIG)

    @property
    def healthz(self) -> str:
        """The URL of the scheduler's healthz, as the node itself reaches it."""
        host = self.flags.get("bind-address", "")
        host = "127.0.0.1" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 - compared, not listened on
        return f"https://{f'[{host}]' if ':' in host else host}:{self.flags.get('secure-port', '10259')}/healthz"


def understand(pod: dict[str, Any]) -> tuple[int, Manifest]:
    """Return the index of the container that runs the scheduler, and the manifest of its pod."""
    try:
        return _understood(pod)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnexpectedFormError(f"it is not a Pod that kubelet accepts ({error!r})") from error


def _understood(pod: dict[str, Any]) -> tuple[int, Manifest]:
    if (pod.get("apiVersion"), pod.get("kind")) != ("v1", "Pod"):
        raise UnexpectedFormError("it is not a v1 Pod")
    spec = pod["spec"]
    commands = [[*(one.get("command") or []), *(one.get("args") or [])] for one in spec["containers"]]
    runs = [index for index, words in enumerate(commands) if words and PurePosixPath(words[0]).name == "kube-scheduler"]
    if len(runs) != 1:
        raise UnexpectedFormError(f"{len(runs)} of its containers have a command that begins with kube-scheduler")
    container, words = spec["containers"][runs[0]], tuple(str(word) for word in commands[runs[0]])
    if spec.get("hostNetwork") is not True:
        raise InstallError(
            f"cannot connect the scheduler to the extender: {MANIFEST} has no hostNetwork, "
            "so 127.0.0.1 in that pod is not this machine's",
            remedy=REPAIR,
        )
    if any((scope.get("securityContext") or {}).get("runAsUser") for scope in (spec, container)):
        raise InstallError(
            f"cannot give the scheduler edgegpu's configuration: {MANIFEST} runs it without root, and the file with "
            "the extender's key is root's alone",
            remedy="switch kubeadm's feature RootlessControlPlane off, or leave the GPUs of this cluster unshared",
        )
    volumes = tuple(str(volume["name"]) for volume in spec.get("volumes") or [])
    metadata = pod["metadata"]
    return runs[0], Manifest(
        pod=str(metadata["name"]),
        namespace=str(metadata.get("namespace") or "default"),
        container=str(container["name"]),
        command=words,
        volumes=volumes,
        flags=flags_of(words[1:]),
        image=str(container.get("image") or ""),
        mounts=_mounts(spec, container),
    )


def _mounts(spec: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
    """Return the paths in the container that are of this machine, each with its path there."""
    there = {
        str(volume["name"]): str(volume["hostPath"]["path"])
        for volume in spec.get("volumes") or []
        if volume.get("hostPath")
    }
    mounts = container.get("volumeMounts") or []
    return {
        str(one["mountPath"]): there[one["name"]] for one in mounts if one["name"] in there and "subPath" not in one
    }


def flags_of(words: tuple[str, ...]) -> dict[str, str]:
    """Return the values of flags as the flag library of Kubernetes reads them; the last value of a flag counts."""
    return dict(_pairs(words))


def _pairs(words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        following = words[index + 1] if index + 1 < len(words) else ""
        yield name, value if equals else "true" if not following or following.startswith("-") else following
