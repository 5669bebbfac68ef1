"""The audit of sign-ins. An attack does not fill the disk: its rows get rarer, and only so many are kept."""

from edgegpu_cloud.fleet.audit.entries import DONE, NOTHING, Author, entry_of
from edgegpu_cloud.fleet.audit.entries import REFUSED as WAS_REFUSED
from edgegpu_cloud.fleet.audit.kinds import AuditKind
from edgegpu_cloud.store.records import Json
from edgegpu_cloud.store.store import Transaction

SIGNED_IN, SIGNED_OUT = AuditKind.SIGN_IN, AuditKind.SIGN_OUT
REFUSED = AuditKind.SIGN_IN_REFUSED

KEPT = {SIGNED_IN: 20_000, REFUSED: 5_000, SIGNED_OUT: 20_000}
"""Rows of each kind that are kept; refused ones never push out those that succeeded."""

_EACH = 20
_NOBODY = "nobody"


def note_signed_in(tx: Transaction, name: str, *, address: str, now_s: float) -> None:
    """Store that somebody has signed in."""
    _note(tx, SIGNED_IN, now_s, by=name, detail={"person": name, "address": address[:64]})


def note_signed_out(tx: Transaction, name: str, *, now_s: float) -> None:
    """Store that somebody has signed out."""
    _note(tx, SIGNED_OUT, now_s, by=name, detail={"person": name})


def note_refused(tx: Transaction, name: str, *, address: str, now_s: float, tries: int) -> None:
    """Store a refused sign-in: of many in a row the first, and each whose number is a power of two.

    Args:
        tx: writes.
        name: of an account; empty where there is none of the name that was given, which is not stored: people type
            their password there.
        address: where it came from.
        now_s: the clock.
        tries: its number in a row.
    """
    if tries <= _EACH or tries & (tries - 1) == 0:
        detail: Json = {"person": name, "address": address[:64], "tries": tries}
        _note(tx, REFUSED, now_s, by=_NOBODY, detail=detail, result=WAS_REFUSED)


def _note(tx: Transaction, what: AuditKind, now_s: float, *, by: str, detail: Json, result: str = DONE) -> None:
    tx.notes.audit(entry_of(Author(by, now_s), what, NOTHING, detail=detail, result=result))
    tx.notes.trim_audit(what.value, keep=KEPT[what])
