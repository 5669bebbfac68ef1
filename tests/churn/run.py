"""Churn: GPU pods come and go on a real kubelet while all around them is killed, and a checker looks each second."""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from churn.api import Api
from churn.bed import NAME, Bed, bed
from churn.faults import KINDS as FAULTS
from churn.faults import Faults
from churn.judge import Judge, Limits
from churn.load import Load
from churn.outcome import Outcome, Recovery
from churn.plants import Plants, kinds_of
from churn.watcher import Sampler, Watcher
from churn.windows import Windows
from kits.signals import exit_when_stopped
from lab.labkit import missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from churn.records import Reading

LOGS = Path(__file__).resolve().parents[2] / "build/churn"
_EVERY_S = 1.0
_PROGRESS_S = 15.0
_ANSWER_S = 2.0
_OWING_S = 120.0
"""So much longer a run goes on for faults and samples that it must have had."""
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
        self._load = Load(here.api, seed)
        self._watcher = Watcher(
            Api(here.proxy, _ANSWER_S),
            here.root,
            NAME,
            windows=self._windows,
            wanted=self._load.wanted,
            clock=self._clock,
        )
        self._sampler = Sampler(here.server, self._watcher, rng=random.Random(f"{seed} seen"), clock=self._clock)
        self._judge = Judge(here.totals, self._windows.all, Limits())
        self._faults = Faults(
            here,
            self._windows,
            seed=f"{seed} faults",
            part_s=plan.seconds / 2,
            refusal_owed=lambda: not self._judge.findings.samples["not_running_again"],
            only=tuple(plan.faults.split(",")) if plan.faults else (),
        )
        self._plants = Plants(plan.plant, here.totals, self._windows.all)
        self._progress_s = 0.0
        self._printed = 0
        self._errors: list[str] = []

    def _clock(self) -> float:
        return time.monotonic() - self._began_s

    def go(self) -> Outcome:
        """Let all run for the time that was asked for, then let it settle."""
        parts: dict[str, Load | Sampler | Faults] = {
            "load": self._load,
            "nvidia-smi": self._sampler,
            "faults": self._faults,
        }
        for part in parts.values():
            part.start()
        seconds: float = self._plan.seconds
        self._look_while(lambda: self._clock() < seconds or (self._owing() and self._clock() < seconds + _OWING_S))
        self._errors = [f"{name}: its thread has ended, see above" for name, part in parts.items() if not part.alive]
        self._faults.stop()
        _print("no more faults; what failed has to run again")
        until_s = self._clock() + _SETTLE_S
        self._look_while(lambda: self._judge.refusals.open_debts > 0 and self._clock() < until_s)
        took_s = self._clock()
        self._load.stop()
        self._sampler.stop()
        self._take_seen()
        outcome = self._outcome(took_s)
        self._load.clear()
        return outcome

    def _owing(self) -> bool:
        return bool(self._faults.owing or self._judge.findings.unchecked())

    def _look_while(self, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            began_s = time.monotonic()
            reading = self._plants.reading(self._watcher.reading())
            self._judge.take(reading)
            if reading.pods is not None:
                self._sampler.choose_from(reading.pods)
            self._take_seen()
            self._print_violations(reading)
            self._print_progress()
            time.sleep(max(0.0, _EVERY_S - (time.monotonic() - began_s)))

    def _take_seen(self) -> None:
        while not self._sampler.seen.empty():
            answer = self._sampler.seen.get()
            self._judge.take_seen(
                answer.pod,
                answer.container,
                seen=self._plants.seen(answer.seen),
                booked=answer.booked,
                at_s=answer.at_s,
            )

    def _print_violations(self, reading: Reading) -> None:
        """Print what is new, and keep the reading in which it was seen."""
        violations = self._judge.findings.violations
        for number in range(self._printed, len(violations)):
            violation = violations[number]
            _print(f"{violation.at_s:.0f} s: {violation.kind}: {violation.text}")
            evidence = f"{violation}\n{reading!r}\n{self._windows.all()}\n"
            (LOGS / f"evidence-{number + 1}.log").write_text(evidence)
        self._printed = len(violations)

    def _print_progress(self) -> None:
        if self._clock() - self._progress_s < _PROGRESS_S:
            return
        self._progress_s = self._clock()
        faults = sum(self._windows.counted().values())
        pods, violations = len(self._judge.book.ran), len(self._judge.findings.violations)
        _print(f"{self._clock():.0f} s: {pods} pods ran, {faults} faults, {violations} violations")

    def _outcome(self, took_s: float) -> Outcome:
        judge, refusals = self._judge, self._judge.refusals
        node = self._bed.cluster.get("node", NAME)["status"]["nodeInfo"]
        return Outcome(
            seconds=took_s,
            seed=self._plan.seed,
            pods=len(judge.book.ran),
            faults=self._windows.counted(),
            violations=judge.findings.counts(),
            samples=judge.findings.samples,
            expected=self._faults.kinds,
            examples=judge.findings.examples(),
            readings=judge.readings,
            recovery=Recovery(
                excused=dict(refusals.excused),
                let_go=refusals.let_go,
                replaced=refusals.replaced,
                replaced_most_s=refusals.replaced_most_s,
                replaced_most_wall_s=refusals.replaced_most_wall_s,
                split_bookings=len(judge.split_bookings),
                pending_most_s=judge.waiting.most_s,
                annotation_most_s=judge.annotation_most_s,
            ),
            longest_s=self._windows.longest_s(),
            made=self._load.made,
            errors=[*self._errors, *self._faults.errors],
            kubernetes=f"Kubernetes {node['kubeletVersion']}, {node['containerRuntimeVersion']}",
            planted=self._plan.plant,
        )


def _print(text: str) -> None:
    sys.stdout.write(f"churn: {text}\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="the run goes on for what it has not had by then")
    parser.add_argument("--seed", default="", help="of workloads and faults")
    parser.add_argument("--faults", default="", help=f"these kinds alone, with commas: {','.join(FAULTS)}")
    parser.add_argument("--product", type=Path, help="a checkout whose plugin and extender run, in place of this one's")
    parser.add_argument(
        "--plant", default=(), type=kinds_of, help="violations that the checker must find; all: each kind"
    )
    plan = parser.parse_args()
    plan.seed = plan.seed or str(secrets.randbelow(2**32))
    return plan


def main() -> int:
    """Run it; returns 1 where anything was wrong, or where the run proves nothing."""
    exit_when_stopped()
    plan = _arguments()
    if lacks := missing() + missing("image"):
        _print("; ".join(lacks))
        return 1
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in (*LOGS.glob("*.log"), *LOGS.glob("report.json")):
        old.unlink()
    _print(f"{plan.seconds:g} s, SEED={plan.seed}")
    with bed(LOGS, plan.product) as here:
        outcome = Run(here, plan).go()
        (LOGS / "report.json").write_text(json.dumps(outcome.report(), indent=1))
        sys.stdout.write(f"{outcome.table()}\n")
    return 0 if outcome.clean else 1


if __name__ == "__main__":
    sys.exit(main())
