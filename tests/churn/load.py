"""Lets workloads come, change and go, and knows how many pods each of them is to have."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from churn.api import Api, AwayError
from churn.worker import Worker
from churn.workloads import JOB, PATHS, Generator, Workload, replicas_of

_STEP_S = (0.5, 2.2)
_MOST_PODS, _FEW_PODS = 34, 3
"""That many pods are wanted at most: more only wait, and cost two cores their time. At ebb only a few are."""
_TIDE_S, _EBB_S = 90.0, 25.0
"""Each tide ends with an ebb: without one a whole card would never be empty."""


@dataclass(slots=True)
class Placed:
    """A workload that is there, and until when."""

    workload: Workload
    ends_s: float
    replicas: int


class Load(Worker):
    """`stop` it, and what is there stays; `clear` deletes it."""

    def __init__(self, api: Api, seed: str) -> None:
        """Prepare the generator; the same seed gives the same workloads in the same order."""
        super().__init__("load")
        self._api = api
        self._rng = random.Random(seed)
        self._generator = Generator(random.Random(f"{seed} shapes"))
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._placed: dict[str, Placed] = {}
        self.made: Counter[str] = Counter()
        self.away = 0
        """How many steps were put off because the API server was away."""

    def wanted(self) -> Mapping[str, int]:
        """Return how many pods each workload is to have."""
        with self._lock:
            return {name: placed.replicas for name, placed in self._placed.items()}

    def _run(self) -> None:
        while not self._end.wait(self._rng.uniform(*_STEP_S)):
            try:
                self._step()
            except AwayError:
                self.away += 1

    def clear(self, timeout_s: float = 60.0) -> None:
        """Delete all workloads."""
        end_s = time.monotonic() + timeout_s
        while self._placed and time.monotonic() < end_s:
            try:
                self._remove(next(iter(self._placed)))
            except AwayError:
                self._end.wait(0.5)

    def _step(self) -> None:
        at_s = time.monotonic()
        for name, placed in list(self._placed.items()):
            if at_s >= placed.ends_s:
                self._remove(name)
                return
        ebb = (at_s - self._began_s) % _TIDE_S > _TIDE_S - _EBB_S
        if sum(self.wanted().values()) < (_FEW_PODS if ebb else _MOST_PODS):
            self._create(self._generator.draw(), at_s)
        elif self._placed and self._rng.random() < 0.3:
            self._change(self._rng.choice(list(self._placed.values())))

    def _create(self, workload: Workload, at_s: float) -> None:
        """Create a workload until it is there: a call that got no answer may have had its effect."""
        self.made[f"{workload.kind}: {workload.shape}"] += 1
        with self._lock:
            self._placed[workload.name] = Placed(workload, at_s + workload.stays_s, workload.replicas)
        while not self._end.is_set():
            try:
                self._api.create(PATHS[workload.kind], workload.manifest)
            except AwayError:
                self.away += 1
                self._end.wait(1.0)
            else:
                return

    def _change(self, placed: Placed) -> None:
        if placed.workload.kind == JOB:
            return
        patch = self._generator.change(placed.workload)
        replicas = replicas_of(patch)
        if replicas is not None:
            with self._lock:
                placed.replicas = replicas
        self._api.patch(placed.workload.path, patch)

    def _remove(self, name: str) -> None:
        with self._lock:
            path = self._placed[name].workload.path
        self._api.delete(path)
        with self._lock:
            del self._placed[name]
