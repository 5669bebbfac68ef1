"""Periodic steps that meet another transaction: they are tried again at their next turn, and end no process."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from edgegpu_cloud.store.store import ContendedError

_LOG = logging.getLogger(__name__)


@contextmanager
def tried_next_turn(what: str) -> Iterator[None]:
    """Leave a step of a task that comes again where another transaction was in its way: nothing of it was changed.

    The block is one transaction, or several that each may be the last. `what` completes "cannot …" in the log.
    """
    try:
        yield
    except ContendedError as error:
        _LOG.warning("cannot %s now: %s; tried again at the next turn", what, error.text)
