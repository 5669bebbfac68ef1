"""What the tests of a booted machine have in common, whichever machine it is: their marks, and what a failure says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from box.bed import Bed

if TYPE_CHECKING:
    from collections.abc import Sequence


def mark_tests(items: Sequence[pytest.Item], folder: Path, *, mark: str, limit_s: int, lacks: Sequence[str]) -> None:
    """Mark all tests of a folder; where the machine lacks something, skip them, but in CI."""
    for item in items:
        if Path(item.path).is_relative_to(folder):
            item.add_marker(getattr(pytest.mark, mark))
            item.add_marker(pytest.mark.timeout(limit_s))
            if lacks and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason="; ".join(lacks)))


def add_words_of_bed(item: pytest.Item, report: pytest.TestReport, title: str) -> None:
    """Say with a failed test what its machine says of itself."""
    beds = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Bed)]
    if report.when != "teardown" and report.failed and beds:
        report.sections.append((title, beds[0].told()))
