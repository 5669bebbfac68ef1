"""Chaos: commands to real agents while everything dies, cuts and lies around them; then the ledgers are compared."""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from chaos import evidence, lan, machine, site  # noqa: E402  (the path comes first)
from chaos.booted import Booted, booted  # noqa: E402
from chaos.faults import AIMED, Faults  # noqa: E402
from chaos.fleetwide import FleetChanges  # noqa: E402
from chaos.load import Load  # noqa: E402
from chaos.moves import MOST_MOVE_S, PartitionMoves  # noqa: E402
from chaos.rogue import Rogue, wait_heard  # noqa: E402
from chaos.verdict import STAND_INS_CANNOT_SHOW, Verdict, judge, judge_faults, ledger_of  # noqa: E402
from kits import postgres  # noqa: E402
from kits.signals import exit_when_stopped  # noqa: E402
from lab.labrun import LabError  # noqa: E402

from edgegpu_cloud.controller.partitions import LeaseTimes  # noqa: E402
from edgegpu_sync.ids import device_id  # noqa: E402

CONTROLLERS = 3
NO_FAKETIME = "no faketime here: apt-get install faketime"
_TURN_S = 0.02
_TELL_S = 10.0
_OWING_S = 90.0
"""So long a run goes on after everything was asked, for faults that it must have."""
BUGS = ("ack-before-journal", "forget-ids", "no-bug")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked for; `settle_s`: after the last fault, until everything must have ended.

    `boxes` have stand-ins for systemd and installer, `booted` have the real ones; `why_not`: why there are none.
    `why_one`: why there are not several controllers, where that was not asked for.
    `lost_s`: of the leases of several controllers; they are away for up to twice it, and stopped for up to three times
    it or 30 s, whichever is longer.
    """

    commands: int
    boxes: int = 4
    seed: int = 0
    bug: str = ""
    settle_s: float = 240.0
    keep: bool = False
    booted: int = 0
    controllers: int = 1
    why_one: str = ""
    lost_s: float = LeaseTimes().lost_s
    why_not: str = "nobody asked for one"
    aimed: float = AIMED

    @property
    def launcher(self) -> tuple[str, ...]:
        """The agents' command line: the real one, or that of a composition with a bug."""
        if not self.bug:
            return (str(machine.BIN / "edgegpu-agent"),)
        return (sys.executable, str(machine.HERE / "buggy.py"), "--bug", self.bug)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    verdict: Verdict
    faults: Counter[str]
    skipped: dict[str, str]
    died: dict[str, int]
    seconds: float
    ledgers: Counter[str] = field(default_factory=Counter)
    taken_s: list[float] = field(default_factory=list)
    """How long the partitions of each controller that was away stayed with it, while another could have taken them."""
    waited_most_s: float = 0.0
    """The longest of these times; those in which the controller came back before are among them."""
    asked: Counter[str] = field(default_factory=Counter)
    """How much was asked of which kind of box."""

    @property
    def wrong(self) -> list[str]:
        """What makes the run red, in words."""
        waited = f"partitions stayed with an absent controller for {self.waited_most_s:.1f} s, over {MOST_MOVE_S:g}"
        return [*self.verdict.words, *([waited] if self.waited_most_s > MOST_MOVE_S else ())]

    def report(self) -> dict[str, object]:
        verdict = self.verdict
        return {
            "commands": self.plan.commands,
            "lost": len(verdict.lost),
            "twice": len(verdict.twice),
            "stuck": len(verdict.stuck),
            "unknown": len(verdict.unknown),
            "two_ends": len(verdict.two_ends),
            "unshown": len(verdict.unshown),
            "faults": dict(sorted(self.faults.items())),
            "skipped": self.skipped,
            "died": self.died,
            "ends": dict(sorted(verdict.ends.items())),
            "ledgers": dict(sorted(self.ledgers.items())),
            "booted": self.plan.booted,
            "controllers": self.plan.controllers,
            "partitions_taken": len(self.taken_s),
            "partitions_waited_most_s": round(self.waited_most_s, 1),
            "asked": {kind: self.asked[kind] for kind in ("booted", "stand-in")},
            "stand_ins_cannot_show": list(STAND_INS_CANNOT_SHOW),
            "failed": dict(sorted(verdict.failed.items())),
            "seconds": round(self.seconds, 1),
            "seed": self.plan.seed,
            "bug": self.plan.bug,
            "words": verdict.words,
        }


