"""The rollouts of a controller on another machine: what the commands use of `Rollouts`, by the API."""

import time
from collections.abc import Iterator, Sequence

from edgegpu_cloud.cli.remote.client import ApiClient, read_as
from edgegpu_cloud.cli.remote.operations import named_part, with_needs
from edgegpu_cloud.errors import CloudError
from edgegpu_cloud.fleet.following import follow
from edgegpu_cloud.fleet.operations.box_set import BoxSet
from edgegpu_cloud.fleet.specs import LimitsPatch
from edgegpu_cloud.rollouts.changes import Json, RolloutChange, change_json, kind_of
from edgegpu_cloud.rollouts.rollouts import RolloutPlan, RolloutRequest
from edgegpu_cloud.rollouts.strategy import strategy_json
from edgegpu_cloud.rollouts.views import RolloutView
from edgegpu_cloud.rollouts.way_back import WayBack
from edgegpu_cloud.store.rollouts.records import RolloutBoxRecord, RolloutBoxState

_PART = 200
"""Boxes of a plan that one request asks for."""


class RemoteRollouts:
    """One person's view of rollouts on another machine; each method does what that of `Rollouts` does."""

    def __init__(self, client: ApiClient) -> None:
        """Take who sends the requests."""
        self._client = client

    def preview(self, request: RolloutRequest, *, limit: int = 50) -> RolloutPlan:
        """Return the waves of a rollout as they would be now, with so many of its boxes."""
        body = _body(request)
        found = self._client.send("POST", f"/rollouts/preview?limit={min(limit, _PART)}", body)
        at = _PART
        while at < min(limit, found["boxes"]):
            part = self._client.send("POST", f"/rollouts/preview?limit={min(limit - at, _PART)}&cursor={at}", body)
            if BoxSet.read(part["seen"]) != BoxSet.read(found["seen"]):
                raise CloudError("cannot read the plan: its boxes have changed meanwhile", remedy="ask again")
            for wave, more in zip(found["waves"], part["waves"], strict=True):
                wave["boxes"] += more["boxes"]
            at += _PART
        return read_as(RolloutPlan, _with_amounts(found, request.change))

    def start(self, request: RolloutRequest, *, expect: BoxSet | None = None) -> int:
        """Start a rollout, for the boxes that are expected if any are; return its number."""
        seen = {} if expect is None else {"expect": expect.text}
        return int(self._client.send("POST", "/rollouts", _body(request) | seen)["number"])

    def all(self, *, limit: int = 50) -> list[RolloutView]:
        """Return the last rollouts, newest first."""
        return [read_as(RolloutView, one) for one in self._client.items("/rollouts", most=limit)]

    def show(self, number: int) -> RolloutView:
        """Return a rollout."""
        return read_as(RolloutView, self._client.get(f"/rollouts/{number}"))

    def boxes(self, number: int, states: Sequence[RolloutBoxState] = (), *, limit: int = 100) -> list[RolloutBoxRecord]:
        """Return boxes of a rollout in its order: those in one of the states, or all."""
        wanted = [one.value for one in states]
        found = self._client.items(f"/rollouts/{number}/boxes", most=limit, state=wanted)
        return [read_as(RolloutBoxRecord, one) for one in found]

    def follow(self, number: int, *, timeout_s: float) -> Iterator[RolloutView]:
        """Yield a rollout, and again each time it has changed, until it has ended or the time is over."""
        return follow(lambda: self.show(number), clock=time.time, sleep=time.sleep, timeout_s=timeout_s)

    def pause(self, number: int) -> None:
        """Pause a rollout."""
        self._client.send("POST", f"/rollouts/{number}/pause")

    def resume(self, number: int) -> None:
        """Resume a paused rollout."""
        self._client.send("POST", f"/rollouts/{number}/resume")

    def way_back(self, number: int) -> WayBack:
        """Return what the return of a rollout would do now."""
        return read_as(WayBack, self._client.get(f"/rollouts/{number}/abort"))

    def abort(self, number: int, *, returns: bool = False) -> None:
        """Abort a rollout."""
        self._client.send("POST", f"/rollouts/{number}/abort", {"returns": returns})


def _with_amounts(plan: Json, change: RolloutChange) -> Json:
    """Return a plan whose previews have the amounts that they are of, which the API leaves out."""
    if isinstance(change, LimitsPatch):
        for fit in (box["fit"] for wave in plan["waves"] for box in wave["boxes"] if box["fit"]):
            fit["preview"] = fit["preview"] and with_needs(fit["preview"], change)
    return plan


def _body(request: RolloutRequest) -> dict[str, object]:
    whole = not request.boxes and not request.selector
    return {
        "change": {"kind": kind_of(request.change).value, **named_part(change_json(request.change))},
        "boxes": list(request.boxes),
        "labels": request.selector,
        "all": whole,
        "first": list(request.first),
        "strategy": strategy_json(request.strategy),
    }
