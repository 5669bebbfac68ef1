"""The probe of the scheduler that kubelet runs: its mirror pod and lease in the API, its healthz, its log."""

import time
from collections.abc import Callable
from pathlib import Path

from edgegpu_base.tls import client_context
from edgegpu_installer.changes import Deadline
from edgegpu_installer.cluster.client import ClusterClient, ClusterError
from edgegpu_installer.cluster.https import TlsTarget, ask
from edgegpu_installer.cluster.kinds import LEASE, POD
from edgegpu_installer.errors import InstallError
from edgegpu_installer.layout import Layout
from edgegpu_installer.scheduler import kubeadm
from edgegpu_installer.scheduler.manifest import MANIFEST, Manifest
from edgegpu_installer.verify.kubeadm import STABLE_S, SchedulerSample, mirror_name, wait_until_served

_NAMESPACE = "kube-system"
_READ = "check that this is a control-plane node of kubeadm's"
_HEALTHZ_S = 5.0
_OK = 200
_LONGEST = 400
_LOGS = "/var/log/pods"


def verify_scheduler(
    layout: Layout,
    cluster: ClusterClient,
    *,
    node: str,
    deadline: Deadline,
    pause: Callable[[float], None] = time.sleep,
    stable_s: float = STABLE_S,
) -> None:
    """Wait until kubelet runs the scheduler of the manifest on the disk, and the scheduler is healthy.

    Raises:
        InstallError: that is not so at the deadline, or cannot become so.
    """
    manifest = read_manifest(layout)
    wait_until_served(
        manifest,
        look=lambda: look(cluster, manifest, node=node),
        last_words=lambda: last_words(layout, manifest, node=node),
        deadline=deadline,
        pause=pause,
        stable_s=stable_s,
    )


def read_manifest(layout: Layout) -> Manifest:
    """Return the scheduler's manifest on this machine, parsed.

    Raises:
        InstallError: the manifest cannot be read, or is not as kubeadm writes it.
    """
    return kubeadm.read(_text(layout))


def manifest_text(layout: Layout) -> str | None:
    """Return the text of the scheduler's manifest on this machine; None when it is gone.

    Raises:
        InstallError: it cannot be read.
    """
    return _text(layout) if layout.at(MANIFEST).exists() else None


def _text(layout: Layout) -> str:
    path = layout.at(MANIFEST)
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise InstallError(f"cannot read {path}: {error.strerror}", _READ) from error
    except UnicodeDecodeError as error:
        raise InstallError(f"cannot read {path}: it is not text", _READ) from error


def look(cluster: ClusterClient, manifest: Manifest, *, node: str) -> SchedulerSample:
    """Return the present state of a node's scheduler; raises nothing when something does not answer."""
    try:
        return SchedulerSample(
            pod=cluster.find(POD, mirror_name(manifest, node), manifest.namespace),
            lease=cluster.find(LEASE, manifest.flags.get("leader-elect-resource-name", "kube-scheduler"), _NAMESPACE),
            healthz=healthz(manifest.healthz),
        )
    except ClusterError as error:
        return SchedulerSample(unseen=error.message)


def healthz(url: str) -> str:
    """Call the healthz of a scheduler on this machine; return what is wrong, empty when nothing is."""
    context = client_context(verify=False)  # its certificate is self-signed, and nothing secret is sent
    try:
        answer = ask(url, TlsTarget(context=context, timeout_s=_HEALTHZ_S))
    except OSError as error:
        return f"{url}: {error}"
    said = answer.body[:_LONGEST].decode("utf-8", "replace").strip()
    if answer.status != _OK:
        return f"{url}: {answer.status}"
    return "" if said == "ok" else f"{url}: {said}"


def last_words(layout: Layout, manifest: Manifest, *, node: str) -> str:
    """Return the last line that the node's scheduler logged, from kubelet's log files; empty when there is none."""
    pods = f"{manifest.namespace}_{mirror_name(manifest, node)}_*/{manifest.container}/*.log"
    for log in sorted(layout.at(_LOGS).glob(pods), key=_changed, reverse=True):
        if lines := _tail(log):
            # each line begins with a time, the stream, and whether the line is complete (the CRI's log format)
            return lines[-1].split(" ", 3)[-1][:_LONGEST]
    return ""


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 16384))
            return [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return []
