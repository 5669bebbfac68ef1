"""What holds containers to their memory, in words: for `edgegpu pods`."""

from edgegpu_agent.cli.clients.document import CardLimit, PodRow, StatusDocument
from edgegpu_core import reasons
from edgegpu_core.model import size_text


def holds_any(document: StatusDocument) -> bool:
    """Return whether isolation is worth a column: it is on, or a container of before is still held."""
    states = (row.isolation.state for row in document.pods if row.isolation is not None)
    return reasons.holds_any(document.isolation, states)


def held_words(row: PodRow) -> str:
    """Return a container's state, with what it has counted of its limit; a line for each card."""
    found = row.isolation
    if found is None:
        return "-"
    amounts = [_amounts(one) for one in found.cards]
    return found.state if not amounts else f"{found.state} ({', '.join(amounts)})"


def _amounts(one: CardLimit) -> str:
    text = f"{size_text(one.counted_mib)} of {size_text(one.limit_mib)}"
    if one.core_percent:
        text = f"{text}, core {one.core_percent}"
    if one.is_live:
        text = f"{text}; {one.limit_units} of {one.held_units} units (live)"
    return f"{text}; {one.refusals} refused" if one.refusals else text


def full_reason(row: PodRow) -> str:
    """Return why a container is in its state, why nothing or less holds it, and what else it should get."""
    found = row.isolation
    loose = reasons.loose_words(found.reason if found is not None else "")
    return "; ".join(text for text in (row.reason, loose, *(found.notes if found is not None else ())) if text)
