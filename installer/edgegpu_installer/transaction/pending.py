"""What is to be done about the transaction that the journal holds, as this machine is now."""

from pathlib import Path

from edgegpu_installer.transaction.journal import Clocks, TransactionRecord, remaining_s
from edgegpu_installer.transaction.states import Decision, after_crash


def decide(record: TransactionRecord, now: Clocks, *, proc: Path | None) -> Decision:
    """Return what is to be done; the kernel's /proc tells whether the author lives, None: its lock says it is dead."""
    return after_crash(
        record.state,
        same_boot=record.boot_id == now.boot_id,
        deadline_passed=remaining_s(record, now) == 0,
        attempts=record.attempts,
        author_alive=proc is not None and is_alive(record.author, proc=proc),
    )


def is_alive(author: str, *, proc: Path) -> bool:
    """Say whether a process that the journal names as `PID:START` still runs; a pid that is used again is another."""
    pid, _, start = author.partition(":")
    try:
        fields = (proc / pid / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return bool(pid) and fields[0] not in {"Z", "X"} and fields[19] == start
