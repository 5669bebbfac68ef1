"""A pod in a booted box that the limiter holds: the memory that it gets, its share of the card's time, its limiter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from e2e.manifests import container, pod, pod_spec
from e2e.memoryclient import make_memory_client
from native.limiterkit import compile_program

if TYPE_CHECKING:
    from pathlib import Path

    from box.bed import Bed

CLIENT, NAMESPACE = "/srv/client", "default"
UNITS, CORE_PERCENT = 4, 10
TOO_MUCH_MIB = UNITS * 256 + 1
GRANTED, OOM = "0", "2"
WORK = ("share", "1000000", "50", "8", "1", "3")
"""Kernels of 1 ms, 50 deep, for eight seconds of which the first three are not measured."""
POINTS, LEAST = 3.0, 0.5
"""By how many points it may be over its share, and the part of it that it gets at least on a busy machine."""


def push_programs(bed: Bed, folder: Path, limiter_build: Path) -> None:
    """Put the programs that ask for memory and compute into the box."""
    make_memory_client(folder)
    compile_program(folder / "compute", limiter_build, ["tests/compute.c"])
    bed.machine.push(*folder.iterdir(), to=CLIENT)


class HeldPod:
    """One such pod, which runs."""

    def __init__(self, bed: Bed, name: str) -> None:
        """Make the pod, and wait until it runs."""
        self._bed, self.name = bed, name
        mounts = [{"name": "client", "mountPath": CLIENT, "readOnly": True}]
        held = container(memory=UNITS, core=CORE_PERCENT, volumeMounts=mounts)
        spec = pod_spec(held, volumes=[{"name": "client", "hostPath": {"path": CLIENT}}])
        bed.cluster.apply(pod(name, spec, namespace=NAMESPACE))
        bed.cluster.wait_phase(NAMESPACE, name, "Running")

    def _run(self, program: str, *words: str) -> list[str]:
        command = (f"{CLIENT}/{program}", *words)
        return self._bed.cluster.kubectl("exec", "-n", NAMESPACE, self.name, "--", *command).split()

    def is_held(self) -> bool:
        """Return whether its programs get memory within its limit, and none past it."""
        return self._run("memory_client", str(TOO_MUCH_MIB), "256") == [OOM, GRANTED]

    def core_percent(self) -> float:
        """Return the percent of the card's time that its programs get, by the work that they have done."""
        return float(self._run("compute", *WORK)[0])

    def identity(self) -> str:
        """Return the id of its container."""
        found = self._bed.cluster.wait_phase(NAMESPACE, self.name, "Running")
        return str(found["status"]["containerStatuses"][0]["containerID"])

    def isolation(self) -> dict[str, Any]:
        """Return what the box says of how it is held; empty before it knows the pod."""
        rows = json.loads(self._bed.edgegpu("pods", self.name, "--json", check=False).stdout or "{}").get("pods", [])
        return dict(rows[0].get("isolation") or {}) if rows else {}

    def delete(self) -> None:
        """Delete it, and wait until it is gone."""
        self._bed.cluster.kubectl("delete", "pod", "-n", NAMESPACE, self.name, "--now", "--wait")


def is_the_share(percent: float) -> bool:
    """Return whether a percent of the card's time is the pod's share, on a machine that has other work."""
    return LEAST * CORE_PERCENT < percent < CORE_PERCENT + POINTS
