"""The agent's calls to the API server for app limits: workloads, leases and watches."""

from edgegpu_agent.kube.apps import Apps, FoundWorkload, WorkloadRef
from edgegpu_agent.kube.client import (
    AgentClient,
    Json,
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeUnavailable,
)
from edgegpu_agent.kube.leases import LeaseRecord, Leases
from edgegpu_agent.kube.watches import App, AppWatch, Watches

__all__ = [
    "AgentClient",
    "App",
    "AppWatch",
    "Apps",
    "FoundWorkload",
    "Json",
    "KubeConflict",
    "KubeError",
    "KubeForbidden",
    "KubeGone",
    "KubeUnavailable",
    "LeaseRecord",
    "Leases",
    "Watches",
    "WorkloadRef",
]
