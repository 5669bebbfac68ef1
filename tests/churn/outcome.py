"""What came of a run: the report, the table, and whether it proves anything. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from churn.faults import KINDS as FAULTS
from churn.judge import KINDS, Checks

LONG_S = 180.0
"""A run of so long must have had each kind of fault."""
S_OF_POD = 6.0
"""A run has at least one pod that ran for so many seconds, on average."""
S_OF_SEEN = 15.0
"""And one answer of nvidia-smi."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run; `pods`: how many ran."""

    seconds: float
    seed: str
    pods: int
    faults: Mapping[str, int]
    violations: Mapping[str, int]
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checks: Checks = field(default_factory=Checks)
    made: Mapping[str, int] = field(default_factory=dict)
    errors: Sequence[str] = ()
    kubernetes: str = ""
    bug: str = ""

    @property
    def proves_nothing(self) -> list[str]:
        """Why the run would be green whatever the product does; empty where it is worth something."""
        why = []
        missing = [kind for kind in FAULTS if not self.faults.get(kind)] if self.seconds >= LONG_S else []
        if missing:
            why.append(f"these faults never came: {', '.join(missing)}")
        if self.pods < self.seconds / S_OF_POD:
            why.append(f"{self.pods} pods ran, fewer than one in {S_OF_POD:g} s")
        if self.checks.seen < self.seconds / S_OF_SEEN:
            why.append(f"nvidia-smi answered {self.checks.seen} times, fewer than once in {S_OF_SEEN:g} s")
        if self.checks.ledgers < self.seconds / 2:
            why.append(f"the checkpoint was read {self.checks.ledgers} times, fewer than every other second")
        idle = [name for name in ("annotations", "listed", "fits") if not getattr(self.checks, name)]
        if idle:
            why.append(f"never compared: {', '.join(idle)}")
        return why

    @property
    def clean(self) -> bool:
        """Whether the run has passed."""
        return not (any(self.violations.values()) or self.proves_nothing or self.errors)

    def report(self) -> dict[str, object]:
        """Return what `report.json` holds."""
        return {
            "seconds": round(self.seconds, 1),
            "pods": self.pods,
            "faults": {kind: self.faults.get(kind, 0) for kind in FAULTS},
            "violations": dict(self.violations),
            "examples": {kind: list(some) for kind, some in self.examples.items()},
            "checks": {**asdict(self.checks), "excused": dict(self.checks.excused)},
            "made": dict(sorted(self.made.items())),
            "proves_nothing": self.proves_nothing,
            "errors": list(self.errors),
            "kubernetes": self.kubernetes,
            "seed": self.seed,
            "bug": self.bug,
        }

    def table(self) -> str:
        """Return the report for people."""
        checks = self.checks
        lines = [f"churn: {self.seconds:.0f} s, {self.pods} pods ran, seed {self.seed}, {self.kubernetes}", ""]
        lines += [f"  {kind:<18} {self.faults.get(kind, 0):>5}" for kind in FAULTS]
        lines += ["", *(f"  {kind:<18} {self.violations.get(kind, 0):>5}  {text}" for kind, text in KINDS.items()), ""]
        lines.append(
            f"  compared: {checks.ledgers} checkpoints, {checks.annotations} annotations, {checks.listed} of PodResources, "
            f"{checks.fits} waiting pods, {checks.seen} nvidia-smi; the API was silent {checks.api_silent} times"
        )
        excused = ", ".join(f"{count} by {kind}" for kind, count in checks.excused.items()) or "none"
        lines.append(
            f"  refused while a fault was on: {excused}; {checks.replaced} replaced, after {checks.replaced_most_s:.0f} s at most"
        )
        lines.append(
            f"  longest: a pod that would fit waited {checks.pending_most_s:.0f} s, an annotation was wrong {checks.annotation_most_s:.0f} s"
        )
        lines += [f"  {kind}: {text}" for kind, some in self.examples.items() for text in some]
        lines += [f"  proves nothing: {text}" for text in self.proves_nothing]
        lines += [f"  did not come back: {text}" for text in self.errors]
        return "\n".join(lines)
