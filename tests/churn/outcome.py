"""What came of a run: the report, the table, and whether it proves anything. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from churn.faults import KINDS as FAULTS
from churn.findings import KINDS
from churn.judge import Readings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

S_OF_POD = 10.0
"""A run has at least one pod that ran for so many seconds, on average."""
S_OF_SEEN = 15.0
"""And one answer of nvidia-smi."""
S_OF_LEDGER = 1.5
"""And a look at the checkpoint."""
SILENT = 0.1
"""For so large a part of a run the API server may be silent without a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What became of pods that kubelet refused while a fault was on, and the longest times of the run."""

    excused: Mapping[str, int] = field(default_factory=dict)
    let_go: int = 0
    replaced: int = 0
    replaced_most_s: float = 0.0
    replaced_most_wall_s: float = 0.0
    split_bookings: int = 0
    """Containers that kubelet booked on several cards, and that had not started then."""
    pending_most_s: float = 0.0
    annotation_most_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run; `pods`: how many ran."""

    seconds: float
    seed: str
    pods: int
    faults: Mapping[str, int]
    violations: Mapping[str, int]
    samples: Mapping[str, int]
    expected: Sequence[str] = FAULTS
    """The faults that must have come."""
    examples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    readings: Readings = field(default_factory=Readings)
    recovery: Recovery = field(default_factory=Recovery)
    longest_s: Mapping[str, float] = field(default_factory=dict)
    """By kind of fault, until all was back."""
    made: Mapping[str, int] = field(default_factory=dict)
    errors: Sequence[str] = ()
    kubernetes: str = ""
    planted: Sequence[str] = ()

    @property
    def proves_nothing(self) -> list[str]:
        """Why the run would be green whatever the product does; empty where it is worth something."""
        reasons = []
        if missing := [kind for kind in self.expected if not self.faults.get(kind)]:
            reasons.append(f"these faults never came: {', '.join(missing)}")
        if unchecked := [kind for kind in KINDS if not self.samples.get(kind)]:
            reasons.append(f"never checked: {', '.join(unchecked)}")
        if self.pods < self.seconds / S_OF_POD:
            reasons.append(f"{self.pods} pods ran, fewer than one in {S_OF_POD:g} s")
        seen = self.samples.get("wrong_card_seen", 0)
        if seen < self.seconds / S_OF_SEEN:
            reasons.append(f"nvidia-smi answered {seen} times, fewer than once in {S_OF_SEEN:g} s")
        if self.readings.ledgers < self.seconds / S_OF_LEDGER:
            reasons.append(
                f"the checkpoint was read {self.readings.ledgers} times, fewer than once in {S_OF_LEDGER:g} s"
            )
        if self.readings.api_silent_s > SILENT * self.seconds:
            reasons.append(f"the API server was silent for {self.readings.api_silent_s:.0f} s although no fault was on")
        return reasons

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
            "violations": {kind: self.violations.get(kind, 0) for kind in KINDS},
            "samples": {kind: self.samples.get(kind, 0) for kind in KINDS},
            "examples": {kind: list(texts) for kind, texts in self.examples.items()},
            "readings": asdict(self.readings),
            "recovery": asdict(self.recovery),
            "longest_s": {kind: round(seconds, 1) for kind, seconds in self.longest_s.items()},
            "made": dict(sorted(self.made.items())),
            "proves_nothing": self.proves_nothing,
            "errors": list(self.errors),
            "kubernetes": self.kubernetes,
            "seed": self.seed,
            "planted": list(self.planted),
        }

    def table(self) -> str:
        """Return the report for people."""
        lines = [f"churn: {self.seconds:.0f} s, {self.pods} pods ran, SEED={self.seed}, {self.kubernetes}", ""]
        lines.append(f"  {'fault':<18} {'times':>7}  until all was back, at most")
        lines += [
            f"  {kind:<18} {self.faults.get(kind, 0):>7}  {self.longest_s.get(kind, 0.0):.0f} s" for kind in FAULTS
        ]
        lines += ["", f"  {'violation':<18} {'times':>7} {'of':>7}"]
        lines += [
            f"  {kind:<18} {self.violations.get(kind, 0):>7} {self.samples.get(kind, 0):>7}  {text}"
            for kind, text in KINDS.items()
        ]
        lines += ["", *self._closing()]
        lines += [f"  {kind}: {text}" for kind, texts in self.examples.items() for text in texts]
        lines += [f"  proves nothing: {text}" for text in self.proves_nothing]
        lines += [f"  did not come back: {text}" for text in self.errors]
        return "\n".join(lines)

    def _closing(self) -> list[str]:
        recovery, readings = self.recovery, self.readings
        excused = ", ".join(f"{count} by {kind}" for kind, count in recovery.excused.items()) or "none"
        return [
            f"  refused while a fault was on: {excused}",
            f"  replaced of these: {recovery.replaced}; no more wanted: {recovery.let_go}",
            f"  a new pod ran after {recovery.replaced_most_s:.0f} s at most without other faults",
            f"  by the clock it took {recovery.replaced_most_wall_s:.0f} s at most",
            f"  booked on several cards, and not started there: {recovery.split_bookings}",
            f"  a pod that would fit waited for {recovery.pending_most_s:.0f} s at most",
            f"  an annotation was false for {recovery.annotation_most_s:.0f} s at most",
            f"  the checker took {readings.count} readings, {readings.gap_most_s:.1f} s apart at most",
            f"  the checker was late by {readings.late_s:.0f} s in all",
            f"  the API server was silent without a fault for {readings.api_silent_s:.0f} s",
        ]
