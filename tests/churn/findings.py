"""What the checker found and how much it looked at, a number for each kind of violation. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

KINDS = {
    "unit_twice": "a unit or hundredth of a card is booked for two containers that live",
    "two_cards": "a container started on several cards, or on others than the k whole ones it asks for",
    "over_card": "more is booked on a card than it has",
    "whole_shared": "another pod is on a card that a container has as a whole",
    "admission_failed": "kubelet refused a pod that was bound, and no kill was on",
    "not_running_again": "a pod that failed while a kill was on was not replaced in time",
    "pending_fits": "a pod waited too long although it would have fitted all the time",
    "placed_impossible": "a pod was bound that no card can serve",
    "annotation_false": "the annotation names other cards than kubelet has booked",
    "records_differ": "checkpoint, PodResources and request say different amounts",
    "wrong_card_seen": "nvidia-smi in a container lists other cards than those booked for it",
}
"""Each kind of violation, and what it means."""

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """A thing that must not be; `subject` is about whom, and counts once however long it lasts."""

    kind: str
    at_s: float
    subject: str
    text: str


class Findings:
    """Violations, each subject once, and samples: how often each kind could have been seen."""

    def __init__(self, confirm: int) -> None:
        """Remember in how many readings in a row a thing must be seen that may be so for a moment."""
        self._confirm_readings = confirm
        self.violations: list[Violation] = []
        self.samples: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
        self._known: set[tuple[str, str]] = set()
        self._streaks: dict[tuple[str, str], int] = {}
        self._fresh: set[tuple[str, str]] = set()

    def sample(self, kind: str, count: int = 1) -> None:
        """Note that something was judged by a kind."""
        self.samples[kind] += count

    def violate(self, kind: str, at_s: float, subject: str, text: str) -> None:
        """Count a violation, the first time that it is seen of a subject."""
        if (kind, subject) not in self._known:
            self._known.add((kind, subject))
            self.violations.append(Violation(kind, at_s, subject, text))

    def suspect(self, kind: str, at_s: float, subject: str, text: str) -> None:
        """Count a violation once several readings in a row say it."""
        key = (kind, subject)
        if key not in self._fresh:
            self._fresh.add(key)
            self._streaks[key] = self._streaks.get(key, 0) + 1
            if self._streaks[key] >= self._confirm_readings:
                self.violate(kind, at_s, subject, text)

    def end_reading(self, *, complete: bool) -> None:
        """Forget the suspicions that this reading did not say again, if it had all that it takes to say them."""
        if complete:
            self._streaks = {key: count for key, count in self._streaks.items() if key in self._fresh}
        self._fresh = set()

    def counts(self) -> dict[str, int]:
        """Return how many violations of each kind there were."""
        seen = Counter(violation.kind for violation in self.violations)
        return {kind: seen[kind] for kind in KINDS}

    def unchecked(self) -> list[str]:
        """Return the kinds of which nothing was ever judged."""
        return [kind for kind in KINDS if not self.samples[kind]]

    def examples(self) -> dict[str, list[str]]:
        """Return the first violations of each kind that there was."""
        texts: defaultdict[str, list[str]] = defaultdict(list)
        for violation in self.violations:
            if len(texts[violation.kind]) < _EXAMPLES:
                texts[violation.kind].append(f"{violation.at_s:.1f} s: {violation.text}")
        return dict(texts)
