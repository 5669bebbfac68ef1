"""The closing lines of a run: what is unsteady, a table of all steps, and how many tests came to what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gate.rerun import MOST_UNSTEADY, Verdict
from gate.steps import TIME_OVER, Step


def result_of(step: Step, verdict: Verdict) -> str:
    """Return the word of a step for the table."""
    if not step.failed:
        return "passed"
    if step.name in verdict.red:
        return f"FAILED (over {step.limit_min} min)" if step.status == TIME_OVER else f"FAILED ({step.status})"
    return f"passed, {sum(row.step == step.name for row in verdict.unsteady)} unsteady"


def counts_of(step: Step) -> Counter[str]:
    """Return how many tests of a step came to what."""
    counts: Counter[str] = Counter()
    for session in step.sessions:
        counts.update(session.counts)
    return counts


def lines(steps: list[Step], verdict: Verdict, title: str) -> Iterator[str]:
    """Yield the closing lines: the last one is like pytest's own, and says all in one."""
    yield f"=== {title}"
    for step in steps:
        counts = counts_of(step)
        tests = ", ".join(f"{number} {end}" for end, number in counts.items() if number)
        yield f"{step.name:<10} {step.seconds:5d} s  {result_of(step, verdict):<22} {tests}".rstrip()
    for row in verdict.unsteady:
        yield f"unsteady: {row.test} ({row.step}): {row.cause}"
        yield f"          its log: {row.log}"
    for step_name, reasons in verdict.red.items():
        for reason in reasons:
            yield f"red: {step_name}: {reason}"
    yield from (f"red: {reason}" for reason in verdict.too_unsteady)
    yield from (f"note: {note}" for note in verdict.notes)
    total: Counter[str] = Counter()
    for step in steps:
        total.update(counts_of(step))
    numbers = {
        "failed": total["failed"] - sum(row.is_test for row in verdict.unsteady),
        "passed": total["passed"],
        f"unsteady (at most {MOST_UNSTEADY})": len(verdict.unsteady),
        "skipped": total["skipped"],
        "steps": len(steps),
    }
    words = ", ".join(f"{number} {what}" for what, number in numbers.items() if number or what != "failed")
    end = "passed" if verdict.passes else f"FAILED: {', '.join(verdict.red) or 'too many unsteady tests'}"
    yield f"===== {end}: {words} ====="
