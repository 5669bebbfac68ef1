"""Why the agent goes, by the installer's journal: edgegpu is being taken off this machine, or it is just stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edgegpu_agent.session.machine import goodbye_reason
from edgegpu_installer.transaction.journal import TransactionJournal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("op", "state", "why"),
    [
        ("uninstall", "SWAPPED", "uninstall"),
        ("uninstall", "VERIFYING", "uninstall"),
        ("uninstall", "COMMITTED", "uninstall"),
        ("uninstall", "ROLLING_BACK", "stop"),
        ("uninstall", "ROLLED_BACK", "stop"),
        ("withdraw", "SWAPPED", "stop"),
        ("upgrade", "SWAPPED", "stop"),
    ],
)
def test_by_what_stands_in_the_journal(tmp_path: Path, op: str, state: str, why: str) -> None:
    (tmp_path / "state").write_text(f"id=t\nop={op}\nstate={state}\n")
    assert goodbye_reason(TransactionJournal(tmp_path)) == why


def test_a_box_without_a_journal_or_with_a_broken_one_is_just_stopped(tmp_path: Path) -> None:
    assert goodbye_reason(TransactionJournal(tmp_path)) == "stop"
    (tmp_path / "state").write_text("state=?\n")
    assert goodbye_reason(TransactionJournal(tmp_path)) == "stop"
