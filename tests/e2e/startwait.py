"""A k3s whose kubelet has a resolv.conf of its own, at which it waits for the devices at its start."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.conftest import SERVER
from e2e.k3s import EXTENDER, K3s
from lab.labkit import wait_until

OWN = "/var/lib/kubelet/resolv.conf"
_DROP_IN = "/etc/rancher/k3s/config.yaml.d/70-edgegpu-start.yaml"


@contextmanager
def own_resolv_conf(k3s: K3s, *, wait_at_start: bool = True) -> Iterator[None]:
    """Give kubelet a link of its own as docs/box/restarts.md says; the plugin takes the setting at its next start."""
    server, node = k3s.server, k3s.nodes[SERVER]
    server.exec("ln", "-sfn", "/etc/resolv.conf", OWN)
    server.write(_DROP_IN, f"resolv-conf: {OWN}\n")
    server.restart()
    node.configure(extender={"listen": EXTENDER}, kubelet={"resolv_conf": OWN, "wait_at_start": wait_at_start})
    try:
        yield
    finally:
        node.configure(extender={"listen": EXTENDER})
        server.path(_DROP_IN).unlink()
        server.restart()


def start_wait(k3s: K3s) -> dict[str, Any]:
    """Return what the plugin's status says of kubelet's last start."""
    wait: dict[str, Any] = k3s.nodes[SERVER].status()["kubelet"]["start_wait"]
    return wait


def link_of(k3s: K3s) -> Path:
    """Return where this machine sees the link."""
    return k3s.server.path(OWN)


def wait_given_back(k3s: K3s) -> None:
    """Wait until kubelet reads the machine's file again."""
    wait_until(lambda: link_of(k3s).is_symlink(), what="kubelet's resolv.conf is the link again")


def running_init(k3s: K3s, namespace: str, replicas: int) -> set[str]:
    """Return the UIDs of the pods of the app `init`, once so many run and no other is there."""

    def probe() -> set[str]:
        pods = k3s.pods(namespace, "init")
        ready = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        whole = len(pods) == len(ready) == replicas
        return {pod["metadata"]["uid"] for pod in pods} if whole else set()

    return wait_until(probe, what=f"{replicas} pods run and no other is there", timeout_s=300, every_s=0.5)


def ended(k3s: K3s, namespace: str) -> set[str]:
    """Return the UIDs of the pods that kubelet has ended: those that it refuses while they run, and that obey TERM.

    Such a pod is `Succeeded` (see the reconciler), and `Failed` is one that does not obey.
    """
    pods = k3s.pods(namespace)
    return {pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") in {"Failed", "Succeeded"}}
