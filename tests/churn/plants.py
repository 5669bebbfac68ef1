"""What a run must find: lies that are planted beside the product, and the names of the bugs of `buggy.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from churn.api import AwayError
from churn.bed import Bed
from churn.records import CARDS_ANNOTATION, PodRecord
from churn.watcher import Watcher

BUGS = ("any-card", "wrong-card")
PLANTS = ("annotation", "double")


class Plant(Protocol):
    """A lie."""

    def act(self, pods: Sequence[PodRecord]) -> None:
        """Tell it once more, about the pods of a reading."""

    def stop(self) -> None:
        """Tell it no more."""


class NoPlant:
    """Nothing is planted."""

    def act(self, pods: Sequence[PodRecord]) -> None:
        pass

    def stop(self) -> None:
        pass


class AnnotationPlant:
    """Writes a card that a pod does not have into its annotation, again and again, as fast as the plugin corrects it."""

    def __init__(self, here: Bed) -> None:
        """Choose nobody yet."""
        self._bed = here

    def act(self, pods: Sequence[PodRecord]) -> None:
        pod = next((p for p in pods if p.running and p.cards and not p.deleting), None)
        if pod is None or pod.cards is None:
            return
        other = {name: sorted(self._bed.totals.keys() - cards)[:1] for name, cards in pod.cards.items()}
        lie = json.dumps({"v": 1, "uid": pod.uid, "node": pod.node, "c": other})
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            self._bed.api.patch(path, {"metadata": {"annotations": {CARDS_ANNOTATION: lie}}})
        except AwayError:
            return

    def stop(self) -> None:
        pass


class DoublePlant:
    """Shows the checker a copy of kubelet's checkpoint in which one pod has the devices of another."""

    def __init__(self, watcher: Watcher) -> None:
        """Remember the real file."""
        self._watcher, self._real = watcher, watcher.checkpoint
        self._copy = self._real.with_name("planted")

    def act(self, pods: Sequence[PodRecord]) -> None:
        value = json.loads(self._real.read_text())
        entries = value["Data"]["PodDeviceEntries"] or []
        living = {pod.uid for pod in pods if not pod.ended}
        for left in entries:
            for right in entries:
                same = left["ResourceName"] == right["ResourceName"] and {left["PodUID"], right["PodUID"]} <= living
                if same and left["PodUID"] < right["PodUID"]:
                    right["DeviceIDs"] = left["DeviceIDs"]
                    self._copy.write_text(json.dumps(value))
                    self._watcher.checkpoint = self._copy
                    return

    def stop(self) -> None:
        self._watcher.checkpoint = self._real
        self._copy.unlink(missing_ok=True)


def planted(name: str, here: Bed, watcher: Watcher) -> Plant:
    """Return the plant of a name; without one, nothing."""
    match name:
        case "annotation":
            return AnnotationPlant(here)
        case "double":
            return DoublePlant(watcher)
        case _:
            return NoPlant()
