"""Static pods with shares on a node of the cluster, and a watch over whose units they are."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from e2e.k3s import K3s
from e2e.manifests import container, pod, pod_spec
from e2e.plugin_node import PluginNode
from lab.labkit import LabError, wait_until

FOLDER = "/var/lib/rancher/k3s/agent/pod-manifests"
LOOK_S = 0.02

Amounts = frozenset[tuple[str, int, int]]
"""The UUID of each card, its free units, and the units that the rows of pods hold on it."""


@contextmanager
def static_pods(k3s: K3s, node: PluginNode, *, namespace: str, units: Mapping[str, int]) -> Iterator[None]:
    """Lay the manifests of static pods with so many units of memory into kubelet's folder until the block ends.

    The block begins once all run and the plugin knows each by its name.
    """
    files = []
    try:
        for name, memory in units.items():
            manifest = pod(name, pod_spec(container(memory=memory, core=1)), namespace=namespace)
            files.append(node.lab.write(f"{FOLDER}/{name}.json", json.dumps(manifest)))
        wait_known(k3s, node, namespace, units)
        yield
    finally:
        for file in files:
            file.unlink(missing_ok=True)
        wait_until(lambda: not [name for name in units if k3s.pods(namespace, name)], what="the static pods are gone")


def wait_known(k3s: K3s, node: PluginNode, namespace: str, units: Mapping[str, int]) -> None:
    """Wait until static pods run, and the plugin shows each with its name, units and state."""
    for name in units:
        k3s.wait_phase(namespace, name, "Running")
    wait_rows(node, namespace, units, state="allocated")


def wait_rows(node: PluginNode, namespace: str, units: Mapping[str, int], *, state: str) -> None:
    """Wait until the plugin shows static pods by their names, with their units, in a state."""
    expected = {(f"{name}-{node.name}", memory, state) for name, memory in units.items()}

    def probe() -> bool:
        rows = [row for row in node.status()["pods"] if row["namespace"] == namespace]
        shown = {(row["pod"], row["memory_units"], row["state"]) for row in rows}
        if not expected <= shown:
            raise LabError(f"it shows {rows}")
        return True

    wait_until(probe, what=f"the plugin knows {sorted(units)}", every_s=0.2)


def amounts(status: Mapping[str, Any]) -> Amounts:
    """Return the free and the held units of each card, by a status document."""
    held = dict.fromkeys((card["uuid"] for card in status["cards"]), 0)
    for row in status["pods"]:
        for card in row["cards"]:
            held[card["uuid"]] = held.get(card["uuid"], 0) + card.get("units", 0)
    return frozenset((card["uuid"], card["units_free"], held[card["uuid"]]) for card in status["cards"])


@contextmanager
def steady_amounts(node: PluginNode) -> Iterator[None]:
    """Look at the plugin's status all the while: every answer of the block must show the amounts of before."""
    before, seen, ended = amounts(node.status()), list[Amounts](), threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            try:
                seen.append(amounts(node.status()))
            except LabError:
                continue  # no plugin runs now

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
    assert seen, "the plugin has answered"
    assert set(seen) == {before}, "units were free, or another's, for a while"
