"""A watch over the version of the tables: a process that was there before a migration ends, and its successor waits."""

import logging
import threading

from edgegpu_cloud.store.store import ControllerStore, StoreError

_LOG = logging.getLogger(__name__)

LOOK_S = 2.0


class TablesWatch:
    """The task of a process of `serve` that ends it where its tables are another version's by now.

    Nothing is written to them by then: each transaction that writes looks too. But what is read from tables of another
    version may be wrong, and a process that only waits for its next change would say nothing.
    """

    def __init__(self, store: ControllerStore, *, look_s: float = LOOK_S) -> None:
        self._store, self._look_s = store, look_s
        self._stopped = threading.Event()

    def run(self) -> None:
        """Look until `stop`.

        Raises:
            OtherTablesError: the tables are not this program's any more.
        """
        while not self._stopped.wait(self._look_s):
            try:
                self._store.check_tables()
            except StoreError as error:
                _LOG.debug("cannot look at the version of the tables: %s; tried again", error)

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()
