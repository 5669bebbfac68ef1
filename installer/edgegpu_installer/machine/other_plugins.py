"""Other device plugins for the same cards, found by a node's resources, by sockets and by pods; pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from edgegpu_installer.machine.facts import MachineFacts

_REMOVE = "take it off this node (its DaemonSet's nodeSelector, or helm uninstall), then install again"


@dataclass(frozen=True, slots=True)
class OtherPlugin:
    """Another device plugin on the node; `seen` says by what it was found."""

    name: str
    seen: str
    remedy: str = _REMOVE


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    resources: re.Pattern[str]
    sockets: re.Pattern[str]
    images: re.Pattern[str]


_KNOWN = (
    _Known(
        "NVIDIA's k8s-device-plugin",
        re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.+)"),
        re.compile(r"nvidia-(?!vgpu).*\.sock|nvidia\.sock"),
        re.compile(r"(^|/)k8s-device-plugin(:|@|$)|(^|/)gpu-operator(:|@|$)"),
    ),
    _Known(
        "HAMi",
        re.compile(r"nvidia\.com/gpu(mem|cores|mem-percentage)|volcano\.sh/vgpu-.*"),
        re.compile(r"(hami|vgpu|nvidia-vgpu).*\.sock"),
        re.compile(r"(^|/)(hami|k8s-vgpu-scheduler|k8s-vdevice|volcano-vgpu-device-plugin)(:|@|$)"),
    ),
    _Known(
        "gpu-manager",
        re.compile(r"tencent\.com/vcuda-(core|memory)"),
        re.compile(r"(vcore|vmemory|vcuda).*\.sock"),
        re.compile(r"(^|/)gpu-manager(:|@|$)"),
    ),
)


def other_plugins(facts: MachineFacts, *, memory: str, core: str) -> Iterator[OtherPlugin]:
    """Yield the other device plugins of a node.

    A resource with 0 is no sign of one: it stays in the Node object after its plugin is gone.
    """
    node = facts.node
    offered = [name for name in (node.allocatable if node else {}) if node is not None and node.has(name)]
    pods = [pod for pod in (node.pods if node else ()) if not pod.over]
    ours_there = facts.installed is not None and facts.installed.unit
    known = False
    for other in _KNOWN:
        signs = [f"the node offers {name}" for name in offered if other.resources.fullmatch(name)]
        signs += [f"the socket {name}" for name in facts.sockets if other.sockets.fullmatch(name)]
        images = [(pod, image) for pod in pods for image in pod.images if other.images.search(image)]
        signs += [f"the pod {pod.namespace}/{pod.name} runs {image}" for pod, image in images]
        if signs:
            known = True
            yield OtherPlugin(other.name, "; ".join(dict.fromkeys(signs)))
    same = [name for name in offered if name in {memory, core}]
    if same and not ours_there and not known:
        yield OtherPlugin(
            "one that offers our resources",
            f"the node offers {' and '.join(same)}",
            remedy="find it (k3s kubectl get pods -A -o wide; ls /var/lib/kubelet/device-plugins) and take it off",
        )
