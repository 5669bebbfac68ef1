"""What comes and goes: workloads of all kinds and all shapes of requests, drawn by a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from churn.api import NAMESPACE
from e2e.manifests import Manifest, container, pod_spec

DEPLOYMENT, STATEFUL_SET, JOB = "Deployment", "StatefulSet", "Job"
PATHS = {
    DEPLOYMENT: f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    STATEFUL_SET: f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets",
    JOB: f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs",
}
_POLICIES = ("first-fit", "best-fit", "spread")
_FIRST = ("true",)
_BRIEF = ("sh", "-c", "sleep 1")


def _small(rng: random.Random) -> Manifest:
    return pod_spec(container(memory=rng.randint(1, 12), core=rng.randint(1, 25)))


def _middle(rng: random.Random) -> Manifest:
    return pod_spec(container(memory=rng.randint(12, 40), core=rng.randint(5, 60)))


def _large(rng: random.Random) -> Manifest:
    return pod_spec(container(memory=rng.randint(40, 94), core=rng.randint(1, 40)))


def _whole(rng: random.Random) -> Manifest:
    return pod_spec(container(memory=rng.choice((0, rng.randint(1, 29))), core=100))


def _whole_cards(rng: random.Random) -> Manifest:
    return pod_spec(container(memory=rng.choice((0, rng.randint(2, 58))), core=rng.choice((200, 200, 300))))


def _several(rng: random.Random) -> Manifest:
    some = [container(f"part-{at}", rng.randint(1, 10), rng.randint(1, 20)) for at in range(rng.randint(2, 3))]
    return pod_spec(*some, container("plain"))


def _init(rng: random.Random) -> Manifest:
    first = container("first", rng.randint(1, 12), rng.randint(1, 20), command=rng.choice((_FIRST, _BRIEF)))
    some = [container(f"part-{at}", rng.randint(1, 8), rng.randint(1, 15)) for at in range(rng.randint(1, 2))]
    return pod_spec(*some, init=[first])


def _sidecar(rng: random.Random) -> Manifest:
    beside = container("beside", rng.randint(1, 6), rng.randint(1, 10), restartPolicy="Always")
    return pod_spec(container(memory=rng.randint(1, 10), core=rng.randint(1, 20)), init=[beside])


def _plain_init(rng: random.Random) -> Manifest:
    first = container("first", command=_FIRST)
    return pod_spec(container(memory=rng.randint(1, 20), core=rng.randint(1, 30)), init=[first])


def _core_alone(rng: random.Random) -> Manifest:
    return pod_spec(container(core=rng.randint(1, 99)))


def _memory_alone(rng: random.Random) -> Manifest:
    return pod_spec(container(memory=rng.randint(1, 29)))


def _too_large(rng: random.Random) -> Manifest:
    return pod_spec(container(memory=rng.randint(95, 180), core=1))


def _odd_core(rng: random.Random) -> Manifest:
    return pod_spec(container(memory=1, core=rng.choice((101, 150, 250))))


SHAPES: dict[str, tuple[Callable[[random.Random], Manifest], int]] = {
    "small": (_small, 20),
    "middle": (_middle, 12),
    "large": (_large, 4),
    "whole card": (_whole, 5),
    "whole cards": (_whole_cards, 3),
    "several containers": (_several, 7),
    "GPU init container": (_init, 8),
    "GPU sidecar": (_sidecar, 3),
    "plain init container": (_plain_init, 3),
    "core alone": (_core_alone, 2),
    "memory alone": (_memory_alone, 2),
    "too large": (_too_large, 2),
    "odd core": (_odd_core, 1),
}
"""By name: what makes a pod's spec, and how often it comes beside the others."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload: its manifest, what it asks for by name, and for how long it is to stay."""

    name: str
    kind: str
    shape: str
    replicas: int
    stays_s: float
    manifest: Manifest

    @property
    def path(self) -> str:
        return f"{PATHS[self.kind]}/{self.name}"


class Generator:
    """Draws workloads; equal seeds and equal calls give equal ones."""

    def __init__(self, rng: random.Random) -> None:
        """Begin with number 1."""
        self._rng = rng
        self._number = 0
        self._owed: list[str] = []

    def draw(self) -> Workload:
        """Return the next workload: all shapes in turn (a whole card first, while all are empty), then by weight."""
        if self._number == 0:
            self._owed = [*self._rng.sample(list(SHAPES), len(SHAPES)), "whole card"]
        self._number += 1
        weights = [weight for _, weight in SHAPES.values()]
        # every second workload by weight, so that small pods run beside the rare shapes from the start
        owed = self._owed and self._number % 2 == 1
        shape = self._owed.pop() if owed else self._rng.choices(list(SHAPES), weights=weights)[0]
        kind = self._rng.choices((DEPLOYMENT, STATEFUL_SET, JOB), weights=(5, 3, 4))[0]
        few = shape in {"small", "middle", "several containers"}
        replicas = self._rng.choice((1, 2, 2, 3)) if few else 1
        name = f"{kind[:3].lower()}-{self._number}"
        stays_s = self._rng.uniform(15.0, 70.0)
        manifest = self._manifest(name, kind, shape, replicas)
        return Workload(name, kind, shape, replicas, stays_s, manifest)

    def _manifest(self, name: str, kind: str, shape: str, replicas: int) -> Manifest:
        spec = SHAPES[shape][0](self._rng)
        annotations = {}
        if self._rng.random() < 0.4:
            annotations["edgegpu.io/policy"] = self._rng.choice(_POLICIES)
        template = {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": spec}
        selector = {"matchLabels": {"app": name}}
        metadata = {"name": name, "namespace": NAMESPACE}
        if kind == JOB:
            return _job(metadata, template, replicas, self._rng.randint(2, 25))
        body: dict[str, Any] = {"replicas": replicas, "selector": selector, "template": template}
        if kind == STATEFUL_SET:
            body |= {"serviceName": name, "podManagementPolicy": self._rng.choice(("OrderedReady", "Parallel"))}
        else:
            body |= {"strategy": {"type": self._rng.choice(("Recreate", "RollingUpdate"))}}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": body}

    def change(self, workload: Workload) -> Manifest:
        """Return a patch for a workload: other limits, or another number of pods."""
        if workload.kind != JOB and self._rng.random() < 0.5:
            return {"spec": {"replicas": self._rng.randint(1, 3)}}
        spec = _small(self._rng)
        return {"spec": {"template": {"spec": {"containers": spec["containers"], "initContainers": None}}}}


def _job(metadata: Manifest, template: Manifest, replicas: int, runs_s: int) -> Manifest:
    spec = template["spec"]
    brief = [{**container, "command": ["sleep", str(runs_s)]} for container in spec["containers"]]
    pod = {**template, "spec": {**spec, "containers": brief, "restartPolicy": "Never"}}
    body = {"completions": replicas, "parallelism": replicas, "backoffLimit": 30, "template": pod}
    return {"apiVersion": "batch/v1", "kind": JOB, "metadata": metadata, "spec": body}


def replicas_of(patch: Manifest) -> int | None:
    """Return the number of pods that a patch sets; None where it sets another thing."""
    value: int | None = patch["spec"].get("replicas")
    return value


def shapes_of(workloads: Sequence[Workload]) -> set[str]:
    """Return the shapes that came."""
    return {workload.shape for workload in workloads}
