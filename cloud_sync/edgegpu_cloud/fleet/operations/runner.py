"""The runner of operations: it stores their changes, 500 boxes in one transaction, and goes on where one has ended."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgegpu_cloud.fleet.operations.kinds import apply_operation
from edgegpu_cloud.phrases import Verbatim, phrase
from edgegpu_cloud.store.controllers.leadership import Leadership, LeasesLostError, SoleLeader
from edgegpu_cloud.store.controllers.next_turn import tried_next_turn
from edgegpu_cloud.store.operations.records import (
    BoxOutcome,
    Operation,
    OperationBox,
    OperationState,
)
from edgegpu_cloud.store.store import ControllerStore, RecordError, StoreError, Transaction

_LOG = logging.getLogger(__name__)

POLL_S = 0.25
"""How often the runner looks for operations."""

_MOST_WORDS = 450
"""Of an error that nobody foresaw, as they stand in the store."""

AT_ONCE = 500
"""Boxes whose change is stored in one transaction."""


class OperationRunner:
    """Applies what waits to be stored; `stop` is for any thread.

    What is done stands in the store alone, with the boxes' outcomes in the transaction that stores their changes: any
    process goes on where another was killed. Of several controllers the one that leads does it, and each transaction
    makes sure of that. The operation's row is locked meanwhile, because people cancel it.
    """

    def __init__(
        self,
        store: ControllerStore,
        *,
        leadership: Leadership | None = None,
        clock: Callable[[], float] = time.time,
        at_once: int = AT_ONCE,
    ) -> None:
        """Take a store.

        Args:
            store: the controller's.
            leadership: of this process among several; None: it has the store for itself.
            clock: seconds since 1970.
            at_once: so many boxes are changed in one transaction.
        """
        self._store, self._clock, self._at_once = store, clock, at_once
        self._leadership = leadership or SoleLeader(store)
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    def run(self) -> None:
        """Work until `stop`.

        Raises:
            StoreError: the database refuses, whatever is done.
        """
        while not self._stopped.wait(POLL_S):
            while self.step() and not self._stopped.is_set():
                pass

    def step(self) -> bool:
        """Store the change of the oldest operation for some boxes; return whether the next step may come at once."""
        done = False
        if not self._leadership.leads:
            return done
        try:
            with tried_next_turn("work on the operations"):
                done = self._step()
        except LeasesLostError:
            _LOG.warning("another controller works on the operations by now")
        return done

    def _step(self) -> bool:
        with self._store.read() as tx:
            running = tx.operations.running()
        if not running:
            return False
        try:
            with self._leadership.lead() as tx:
                if (found := self._next(tx, running[0], self._at_once)) is not None:
                    apply_operation(tx, *found, now_s=self._clock())
        except LeasesLostError:
            raise
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, RecordError):
                raise
            _LOG.exception("cannot store operation %s for some boxes together: each is tried alone", running[0])
            self._one_by_one(running[0])
        return True

    def _next(self, tx: Transaction, id_: str, limit: int) -> tuple[Operation, Sequence[OperationBox]] | None:
        """Return the boxes that come next; where none is left, or it was cancelled, the operation ends."""
        operation = tx.operations.get(id_)
        if operation is None or operation.state is not OperationState.RUNNING:
            return None
        rows = tx.operations.boxes(id_, outcomes=[BoxOutcome.QUEUED], limit=limit)
        if not rows:
            tx.operations.end(id_, OperationState.DONE, now_s=self._clock())
            return None
        return operation, rows

    def _one_by_one(self, id_: str) -> None:
        """Store the change for as many boxes as before, each in its own transaction: a fault of one harms no other."""
        for _ in range(self._at_once):
            failed: OperationBox | None = None
            try:
                with self._leadership.lead() as tx:
                    found = self._next(tx, id_, 1)
                    if found is None:
                        return
                    failed = found[1][0]
                    apply_operation(tx, *found, now_s=self._clock())
            except LeasesLostError:
                raise
            except Exception as error:
                if failed is None or (isinstance(error, StoreError) and not isinstance(error, RecordError)):
                    raise
                _LOG.exception("cannot store operation %s for %s", id_, failed.device)
                words = Verbatim(f"{type(error).__name__}: {error}"[:_MOST_WORDS])
                text = phrase("the controller cannot store this: %(words)s", words=words)
                remedy = phrase("this is a fault of edgegpu: report it with serve's log")
                with self._leadership.lead() as tx:
                    tx.operations.put([replace(failed, outcome=BoxOutcome.REFUSED, text=text, remedy=remedy)])
