"""The operations of a controller on another machine: what the commands use of `Operations`, by the API."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from edgegpu_cloud.cli.remote.client import ApiClient, name_in_path, read_as
from edgegpu_cloud.fleet.listing import BoxFilter
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.operations.limits_preview import LimitsPreviewPage
from edgegpu_cloud.fleet.operations.operations import REMEDY, OperationBoxPage, OperationBoxView, OperationView
from edgegpu_cloud.fleet.operations.sharing_preview import SharingPreviewPage
from edgegpu_cloud.fleet.operations.undo import UndoPlan
from edgegpu_cloud.fleet.specs import LimitsPatch, SharingSettings
from edgegpu_cloud.store.operations.records import BoxOutcome, OperationKind
from edgegpu_cloud.store.records import Json

_PART = 200
"""Boxes whose preview one request asks for."""


class RemoteOperations:
    """One person's view of operations on another machine; each method does what that of `Operations` does."""

    def __init__(self, client: ApiClient) -> None:
        """Take who sends the requests."""
        self._client = client

    def start(
        self, kind: OperationKind, args: Json, *, where: BoxFilter, expect: BoxSet | None = None
    ) -> OperationView:
        """Store a change of the boxes of a filter there, of those that are expected if any are."""
        seen = {} if expect is None else {"expect": expect.text}
        body = {"change": {"kind": kind.value, **named_part(args)}, **_boxes(where), **seen}
        return _view(self._client.send("POST", "/operations", body))

    def preview_limits(
        self, limits: LimitsPatch, where: BoxFilter, *, after: str = "", limit: int = 50
    ) -> LimitsPreviewPage:
        """Return what boxes of a filter would make of limits now, by name, those after `after`."""
        found = self._previewed({"kind": OperationKind.LIMITS.value, **named_part(asdict(limits))}, where, after, limit)
        boxes = [{**one, "preview": one["preview"] and with_needs(one["preview"], limits)} for one in found["items"]]
        whole = {"container": found["container"], "boxes": boxes, "steps": found.get("steps"), **_end(found)}
        return read_as(LimitsPreviewPage, whole)

    def preview_sharing(
        self, settings: SharingSettings, where: BoxFilter, *, after: str = "", limit: int = 50
    ) -> SharingPreviewPage:
        """Return what boxes of a filter would make of settings now, by name, those after `after`."""
        found = self._previewed({"kind": OperationKind.SHARING.value, **asdict(settings)}, where, after, limit)
        boxes = [{**one, "items": one["settings"]} for one in found["items"]]
        return read_as(SharingPreviewPage, {"boxes": boxes, **_end(found)})

    def _previewed(self, change: Json, where: BoxFilter, after: str, limit: int) -> Json:
        cursor = f"&cursor={quote(after, safe='')}" if after else ""
        path = f"/operations/preview?limit={min(limit, _PART)}{cursor}"
        found: Json = self._client.send("POST", path, {"change": change, **_boxes(where)})
        return found

    def list(self, *, limit: int = 50) -> Sequence[OperationView]:
        """Return the last operations, newest first."""
        return [_view(one) for one in self._client.items("/operations", most=limit)]

    def get(self, id_: str) -> OperationView:
        """Return an operation by its id, or the beginning of it."""
        return _view(self._client.get(_path(id_)))

    def boxes(
        self,
        id_: str,
        *,
        outcomes: Collection[BoxOutcome] = (),
        after: str = "",
        limit: int = 100,
        data: bool = False,
    ) -> OperationBoxPage:
        """Return a page of the boxes of an operation, those with some outcomes, or all."""
        query: Json = {"outcome": sorted(one.value for one in outcomes), "cursor": after}
        query |= {"data": True} if data else {}
        found = [
            read_as(OperationBoxView, {"name": one["name"], "data": one.get("data"), "box": {"operation": id_, **one}})
            for one in self._client.items(f"{_path(id_)}/boxes", most=limit + 1, **query)
        ]
        shown = found[:limit]
        return OperationBoxPage(shown, shown[-1].box.device if len(found) > limit else "")

    def cancel(self, id_: str) -> OperationView:
        """Take out the boxes for which nothing is stored yet; what is stored goes on."""
        return _view(self._client.send("POST", f"{_path(id_)}/cancel"))

    def undo_plan(self, id_: str) -> UndoPlan:
        """Return what the way back of an operation would do; which box gets what is not told."""
        return read_as(UndoPlan, {"own": {}, **self._client.get(f"{_path(id_)}/undo")})

    def undo(self, id_: str, *, expect: BoxSet | None = None) -> OperationView:
        """Start the operation that gives the boxes of another one back what they had."""
        body = {} if expect is None else {"expect": expect.text}
        return _view(self._client.send("POST", f"{_path(id_)}/undo", body))


def named_part(change: Json) -> Json:
    """Return a change without what it does not name: an older console knows no null there."""
    return {name: value for name, value in change.items() if value is not None}


def with_needs(preview: Json, limits: LimitsPatch) -> Json:
    """Return a preview of the API with what is judged; an older console does not say it, and takes whole limits."""
    after = preview.get("after") or {"memory_units": limits.memory_units, "core": limits.core}
    return {**preview, "need_units": after["memory_units"], "need_core": after["core"]}


def _last(found: Json) -> str:
    """Return the name after which the next page of a preview begins; empty where there is none."""
    return str(found["items"][-1]["name"]) if found["next"] else ""


def _boxes(where: BoxFilter) -> Json:
    """Return the fields that say which boxes are meant; an older console knows no `one_of_each_cluster`."""
    boxes: Json = {"labels": where.selector, "askable": where.askable}
    return boxes | ({"one_of_each_cluster": True} if where.one_of_each_cluster else {})


def _path(id_: str) -> str:
    return f"/operations/{name_in_path(id_, what='an operation', remedy=REMEDY)}"


def _view(body: Any) -> OperationView:  # noqa: ANN401  (whatever JSON has)
    return read_as(OperationView, {"operation": body, "outcomes": body["outcomes"]})


def _end(found: Json) -> Json:
    """Return where a part of a preview goes on, and all boxes as they were seen; an older server does not say it."""
    return {"next": _last(found), "seen": found.get("seen", "")}
