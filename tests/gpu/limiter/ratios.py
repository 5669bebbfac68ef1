"""Figures with the limiter over those without it, taken in turns, and the upper bound of their mean."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu.limiter.bench import Bench

STUDENT = ((5, 2.015), (10, 1.812), (15, 1.753), (20, 1.725), (30, 1.697), (60, 1.671))
"""The 95 % point of Student's t by degrees of freedom; between two the larger one counts."""


def judge_ratio(bench: Bench, name: str, native: list[float], limited: list[float], *, most: float) -> None:
    """Judge the upper confidence bound (95 %, one-sided) of the mean ratio of pairs."""
    ratios = [ours / theirs for ours, theirs in zip(limited, native, strict=True)]
    mean = statistics.fmean(ratios)
    bound = mean + student(len(ratios) - 1) * _error(ratios)
    why = f"mean {mean:.4f} of {len(ratios)} pairs, native {statistics.median(native):.6g}"
    bench.note(f"{name}, against native", bound, "times", most=most, why=why)


def student(freedom: int) -> float:
    """Return the 95 % point for at least so many degrees of freedom."""
    return next((value for at, value in reversed(STUDENT) if at <= freedom), 6.314)


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
