"""The scheduler extender: filter, prioritize, preempt and bind for GPU pods on all nodes of the cluster."""

from edgegpu_plugin.extender.bind import HoldBackTime, ambiguous
from edgegpu_plugin.extender.cluster import ClusterState
from edgegpu_plugin.extender.extender import Extender, ExtenderConfig
from edgegpu_plugin.extender.node_capacity import KnownNode, NodeCapacity
from edgegpu_plugin.extender.server import CertificateError, ExtenderError, TlsFiles

__all__ = [
    "CertificateError",
    "ClusterState",
    "Extender",
    "ExtenderConfig",
    "ExtenderError",
    "HoldBackTime",
    "KnownNode",
    "NodeCapacity",
    "TlsFiles",
    "ambiguous",
]
