"""The model of the demo's scenarios: services, pods, and a cluster that is embedded or real."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from edgegpu_agent.cli.clients.document import StatusDocument

Json = dict[str, Any]

CONTAINER = "main"
LABEL = "edgegpu.io/demo"
"""The label that a service's pods carry; its value is the service's name."""

_LINE = re.compile(r"^(?P<indent>\s*)(?:GPU|MIG) .*\(UUID: (?P<uuid>[^)]+)\)\s*$", re.MULTILINE)


class DemoError(Exception):
    """The demo cannot go on; the text reads "cannot x: cause" and says what to do."""


@dataclass(frozen=True, slots=True)
class DemoService:
    """One service of the demo: a Deployment with one pod."""

    name: str
    units: int
    core: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRow:
    """The result of one pod; `sees` are the UUIDs that `nvidia-smi -L` lists inside it.

    `command` is the command line that was typed at the cloud; empty where there was none.
    """

    scenario: str
    pod: str
    units: int
    core: int
    phase: str
    card_index: int | None = None
    card_uuid: str = ""
    sees: tuple[str, ...] = ()
    reason: str = ""
    command: str = ""

    def document(self) -> Json:
        """Return the row for demo.json; a pod without a card has null as its index and an empty UUID."""
        return {**asdict(self), "sees": list(self.sees)}


class Bed(Protocol):
    """A cluster with the plugin on one node, as the scenarios use it."""

    namespace: str
    node: str
    timeout_s: float
    """How long a pod may take to run, in seconds."""
    policy: str
    """The pods' own placement policy; empty: the node's."""

    @property
    def memory_resource(self) -> str:
        """The name of the memory resource."""

    def manifest(self, service: DemoService) -> Json:
        """Return the service's Deployment."""

    def apply(self, manifest: Json) -> None:
        """Create or change a Deployment."""

    def delete(self, service: str) -> None:
        """Delete a service's Deployment with its pods."""

    def pods(self, service: str) -> list[Json]:
        """Return a service's pods as API objects."""

    def events(self, pod: Json) -> list[str]:
        """Return a pod's events, `REASON: message`, oldest first."""

    def sees(self, pod: Json) -> str:
        """Return what `nvidia-smi -L` prints in a pod's container."""

    def kubelet_says(self, pod: Json) -> frozenset[str] | None:
        """Return the cards that kubelet's PodResources names for a pod; None where that service cannot be asked."""

    def status(self) -> StatusDocument:
        """Return the plugin's status document."""

    def pause(self) -> None:
        """Wait for a change or for a moment.

        Raises:
            DemoError: no change can come any more.
        """


def uuids(listing: str) -> tuple[str, ...]:
    """Return the UUIDs in the output of `nvidia-smi -L`: of the MIG devices if there are any, else of the GPUs."""
    found = [(bool(match["indent"]), match["uuid"]) for match in _LINE.finditer(listing)]
    migs = tuple(uuid for is_mig, uuid in found if is_mig)
    return migs or tuple(uuid for _, uuid in found)


def deployment(
    service: DemoService,
    *,
    namespace: str,
    resources: Mapping[str, str],
    image: str,
    annotations: Mapping[str, str],
    more: Mapping[str, Any],
) -> Json:
    """Return a service's Deployment; `more` goes into the pod's spec.

    Its strategy is Recreate: in a rolling update the new pod would wait for units that the old one holds.
    """
    limits = {resources["memory"]: str(service.units), resources["core"]: str(service.core)}
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "resources": {"limits": limits},
    }
    labels = {LABEL: service.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": service.name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": dict(annotations)},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, **more},
            },
        },
    }


def asked(pod: Json, resource: str) -> int:
    """Return how much of a resource a pod's container asks for."""
    limits = (pod["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    return int(limits.get(resource, 0))
