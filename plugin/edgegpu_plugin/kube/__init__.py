"""A thin REST and watch adapter to the Kubernetes API over urllib3; the only package that speaks to the API server."""

from edgegpu_plugin.kube.access import ApiAccess
from edgegpu_plugin.kube.client import Json, KubeClient, WatchStream
from edgegpu_plugin.kube.errors import Conflict, ExpiredError, Forbidden, KubeError, NotFound, Unavailable
from edgegpu_plugin.kube.events import EventRecorder, PodRef
from edgegpu_plugin.kube.kubeconfig import KubeconfigError
from edgegpu_plugin.kube.kubeconfig import load as load_kubeconfig
from edgegpu_plugin.kube.objects import KubeObjects
from edgegpu_plugin.kube.watch import Handlers, Pace, Reflector

__all__ = [
    "ApiAccess",
    "Conflict",
    "EventRecorder",
    "ExpiredError",
    "Forbidden",
    "Handlers",
    "Json",
    "KubeClient",
    "KubeError",
    "KubeObjects",
    "KubeconfigError",
    "NotFound",
    "Pace",
    "PodRef",
    "Reflector",
    "Unavailable",
    "WatchStream",
    "load_kubeconfig",
]
