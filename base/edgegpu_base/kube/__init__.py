"""A thin REST and watch client of the Kubernetes API over urllib3."""

from edgegpu_base.kube.client import Json, KubeClient, WatchStream
from edgegpu_base.kube.errors import Conflict, ExpiredError, Forbidden, KubeError, NotFound, Unavailable
from edgegpu_base.kube.events import EventRecorder, PodRef
from edgegpu_base.kube.kubeconfig import ApiAccess, KubeconfigError
from edgegpu_base.kube.kubeconfig import load as load_kubeconfig
from edgegpu_base.kube.objects import KubeObjects
from edgegpu_base.kube.watch import Handlers, Pace, Reflector

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