def run(plan: Plan, place: Path) -> Outcome:
    """Do it all in an empty folder."""
    with booted([f"booted-{number}" for number in range(1, plan.booted + 1)], place) as made:
        return _run(plan, place, made)


def _run(plan: Plan, place: Path, made: list[Booted]) -> Outcome:
    began, rng = time.monotonic(), random.Random(plan.seed)
    here = site.build(
        place,
        boxes=plan.boxes,
        launcher=plan.launcher,
        rng=rng,
        booted=made,
        controllers=plan.controllers,
        lost_s=plan.lost_s,
    )
    with ExitStack() as ends:
        ends.callback(here.close)
        moves = PartitionMoves(here.controllers, here.store)
        rogue = Rogue(here.open_port, rng)
        ends.callback(rogue.close)
        load = Load(here, rng)
        ends.callback(load.close)
        wide = (
            FleetChanges(here.store, {device_id(box.device): box.name for box in here.boxes}) if here.further else None
        )
        wait_heard(rogue)
        faults = Faults(here, rogue, rng, aimed=plan.aimed)
        _storm(plan, here, load, faults, moves, wide)
        faults.calm()
        _settle(plan, here, load, wide)
        verdict = _verdict(here, load, wide)
        verdict.stuck += faults.errors
        if plan.controllers > 1:
            judge_faults(verdict, faults.counted, asked=plan.commands, partitions_taken=len(moves.taken_s))
    return Outcome(
        plan=plan,
        verdict=verdict,
        faults=faults.counted,
        skipped=faults.skipped | _left_out(plan),
        died={one.name: one.died for one in here.kept if one.died},
        seconds=time.monotonic() - began,
        taken_s=moves.taken_s,
        waited_most_s=moves.most_s,
        ledgers=Counter(ledger_of(one.op, booted=_is_booted(one.box)) for one in load.asked),
        asked=Counter("booted" if _is_booted(one.box) else "stand-in" for one in load.asked),
    )


def _is_booted(box: str) -> bool:
    return box.startswith("booted")


def _storm(
    plan: Plan, here: site.Site, load: Load, faults: Faults, moves: PartitionMoves, wide: FleetChanges | None
) -> None:
    """Ask, while everything goes wrong, until all was asked and almost all has ended."""
    told_s, few = time.monotonic(), plan.boxes * 2
    end_s: float | None = None

    def goes_on() -> bool:
        if end_s is None:
            return True
        now = time.monotonic()
        return (faults.owing and now < end_s + _OWING_S) or (load.open > few and now < end_s)

    while goes_on():
        here.tend()
        load.pump(plan.commands)
        faults.tick(load.ended, load.real_done, asked=len(load.asked) / plan.commands)
        moves.tick()
        if wide is not None:
            wide.tick(len(load.asked) / plan.commands)
        if len(load.asked) >= plan.commands and end_s is None:
            end_s = time.monotonic() + 20.0
        if time.monotonic() - told_s > _TELL_S:
            told_s = time.monotonic()
            _say(f"{len(load.asked)} asked, {load.ended} ended, {sum(faults.counted.values())} faults")
        time.sleep(_TURN_S)


def _settle(plan: Plan, here: site.Site, load: Load, wide: FleetChanges | None) -> None:
    _say(f"all is asked, {load.open} are open; the faults have stopped")

    def settled() -> bool:
        load.look()
        if load.open or (wide is not None and wide.open):
            return False
        return all(box.applied_rev == box.rev for box in here.fleet.boxes())

    try:
        here.wait(settled, what="everything has ended", timeout_s=plan.settle_s + (300 if plan.booted else 0))
    except TimeoutError as error:
        _say(str(error))


