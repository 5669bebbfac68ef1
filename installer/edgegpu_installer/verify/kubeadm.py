"""The check that kubelet runs a healthy scheduler from its present manifest; probes and pauses are passed in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgegpu_installer.changes import Deadline
from edgegpu_installer.errors import InstallError
from edgegpu_installer.scheduler.manifest import Manifest

STABLE_S = 10.0
"""How long the scheduler must stay ready in one container; with a bad file it exits within a second."""

_EVERY_S = 0.5
_ENDS_AGAIN = 2
_MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class SchedulerSample:
    """The state of a scheduler at one moment."""

    pod: Mapping[str, Any] | None = None
    """The scheduler's mirror pod; None when the API server has none."""
    lease: Mapping[str, Any] | None = None
    """The lease kube-system/kube-scheduler."""
    healthz: str = ""
    """What its healthz says is wrong; empty when nothing is."""
    unseen: str = ""
    """Why the state could not be read; empty when it could."""


@dataclass(frozen=True, slots=True)
class _Since:
    """The moment since which the same container has been ready, and the lease's renewal at that moment."""

    container: str
    at_s: float
    renewed: str


def mirror_name(manifest: Manifest, node: str) -> str:
    """Return the name of a static pod's mirror pod in the API: kubelet adds the node's name."""
    return f"{manifest.pod}-{node.lower()}"


def wait_until_served(
    manifest: Manifest,
    *,
    look: Callable[[], SchedulerSample],
    last_words: Callable[[], str],
    deadline: Deadline,
    pause: Callable[[float], None],
    stable_s: float = STABLE_S,
) -> None:
    """Wait until the manifest's scheduler has been ready for stable_s in one container, and has renewed its lease.

    Args:
        manifest: the present one on the disk.
        look: returns the state of the scheduler.
        last_words: returns the last line that a scheduler logged before it ended.
        deadline: when to give up.
        pause: waits for a number of seconds.
        stable_s: how long the scheduler must stay ready.

    Raises:
        InstallError: the scheduler ends again and again, or is not ready at the deadline.
    """
    since: _Since | None = None
    while True:
        seen = look()
        if why := lacks(manifest, seen):
            since = None
            if ends_again(manifest, seen):
                raise _failed(f"{why}: {last_words()}".rstrip(": "))
        else:
            since = _same(since, seen, now_s=deadline.clock())
            why = _unsettled(since, manifest, seen, now_s=deadline.clock(), stable_s=stable_s)
            if not why:
                return
        if deadline.passed():
            raise _failed(why)
        pause(min(_EVERY_S, deadline.remaining_s()))


def lacks(manifest: Manifest, seen: SchedulerSample) -> str:
    """Return what is still missing, in words; empty when the manifest's scheduler is ready."""
    if seen.unseen:
        return seen.unseen
    if seen.pod is None:
        return "kubelet shows no pod of it yet"
    if not _is_of(manifest, seen.pod):
        return "kubelet still runs it as the manifest was before"
    status = _status(manifest, seen.pod)
    if not status.get("ready"):
        return f"its container is not ready ({_state(status)})"
    return f"it is not well: {seen.healthz}" if seen.healthz else ""


def ends_again(manifest: Manifest, seen: SchedulerSample) -> bool:
    """Return whether the manifest's scheduler has ended so often that waiting is useless."""
    if seen.pod is None or not _is_of(manifest, seen.pod):
        return False
    return int(_status(manifest, seen.pod).get("restartCount") or 0) >= _ENDS_AGAIN


def _is_of(manifest: Manifest, pod: Mapping[str, Any]) -> bool:
    """Return whether a mirror pod is of the present manifest: same command, same volumes, ours with the file's hash."""
    spec = pod["spec"]
    named = [one for one in spec["containers"] if one["name"] == manifest.container]
    words = (*(named[0].get("command") or []), *(named[0].get("args") or [])) if named else ()
    volumes = tuple(volume["name"] for volume in spec.get("volumes") or [])
    owners = {owner.get("kind") for owner in pod["metadata"].get("ownerReferences") or ()}
    mirror = _MIRROR in (pod["metadata"].get("annotations") or {}) and "Node" in owners  # kubelet's, not an author's
    return (
        mirror
        and "deletionTimestamp" not in pod["metadata"]
        and (words, volumes)
        == (
            manifest.command,
            manifest.volumes,
        )
    )


def _status(manifest: Manifest, pod: Mapping[str, Any]) -> Mapping[str, Any]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    found: list[Mapping[str, Any]] = [one for one in statuses if one["name"] == manifest.container]
    return found[0] if found else {}


def _state(status: Mapping[str, Any]) -> str:
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        for what in state.values():
            if reason := what.get("reason"):
                return f"{reason}, restarted {status.get('restartCount', 0)} times"
    return "it starts"


def _same(since: _Since | None, seen: SchedulerSample, *, now_s: float) -> _Since:
    container = str(seen.pod["metadata"]["uid"]) if seen.pod else ""
    for status in ((seen.pod or {}).get("status") or {}).get("containerStatuses") or []:
        container += f" {status.get('containerID')}"
    if since is not None and since.container == container:
        return since
    return _Since(container, now_s, _renewed(seen))


def _unsettled(since: _Since, manifest: Manifest, seen: SchedulerSample, *, now_s: float, stable_s: float) -> str:
    if now_s - since.at_s < stable_s:
        return "it has not been ready for long enough"
    if manifest.flags.get("leader-elect") != "false" and _renewed(seen) in {"", since.renewed}:
        return "nobody renews the lease kube-system/kube-scheduler"
    return ""


def _renewed(seen: SchedulerSample) -> str:
    return str(((seen.lease or {}).get("spec") or {}).get("renewTime") or "")


def _failed(why: str) -> InstallError:
    return InstallError(
        f"cannot see that the scheduler works: {why}",
        remedy="see `journalctl -u kubelet -e` and /var/log/pods/kube-system_kube-scheduler-*",
    )
