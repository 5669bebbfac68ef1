"""Terms over labels of boxes, and the rows of boxes that have such labels."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, select

from edgegpu_cloud.store.records import LabelTerm
from edgegpu_cloud.store.schema import BoxRow, table
from edgegpu_cloud.store.summaries.schema import LabelRow

_BOXES, _LABELS = table(BoxRow), table(LabelRow)


def has_label(device: ColumnElement[Any], term: LabelTerm) -> ColumnElement[bool]:
    """Return the condition that a term holds for the box of a row; a row of no box has no labels."""
    having = select(_LABELS.c.device).where(_LABELS.c.key == term.key)
    if term.values is not None:
        having = having.where(_LABELS.c.value.in_(sorted(term.values)))
    return device.in_(having) if term.wanted else device.not_in(having)


def in_scope(device: ColumnElement[Any], scope: Sequence[LabelTerm]) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a row belongs to a box for which all terms hold; none where there are no terms.

    A row of no box, or of one that is forgotten, is in no scope that has a term.
    """
    if not scope:
        return ()
    return (and_(device.in_(select(_BOXES.c.device)), *(has_label(device, term) for term in scope)),)