def _verdict(here: site.Site, load: Load, wide: FleetChanges | None) -> Verdict:
    asked = [*load.asked, *(wide.asked() if wide is not None else ())]
    told = evidence.told(here, asked)
    for box in here.boxes:
        box.agent.stop()
    boxes = {box.name: evidence.done(here, box, asked, told) for box in here.boxes}
    silent = {}
    for one in here.booted:
        try:
            one.settled()
            boxes[one.name] = evidence.done(here, one, asked, told)
        except (LabError, OSError) as error:
            silent[one.name] = f"{one.name} cannot be asked what it did: {error}"
    heard = [one for one in asked if one.box not in silent]
    booted_boxes = {one.name for one in here.booted} - silent.keys()
    verdict = judge(heard, told, boxes, here.uploads.taken, booted=booted_boxes)
    verdict.stuck += silent.values()
    if wide is not None:
        wide.judge(verdict, asked)
    return verdict


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def _tell(outcome: Outcome, target: Path) -> None:
    report = outcome.report()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(report, indent=1) + "\n")
    for name in ("faults", "ends", "failed", "ledgers", "asked"):
        _say(f"{name}:")
        for kind, count in dict(report[name]).items():  # type: ignore[call-overload]
            sys.stdout.write(f"    {kind:44} {count:6}\n")
    if outcome.plan.controllers > 1:
        times, most_s = report["partitions_taken"], report["partitions_waited_most_s"]
        _say(f"others took the partitions of a controller that was away {times} times, within {most_s} s")
    for kind, why in outcome.skipped.items():
        _say(f"left out: {kind}: {why}")
    _say("what stand-ins cannot show, and booted boxes do:" if outcome.plan.booted else "what this run has not shown:")
    for words in STAND_INS_CANNOT_SHOW:
        sys.stdout.write(f"    {words}\n")
    for words in outcome.wrong[:40]:
        sys.stdout.write(f"FAILED {words}\n")
    names = ("commands", "lost", "twice", "stuck", "unknown", "two_ends", "unshown", "seconds", "seed")
    _say(", ".join(f"{name} {report[name]}" for name in names))


def _left_out(plan: Plan) -> dict[str, str]:
    """Return what the run has not, by what it is, with the reason."""
    found = {} if plan.booted else {"booted boxes": plan.why_not}
    if plan.why_one:
        found["three controllers"] = plan.why_one
    elif plan.controllers > 1 and site.faketime() is None:
        found["clocks of controllers a minute apart"] = NO_FAKETIME
    return found


def _controllers() -> tuple[int, str]:
    """Return how many controllers a run has where nobody says it, and why not several; in CI there must be several."""
    missing = [] if postgres.programs() else [postgres.MISSING]
    if os.environ.get("CI") and (lacks := missing + ([] if site.faketime() else [NO_FAKETIME])):
        raise SystemExit("; ".join(lacks))
    return (1, missing[0]) if missing else (CONTROLLERS, "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=1_000)
    parser.add_argument("--boxes", type=int, default=4)
    parser.add_argument(
        "--booted", type=int, default=None, help="boxes with systemd and k3s: 1 where they can be booted"
    )
    parser.add_argument(
        "--controllers", type=int, default=None, help="on a PostgreSQL: 3 where it is installed, else 1 on SQLite"
    )
    parser.add_argument("--seed", type=int, default=None, help="of what goes wrong; another one each time if left out")
    parser.add_argument("--bug", choices=BUGS, default="", help="start agents with it: the run must turn red")
    parser.add_argument("--settle-s", type=float, default=240.0)
    parser.add_argument("--keep", action="store_true", help="leave the folder with all logs, also when all is well")
    parser.add_argument("--report", type=Path, default=ROOT / "build/chaos/report.json")
    chosen = parser.parse_args()
    if (chosen_boxes := lan.choose(chosen.booted)).booted and not lan.is_here():
        lan.go_there(lan.back())
    controllers, why_one = (chosen.controllers, "") if chosen.controllers else _controllers()
    seed = secrets.randbelow(1_000_000) if chosen.seed is None else chosen.seed
    plan = Plan(
        commands=chosen.commands,
        boxes=chosen.boxes,
        seed=seed,
        bug=chosen.bug,
        settle_s=chosen.settle_s,
        keep=chosen.keep,
        booted=chosen_boxes.booted,
        controllers=controllers,
        why_one=why_one,
        why_not=chosen_boxes.why,
    )
    exit_when_stopped()
    place = Path(tempfile.mkdtemp(prefix="chaos-"))
    _say(f"seed {seed}, in {place}")
    outcome = run(plan, place)
    _tell(outcome, chosen.report)
    if not outcome.wrong and not plan.keep:
        shutil.rmtree(place, ignore_errors=True)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
