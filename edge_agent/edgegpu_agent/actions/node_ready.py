"""Whether this node is Ready by a heartbeat of a kubelet that started late enough, asked as the node itself."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from edgegpu_base.kube import ApiAccess, Forbidden, KubeClient, KubeconfigError, KubeError, load_kubeconfig

from edgegpu_installer.layout import K3S_DATA, KUBECONFIG, Layout

_NODE = "system:node:"
_CALL_S = 5.0
_SECOND_S = 1.0
"""Heartbeats are whole seconds."""


@dataclass(frozen=True, slots=True)
class AsNode:
    """Asks with kubelet's own certificate, whose name is the node's."""

    layout: Layout
    candidates: tuple[str, ...] = (f"{K3S_DATA}/agent/kubelet.kubeconfig", KUBECONFIG)

    def __call__(self, since_s: float) -> bool | None:
        """Say so, as `restarts.NodeReady`. An API server that does not answer yet says that the node is not Ready."""
        found = self._access()
        if found is None:
            return None
        access, name = found
        try:
            client = KubeClient(access, timeout_s=_CALL_S)
            try:
                return ready_since(client.get(f"/api/v1/nodes/{name}"), since_s)
            finally:
                client.close()
        except Forbidden:
            return None
        except KubeError:
            return False

    def _access(self) -> tuple[ApiAccess, str] | None:
        for path in self.candidates:
            try:
                access = load_kubeconfig(self.layout.at(path))
            except KubeconfigError:
                continue
            if name := _name_in(access.cert_pem or ""):
                return access, name
        return None


def ready_since(node: dict[str, Any], since_s: float) -> bool:
    """Say whether a Node object is Ready by a heartbeat that is not older."""
    for condition in (node.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "Ready":
            beat = dt.datetime.fromisoformat(str(condition.get("lastHeartbeatTime", "1970-01-01T00:00:00Z")))
            return condition.get("status") == "True" and beat.timestamp() >= since_s - _SECOND_S
    return False


def _name_in(pem: str) -> str:
    try:
        subject = x509.load_pem_x509_certificate(pem.encode()).subject
    except ValueError:
        return ""
    names = [str(one.value) for one in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return names[0].removeprefix(_NODE) if names and names[0].startswith(_NODE) else ""
