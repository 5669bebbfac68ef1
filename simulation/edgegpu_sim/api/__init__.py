"""A small Kubernetes API over real HTTP, with the parts that edgegpu's processes use."""

from edgegpu_sim.api.errors import ApiError
from edgegpu_sim.api.objects import Json, ObjectSelector
from edgegpu_sim.api.registry import Registry
from edgegpu_sim.api.requests import Route
from edgegpu_sim.api.server import ApiServer, LoggedCall, ServerSettings, write_kubeconfig
from edgegpu_sim.api.store import StoreEvent

__all__ = [
    "ApiError",
    "ApiServer",
    "Json",
    "LoggedCall",
    "ObjectSelector",
    "Registry",
    "Route",
    "ServerSettings",
    "StoreEvent",
    "write_kubeconfig",
]
