"""What the way back of a change of many boxes would do, as the API shows it."""

from typing import Any

from pydantic import Field

from edgegpu_cloud.console.api.models.fleet import ApiModel
from edgegpu_cloud.store.operations.records import OperationKind


class ApiUndoStep(ApiModel):
    """From which values back to which, by their names, on how many boxes."""

    before: dict[str, Any]
    after: dict[str, Any]
    boxes: int


class ApiLeftBox(ApiModel):
    """A box that keeps what it has, and why."""

    device: str
    name: str
    text: str


class ApiUndoPlan(ApiModel):
    """What the way back of an operation would do: a new operation, for the boxes that get back what they had."""

    kind: OperationKind
    args: dict[str, Any]
    boxes: int
    steps: list[ApiUndoStep] = Field(description="The most frequent first.")
    left: list[ApiLeftBox]
    more_boxes: int = Field(description="Boxes beyond those that were looked at.")
    seen: str = Field(description="Its boxes, for `expect` when it is started.")


class ApiWayBack(ApiModel):
    """What the return of a rollout would do now, for the boxes that get back what they had."""

    boxes: int
    steps: list[ApiUndoStep] = Field(description="The most frequent first.")
    left: list[ApiLeftBox]
    more_boxes: int = Field(description="Boxes beyond those that were looked at.")
