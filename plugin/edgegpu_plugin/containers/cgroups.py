"""The pod and the container of a process, from the names of its cgroups."""

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_UID = r"(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
_PODS = "kubepods"
_POD = re.compile(rf"[/-]pod{_UID}(?:\.slice)?(?:[/:](?:[a-z-]+[:-])?(?P<id>[0-9a-f]{{64}})(?:\.scope)?)?(?=/|$)")
"""What stands behind `_PODS` in kubelet's names, with the driver of cgroups (`--cgroup-driver`) cgroupfs, systemd, and
systemd with a containerd that has cgroupfs; a UID has `_` for each dash in the last two:

    kubepods/burstable/pod<UID>/<ID>
    kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice/cri-containerd-<ID>.scope
    kubepods-burstable-pod<UID>.slice:cri-containerd:<ID>

Pods of the class Guaranteed have no folder of a class. A static pod's UID is a hash without dashes. k3s inside a
container or a unit has more before `kubepods`, a container that makes cgroups of its own more behind its id.
"""


@dataclass(frozen=True, slots=True)
class CgroupOwner:
    """The pod of a process by the UID that kubelet uses; `container_id` is the runtime's, empty where none is named."""

    pod_uid: str
    container_id: str


def owner_of(cgroups: str) -> CgroupOwner | None:
    """Return the pod and the container in the text of /proc/PID/cgroup; None for a process of no pod.

    Version 1 has a line for each controller, version 2 one line. The outermost pod counts: a container may name the
    cgroups below its own as it likes.
    """
    for line in cgroups.split("\n"):
        _, _, behind = line.partition(_PODS)
        if (found := _POD.search(behind)) is not None:
            return CgroupOwner(found["uid"].replace("_", "-"), found["id"] or "")
    return None


_CONTAINER_ID = re.compile(rb"[0-9a-f]{64}")


def first_processes(proc: Path, containers: Collection[str]) -> dict[str, int]:
    """Return the lowest process of each of these containers, by the runtime's id; /proc is not read without need."""
    found: dict[str, int] = {}
    for folder in proc.iterdir() if containers else ():
        if folder.name.isdigit():
            with suppress(OSError):  # it has just ended
                for id_ in _CONTAINER_ID.findall((folder / "cgroup").read_bytes()):
                    name = id_.decode()
                    if name in containers:
                        found[name] = min(int(folder.name), found.get(name, 1 << 31))
    return found


_THREADS_AT = 17
"""In /proc/PID/stat behind the name."""


def owner_of_process(pid: int, proc: Path) -> CgroupOwner | None:
    """Return the pod and the container of a process; None for one of no pod, or that has ended.

    Whoever began a process may leave it listed for ever after its end.
    """
    folder = proc / str(pid)
    try:
        owner = owner_of((folder / "cgroup").read_text("utf-8", "replace"))
    except OSError:
        return None
    return None if owner is None or has_ended(folder) else owner


def any_runs(pods: Collection[str], proc: Path) -> bool:
    """Return whether a process of one of these pods, by kubelet's UID, is alive; /proc is not read without need."""
    numbers = (int(folder.name) for folder in proc.iterdir() if folder.name.isdigit()) if pods else iter(())
    owners = (owner_of_process(number, proc) for number in numbers)
    return any(owner is not None and owner.pod_uid in pods for owner in owners)


def has_ended(process: Path) -> bool:
    """Return whether all of a process has ended: where the first thread alone has, others go on."""
    try:
        words = stat_words(process)
        return words[0] in {"Z", "X"} and int(words[_THREADS_AT]) <= 1
    except OSError:
        return True
    except (ValueError, IndexError):
        return False


def stat_words(process: Path) -> list[str]:
    """Return what the kernel says of a process in /proc/PID/stat behind its name, from its state on. Raises OSError."""
    return (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()


_SETTLED_LOOKS = 2
"""At so many looks a process is read that is of no pod: runc and crun start what `exec` asks for, then move it."""


class _KnownProcess(NamedTuple):
    """A process as it was read: the pod by kubelet's UID, empty for none, and at how many looks it was read."""

    inode: int
    pod: str = ""
    looks: int = 0


@dataclass(eq=False, slots=True, kw_only=True)
class PodProcesses:
    """The pod of each process, remembered from look to look: on a busy machine to read all takes tens of milliseconds.

    The folder /proc/PID of a later process with the same number has another inode (`proc_pid_make_inode` of Linux), and
    the list of /proc names it, so that to see a new process takes no read of an old one. Where the kernel has dropped a
    folder from its memory meanwhile, its inode is new too, and it is read again.
    """

    proc: Path
    most_known: int = 4096
    """How many processes are remembered, in about a megabyte; those beyond are read at each look."""
    _known: dict[int, _KnownProcess] = field(default_factory=dict, init=False)

    def of(self, pods: Collection[str]) -> list[int]:
        """Return the processes of some pods, by kubelet's UID; without a pod /proc is not read, and all is forgotten.

        A process that the machine has moved into a pod later than its second look is not seen.
        """
        known: dict[int, _KnownProcess] = {}
        found = []
        for pid, inode in _listed(self.proc) if pods else ():
            process = self._read(pid, inode)
            if len(known) < self.most_known:
                known[pid] = process
            if process.pod in pods:
                found.append(pid)
        self._known = known
        return found

    def _read(self, pid: int, inode: int) -> _KnownProcess:
        """Return what is known of a process, which is read where that is not enough."""
        process = self._known.get(pid)
        if process is None or process.inode != inode:
            process = _KnownProcess(inode)
        if process.pod or process.looks >= _SETTLED_LOOKS:
            return process
        owner = owner_of_process(pid, self.proc)
        return _KnownProcess(inode, "" if owner is None else owner.pod_uid, process.looks + 1)


def _listed(proc: Path) -> list[tuple[int, int]]:
    """Return each process with the inode of its folder."""
    with os.scandir(proc) as folders:
        return [(int(folder.name), folder.inode()) for folder in folders if folder.name.isdigit()]
