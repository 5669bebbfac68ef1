"""Apps by the values of their limits, with how many boxes have each; and the boxes of one value."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from edgegpu_cloud.console.api.access import ApiFleet
from edgegpu_cloud.console.api.conditions import Cursor, Limit, page_with
from edgegpu_cloud.console.api.models.fleet import ApiModel, ApiPage
from edgegpu_cloud.fleet.limits.app_page import APPS, BOXES, AppQuery, BoxWithApp
from edgegpu_cloud.fleet.limits.app_values import AppValue, AppValues
from edgegpu_cloud.fleet.limits.history import ContainerKey

router = APIRouter(tags=["apps"])

Labels = Annotated[str, Query(max_length=500, description="A selector over labels of boxes: site=hall,rack!=3.")]
Name = Annotated[str, Path(max_length=253)]


class ApiAppAmounts(ApiModel):
    """Limits of a container."""

    memory_units: int
    core: int


class ApiAppValue(ApiModel):
    """The limits of a container that boxes have."""

    key: str = Field(description="For `value` of the list of boxes.")
    wanted: ApiAppAmounts | None = Field(description="As requested; null where nothing was requested.")
    reported: list[ApiAppAmounts] = Field(
        description="Of its pods there: empty without a pod, several where they differ."
    )
    unit_mib: int = Field(description="The size of a unit there; 0 where the box has not reported it.")
    differs: bool = Field(description="A pod has something else than what is wanted, or than another pod.")


class ApiCountedValue(ApiAppValue):
    """Such limits, and how many boxes have them."""

    boxes: int


class ApiAppContainer(ApiModel):
    """A container of an app with its values, the most frequent first."""

    namespace: str
    app: str
    container: str
    boxes: int
    values: list[ApiCountedValue]


class ApiAppBox(ApiModel):
    """A box that has the container."""

    device: str
    box: str
    connected: bool
    value: ApiAppValue


@router.get("/apps")
def list_apps(
    request: Request,
    fleet: ApiFleet,
    *,
    search: Annotated[str, Query(max_length=520, description="Words in NAMESPACE/APP.")] = "",
    labels: Labels = "",
    limit: Limit = APPS,
    cursor: Cursor = "",
) -> ApiPage[ApiAppContainer]:
    """Return the containers of apps by name, `limit` apps at a time; every box that has one is counted."""
    found = fleet.apps.page(AppQuery(words=search.strip(), selector=labels, after=cursor, limit=limit))
    return page_with(request, [_container(one) for one in found.apps], found.next)


@router.get("/apps/{namespace}/{app}/{container}/boxes")
def list_app_boxes(  # noqa: PLR0913  (one for each name and parameter)
    request: Request,
    fleet: ApiFleet,
    namespace: Name,
    app: Name,
    container: Name,
    *,
    value: Annotated[str, Query(max_length=1_000, description="The `key` of a value; empty: all boxes.")] = "",
    labels: Labels = "",
    limit: Limit = BOXES,
    cursor: Cursor = "",
) -> ApiPage[ApiAppBox]:
    """Return the boxes that have a container, by name."""
    key = ContainerKey(namespace, app, container)
    found = fleet.apps.boxes(key, value=value, selector=labels, after=cursor, limit=limit)
    return page_with(request, [_box(one) for one in found.boxes], found.next)


def _container(one: AppValues) -> ApiAppContainer:
    return ApiAppContainer(
        namespace=one.key.namespace,
        app=one.key.app,
        container=one.key.container,
        boxes=one.boxes,
        values=[ApiCountedValue(**_value(each.value).model_dump(), boxes=each.boxes) for each in one.values],
    )


def _box(one: BoxWithApp) -> ApiAppBox:
    return ApiAppBox(device=one.box.device, box=one.box.name, connected=one.box.online, value=_value(one.app.value))


def _value(value: AppValue) -> ApiAppValue:
    return ApiAppValue.model_validate(value)
