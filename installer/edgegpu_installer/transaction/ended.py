"""The transactions that have ended, as the journal's history and its record tell of them."""

import calendar
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgegpu_installer.transaction.journal import TransactionRecord
from edgegpu_installer.transaction.states import TERMINAL, TransactionState

RECOVERY, RESUME = "recovery", "resume"
"""Who goes on with a transaction whose author died: edgegpu-recover, or `edgegpu transaction resume`."""

_NOTE = re.compile(r"(by|version|from)=(\S+)(?: |$)")
_TERMINAL = frozenset(state.value for state in TERMINAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """A transaction that has ended: `state` is COMMITTED or ROLLED_BACK, and `why` says why it was undone.

    `began_s`, `ended_s`: seconds since 1970 by this machine's clock, 0 where the history has no such line any more.
    `user`: who ran the installer. `version`: the installer's; `before`: the one that was installed. They are empty
    where the history does not say. `recovered`: its author died, and something else brought it to its end.
    """

    id: str
    op: str
    state: TransactionState
    why: str = ""
    began_s: int = 0
    ended_s: int = 0
    user: str = ""
    version: str = ""
    before: str = ""
    recovered: bool = False


@dataclass(frozen=True, slots=True)
class _Line:
    at_s: int
    id: str
    op: str
    state: str
    notes: dict[str, str]
    why: str


def begin_note(*, user: str, version: str, before: str) -> str:
    """Return what the history says of a transaction that begins; `ended_transactions` reads it."""
    values = {"by": user, "version": version, "from": before if before != version else ""}
    return " ".join(f"{name}={'_'.join(value.split())}" for name, value in values.items() if value.strip())


def ended_transactions(history: Iterable[str], record: TransactionRecord | None) -> tuple[EndedTransaction, ...]:
    """Return the transactions that have ended, oldest first.

    The record decides for its own transaction: the history gets its line before the record is written, and may lack it
    where the disk was full.
    """
    lines: dict[str, list[_Line]] = {}
    for line in filter(None, map(_line, history)):
        lines.setdefault(line.id, []).append(line)
    if record is not None:
        lines.setdefault(record.id, [])
    ended = (_ended(id_, found, record if record and record.id == id_ else None) for id_, found in lines.items())
    return tuple(one for one in ended if one is not None)


def _ended(id_: str, lines: Sequence[_Line], record: TransactionRecord | None) -> EndedTransaction | None:
    state = record.state.value if record is not None else lines[-1].state
    if state not in _TERMINAL:
        return None
    last = next((line for line in reversed(lines) if line.state == state), None)
    first = lines[0] if lines and lines[0].state == TransactionState.PREPARED else None
    notes = first.notes if first is not None else {}
    return EndedTransaction(
        id=id_,
        op=record.op.value if record is not None else lines[-1].op,
        state=TransactionState(state),
        why=record.why if record is not None else lines[-1].why,
        began_s=lines[0].at_s if lines else 0,
        ended_s=last.at_s if last is not None else 0,
        user=notes.get("by", ""),
        version=notes.get("version", record.version if record is not None else ""),
        before=notes.get("from", ""),
        recovered=any(line.notes.get("by") in {RECOVERY, RESUME} for line in lines if line is not first),
    )


def _line(text: str) -> _Line | None:
    """Read a line of the history: time, id, kind, state, notes, why. None: cut off, or not of a transaction."""
    stamp, _, rest = text.partition(" ")
    words = rest.split(" ", 3)
    try:
        at_s = calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))
        state = TransactionState(words[2])
    except (ValueError, IndexError):
        return None
    notes, why = {}, words[3] if len(words) > 3 else ""  # noqa: PLR2004  (the four words)
    while found := _NOTE.match(why):
        notes[found[1]] = found[2]
        why = why[found.end() :]
    return _Line(max(0, at_s), words[0], words[1], state.value, notes, why)
