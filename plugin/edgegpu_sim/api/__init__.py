"""A small Kubernetes API: what edgegpu's processes use of the real one, over real HTTP."""

from edgegpu_sim.api.errors import ApiError
from edgegpu_sim.api.objects import Json, Selector
from edgegpu_sim.api.registry import Registry
from edgegpu_sim.api.routes import Route
from edgegpu_sim.api.server import ApiServer, Call, Settings, write_kubeconfig
from edgegpu_sim.api.store import Change

__all__ = [
    "ApiError",
    "ApiServer",
    "Call",
    "Change",
    "Json",
    "Registry",
    "Route",
    "Selector",
    "Settings",
    "write_kubeconfig",
]
