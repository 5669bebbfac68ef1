"""The pods without a card, as the API gives them."""

from pydantic import Field

from edgegpu_cloud.console.api.models.fleet import ApiModel
from edgegpu_cloud.fleet.reports import BoxPending


class ApiPendingContainer(ApiModel):
    """What a container of such a pod asks for."""

    container: str
    memory_units: int
    core: int


class ApiPendingPod(ApiModel):
    """A pod that has no card yet, and why."""

    uid: str
    namespace: str
    pod: str
    state: str = Field(
        description="pending: no node has it. waiting: kubelet has not given it its card yet. refused: it fits on none."
    )
    reason: str = Field(description="The box's words, with the numbers of each card: as `edgegpu pods` has them there.")
    created_at_s: int | None = Field(description="By the cluster's clock; null where the box does not know.")
    containers: list[ApiPendingContainer]


class ApiPending(ApiModel):
    """The pods without a card that a box has reported."""

    reported: bool = Field(description="false: the box has not reported them, or its agent is too old to.")
    as_of_s: float | None = Field(description="Since when this is known to be so.")
    cluster: bool = Field(description="It sees pods without a node too; only servers of the cluster do.")
    silent: str = Field(description="Why the list may be old: the box's API server does not answer. Else empty.")
    pods: list[ApiPendingPod]
    more: int = Field(description="Further such pods, which are not named.")


def api_pending(found: BoxPending | None) -> ApiPending:
    """Return the pods without a card for the API."""
    listed = None if found is None else found.listed
    if found is None or listed is None:
        return ApiPending(reported=False, as_of_s=None, cluster=False, silent="", pods=[], more=0)
    pods = [
        ApiPendingPod(
            uid=pod.uid,
            namespace=pod.namespace,
            pod=pod.name,
            state=pod.state,
            reason=pod.reason,
            created_at_s=pod.created_at,
            containers=[
                ApiPendingContainer(container=one.name, memory_units=one.memory_units, core=one.core)
                for one in pod.containers
            ],
        )
        for pod in listed.pods
    ]
    return ApiPending(
        reported=True,
        as_of_s=found.as_of_s,
        cluster=listed.cluster,
        silent=listed.silent,
        pods=pods,
        more=listed.more,
    )
