"""Churn: GPU pods come and go on a real kubelet while all around them is killed, and a checker looks each second."""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from lab.labkit import missing  # noqa: E402  (the path comes first)

from churn import plants  # noqa: E402
from churn.bed import NAME, Bed, bed  # noqa: E402
from churn.faults import KINDS, Faults  # noqa: E402
from churn.judge import Judge, Limits  # noqa: E402
from churn.load import Load  # noqa: E402
from churn.outcome import Outcome  # noqa: E402
from churn.watcher import Sampler, Watcher  # noqa: E402
from churn.windows import Windows  # noqa: E402

LOGS = ROOT / "build/churn"
_EVERY_S = 1.0
_TELL_S = 15.0
_OWING_S = 120.0
"""So long a run goes on for faults that it must have had."""
_SETTLE_S = 90.0
"""So long after the last fault what failed meanwhile may take to run again."""


class Run:
    """One run on a bed: its threads, and the loop that takes a reading each second."""

    def __init__(self, here: Bed, plan: argparse.Namespace) -> None:
        """Put the parts together."""
        seed: str = plan.seed
        self._began_s = time.monotonic()
        self._plan, self._bed = plan, here
        self._windows = Windows(self._clock)
        self.load = Load(here.api, seed)
        self._watcher = Watcher(
            here.api, here.root, NAME, windows=self._windows, wanted=self.load.wanted, clock=self._clock
        )
        self._sampler = Sampler(here.server, self._watcher, rng=random.Random(f"{seed} seen"), clock=self._clock)
        only = tuple(plan.faults.split(",")) if plan.faults else ()
        self.faults = Faults(here, self._windows, seed=f"{seed} faults", part_s=plan.seconds / 2, only=only)
        self.judge = Judge(here.totals, self._windows.all, Limits())
        self._plant = plants.planted(plan.plant, here, self._watcher)
        self._told_s = 0.0

    def _clock(self) -> float:
        return time.monotonic() - self._began_s

    def go(self) -> Outcome:
        """Let all run for the time that was asked for, then let it settle."""
        threads = (self.load, self._sampler, self.faults)
        for thread in threads:
            thread.start()
        seconds: float = self._plan.seconds
        self._look_while(
            lambda: self._clock() < seconds or (bool(self.faults.owing) and self._clock() < seconds + _OWING_S)
        )
        self.faults.stop()
        _say("no more faults; what failed has to run again")
        until_s = self._clock() + _SETTLE_S
        self._look_while(lambda: self.judge.open_debts > 0 and self._clock() < until_s)
        took_s = self._clock()
        self.load.stop()
        self._sampler.stop()
        self._plant.stop()
        self._take_seen()
        return Outcome(
            seconds=took_s,
            seed=self._plan.seed,
            pods=len(self.judge.ran),
            faults=self._windows.counted(),
            violations=self.judge.counts(),
            examples=self.judge.examples(),
            checks=self.judge.checks,
            made=self.load.made,
            errors=self.faults.errors,
            kubernetes=_version(self._bed),
            bug=self._plan.bug or self._plan.plant,
        )

    def _look_while(self, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            began_s = time.monotonic()
            reading = self._watcher.reading()
            self.judge.take(reading)
            if reading.pods is not None:
                self._sampler.choose_from(reading.pods)
                self._plant.act(reading.pods)
            self._take_seen()
            self._tell()
            time.sleep(max(0.0, _EVERY_S - (time.monotonic() - began_s)))

    def _take_seen(self) -> None:
        while not self._sampler.seen.empty():
            one = self._sampler.seen.get()
            self.judge.take_seen(one.pod, one.container, seen=one.seen, booked=one.booked, at_s=one.at_s)

    def _tell(self) -> None:
        if self._clock() - self._told_s < _TELL_S:
            return
        self._told_s = self._clock()
        bad = {kind: count for kind, count in self.judge.counts().items() if count}
        faults = sum(self._windows.counted().values())
        _say(f"{self._clock():.0f} s: {len(self.judge.ran)} pods ran, {faults} faults, violations {bad or 'none'}")


def _version(here: Bed) -> str:
    node = here.cluster.get("node", NAME)["status"]["nodeInfo"]
    return f"Kubernetes {node['kubeletVersion']}, {node['containerRuntimeVersion']}"


def _say(text: str) -> None:
    print(f"churn: {text}", flush=True)  # noqa: T201  (its screen)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--seed", default="")
    parser.add_argument("--faults", default="", help=f"these kinds alone, with commas: {','.join(KINDS)}")
    parser.add_argument("--bug", default="", choices=["", *plants.BUGS], help="a plugin that is put together wrongly")
    parser.add_argument("--plant", default="", choices=["", *plants.PLANTS], help="a lie that the checker must find")
    plan = parser.parse_args()
    plan.seed = plan.seed or str(secrets.randbelow(2**32))
    return plan


def main() -> int:
    """Run it; returns 1 where anything was wrong, or where the run proves nothing."""
    plan = _arguments()
    lacks = missing() + missing("image")
    if lacks:
        _say("; ".join(lacks))
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.glob("*.log"):
        old.unlink()
    _say(f"{plan.seconds:g} s, SEED={plan.seed}")
    with bed(LOGS, plan.bug) as here:
        outcome = Run(here, plan).go()
    (LOGS / "report.json").write_text(json.dumps(outcome.report(), indent=1))
    table = outcome.table()
    (LOGS / "churn.log").write_text(f"{table}\n")
    print(table)  # noqa: T201
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
