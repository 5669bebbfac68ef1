"""The operations of a controller on another machine: what the commands use of `Operations`, by the API."""

from collections.abc import Collection, Sequence
from typing import Any

from pydantic import TypeAdapter

from edgegpu_cloud.cli.remote.client import ApiClient, name_in_path, read_as
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.box_set import MOST_BOXES
from edgegpu_cloud.fleet.operations.operations import REMEDY, OperationBoxPage, OperationBoxView, OperationView
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind
from edgegpu_cloud.store.records import Json
from edgegpu_sync.ids import DeviceId

_VIEW, _BOX = TypeAdapter(OperationView), TypeAdapter(OperationBoxView)


class RemoteOperations:
    """One person's view of operations on another machine; each method does what that of `Operations` does."""

    def __init__(self, client: ApiClient) -> None:
        """Take who sends the requests."""
        self._client = client

    def start(
        self, kind: OperationKind, args: Json, *, where: BoxFilter | None = None, devices: Collection[DeviceId] = ()
    ) -> OperationView:
        """Store a change of the boxes of a filter there, or of these; the API takes a filter's selector and askable.

        Raises:
            CloudError: more boxes are named than one request takes, or the controller refuses it.
        """
        if len(devices) > MOST_BOXES:
            text = f"cannot name {len(devices):,} boxes to a controller on another machine: it takes {MOST_BOXES:,}"
            raise CloudError(
                text, remedy="`edgegpu-cloud rollouts start` selects by labels there; or narrow the labels"
            )
        boxes: Json = {"devices": sorted(devices)}
        if where is not None:
            boxes = {"labels": where.selector, "askable": where.askable}
        return _view(self._client.send("POST", "/operations", {"change": {"kind": kind.value, **args}, **boxes}))

    def list(self, *, limit: int = 50) -> Sequence[OperationView]:
        """Return the last operations, newest first."""
        return [_view(one) for one in self._client.items("/operations", most=limit)]

    def get(self, id_: str) -> OperationView:
        """Return an operation by its id, or the beginning of it."""
        return _view(self._client.get(_path(id_)))

    def boxes(
        self, id_: str, *, outcomes: Collection[BoxOutcome] = (), after: str = "", limit: int = 100
    ) -> OperationBoxPage:
        """Return a page of the boxes of an operation, those with some outcomes, or all."""
        query = {"outcome": sorted(one.value for one in outcomes), "cursor": after}
        found = [
            read_as(_BOX, {"name": one["name"], "box": {"operation": id_, **one}})
            for one in self._client.items(f"{_path(id_)}/boxes", most=limit, **query)
        ]
        return OperationBoxPage(found, found[-1].box.device if len(found) == limit else "")

    def cancel(self, id_: str) -> OperationView:
        """Take out the boxes for which nothing is stored yet; what is stored goes on."""
        return _view(self._client.send("POST", f"{_path(id_)}/cancel"))


def _path(id_: str) -> str:
    return f"/operations/{name_in_path(id_, what='an operation', remedy=REMEDY)}"


def _view(body: Any) -> OperationView:  # noqa: ANN401  (whatever JSON has)
    return read_as(_VIEW, {"operation": body, "outcomes": body["outcomes"]})
