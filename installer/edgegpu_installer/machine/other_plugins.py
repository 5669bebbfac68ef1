"""Other device plugins for the same cards, by what serves: resources that the node offers, sockets, pods; pure.

No list of other products: a plugin is known by the ids of its devices (NVIDIA's UUIDs of this machine's cards), by the
driver that its process has loaded, or by a name that speaks of GPUs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from edgegpu_installer.layout import DEVICE_PLUGINS
from edgegpu_installer.machine.facts import MachineFacts
from edgegpu_installer.machine.node import Pod

_GPU = re.compile(r"gpu|cuda|/mig-", re.IGNORECASE)
_GPU_POD = re.compile(r"gpu|cuda|nvidia", re.IGNORECASE)
_OTHER_MAKER = re.compile(r"(^|\.)(amd|intel)\.")
"""Domains of makers whose GPUs are not NVIDIA's, in names such as `amd.com/gpu` and `gpu.intel.com/i915`."""
_REMOVE = "take it off this node (its DaemonSet's nodeSelector, or helm uninstall), then install again"
_FIND = f"find it (kubectl get pods -A -o wide; ls {DEVICE_PLUGINS}) and take it off"


@dataclass(frozen=True, slots=True)
class OtherPlugin:
    """Another device plugin on the node; `seen` says by what it was found."""

    name: str
    seen: str
    remedy: str = _REMOVE


def other_plugins(facts: MachineFacts, *, memory: str, core: str) -> Iterator[OtherPlugin]:
    """Yield what else hands out this machine's cards.

    A resource with 0 is no sign of a plugin: it stays in the Node object after its plugin is gone. Neither is a socket
    on which nobody answers, nor a pod that does not register with kubelet.
    """
    own = {memory, core}
    offered = [name for name in _offered(facts) if name not in own]
    resources = [name for name in offered if _is_of_cards(name, facts)]
    pods = [pod for pod in (facts.node.pods if facts.node else ()) if _registers(pod)]
    names = {
        **{name: f"the node offers {name}" for name in resources},
        **{f"pod {pod.namespace}/{pod.name}": "it registers with kubelet, and its name says GPUs" for pod in pods},
        **dict(_sockets(facts)),
    }
    if names:
        yield OtherPlugin(", ".join(names), "; ".join(dict.fromkeys(names.values())))
        return
    ours_there = facts.installed is not None and facts.installed.unit
    same = [name for name in _offered(facts) if name in own]
    if same and not ours_there:
        yield OtherPlugin(
            "one that offers our resources", f"the node offers {' and '.join(same)}", f"{_FIND}, then install again"
        )


def _offered(facts: MachineFacts) -> list[str]:
    node = facts.node
    return [name for name in node.allocatable if node.has(name)] if node is not None else []


def _is_of_cards(name: str, facts: MachineFacts) -> bool:
    """Return whether the devices of a resource are this machine's cards: by their ids, else by its name."""
    cards = [card.uuid for card in facts.cards.cards]
    if any(card in device for card in cards for device in facts.registered.get(name, ())):
        return True
    return bool(_GPU.search(name)) and not _OTHER_MAKER.search(name.partition("/")[0])


def _registers(pod: Pod) -> bool:
    """Return whether a pod has the folder of device plugins, and calls itself one for GPUs.

    Of an image its last part speaks: registries and makers have GPUs in their names without handing any out.
    """
    if pod.over or DEVICE_PLUGINS not in pod.host_paths:
        return False
    return any(_GPU_POD.search(word) for word in (pod.name, *(image.rpartition("/")[2] for image in pod.images)))


def _sockets(facts: MachineFacts) -> Iterator[tuple[str, str]]:
    for socket in facts.sockets:
        if not socket.is_served:
            continue
        who = socket.program or "somebody"
        if socket.has_driver:
            yield f"socket {socket.name}", f"{who} answers on {socket.name}, and has loaded NVIDIA's driver"
        elif _GPU_POD.search(socket.name):
            yield f"socket {socket.name}", f"{who} answers on {socket.name}"
