"""The wire types of the scheduler's extender API: JSON with capitalised keys (kube-scheduler/extender/v1)."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

Json = dict[str, Any]

_NULL_IS_EMPTY = BeforeValidator(lambda items: [] if items is None else items)
"""Go writes an empty list as null."""


class _Wire(BaseModel):
    """Keys are the Go names; what a newer scheduler adds is passed over."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        alias_generator=lambda field: "".join(part.capitalize() for part in field.split("_")),
    )


class NodeList(_Wire):
    """Whole nodes, sent when the scheduler is told that the extender keeps none itself."""

    items: Annotated[list[Json], _NULL_IS_EMPTY] = Field(default_factory=list, alias="items")

    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return [str(item["metadata"]["name"]) for item in self.items]


class ExtenderArgs(_Wire):
    """Asks about a pod on some nodes: by `node_names` (nodeCacheCapable) or by `nodes`, never both."""

    pod: Json
    nodes: NodeList | None = None
    node_names: list[str] | None = None

    @field_validator("nodes")
    @classmethod
    def _named(cls, nodes: NodeList | None) -> NodeList | None:
        if nodes is not None and not all(isinstance((n.get("metadata") or {}).get("name"), str) for n in nodes.items):
            raise ValueError("a node without a name")
        return nodes

    def names(self) -> list[str]:
        """Return the names of the nodes in question."""
        return self.nodes.names() if self.nodes is not None else self.node_names or []


class FilterResult(_Wire):
    """Which nodes are left, and why the others are not; `node_names` is a list always, never null.

    A scheduler of 1.20 reads the reasons in `failed_nodes` alone. For later ones `failed_and_unresolvable_nodes` wins
    where a node is in both (`findNodesThatPassExtenders`, 1.21 to 1.37).
    """

    nodes: NodeList | None = None
    node_names: list[str] = Field(default_factory=list)
    failed_nodes: dict[str, str] = Field(default_factory=dict)
    failed_and_unresolvable_nodes: dict[str, str] = Field(default_factory=dict)
    error: str = ""


class HostPriority(_Wire):
    """A node's score, 0 to 10; the scheduler multiplies it by the extender's weight."""

    host: str
    score: int


class MetaPod(_Wire):
    """A pod by its UID."""

    uid: str = Field(alias="UID")


class MetaVictims(_Wire):
    """The pods that have to go on one node, and how many of them a disruption budget protects."""

    pods: Annotated[list[MetaPod], _NULL_IS_EMPTY] = Field(default_factory=list)
    violations: int = Field(default=0, alias="NumPDBViolations")


class PreemptionArgs(_Wire):
    """Asks who has to go for a pod: by node with the scheduler's own choice, as UIDs (nodeCacheCapable) or as pods."""

    pod: Json
    node_name_to_victims: dict[str, Json] | None = None
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None

    def named(self) -> dict[str, MetaVictims]:
        """Return the scheduler's choice by node."""
        if self.node_name_to_meta_victims is not None:
            return self.node_name_to_meta_victims
        whole = self.node_name_to_victims or {}
        return {name: MetaVictims.model_validate(_by_uid(victims)) for name, victims in whole.items()}


def _by_uid(victims: Json) -> Json:
    pods = [{"UID": str((pod.get("metadata") or {}).get("uid", ""))} for pod in victims.get("Pods") or ()]
    return {"Pods": pods, "NumPDBViolations": victims.get("NumPDBViolations") or 0}


class PreemptionResult(_Wire):
    """Who goes on which node. A node without victims fails the whole preemption, so such nodes are left out."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class BindingArgs(_Wire):
    """Orders to bind a pod to a node."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = Field(alias="PodUID")
    node: str


class BindingResult(_Wire):
    """Empty when the pod is bound; else the text stands behind `binding rejected:` in the pod's event."""

    error: str = ""
