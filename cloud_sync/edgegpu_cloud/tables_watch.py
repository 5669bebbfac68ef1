"""A watch over the version of the tables: a process that was there before a migration ends, and its successor waits."""

import logging
import threading
import time
from collections.abc import Callable

from edgegpu_base.process.tasks import TaskGroup
from edgegpu_cloud.store.migrations import OtherTablesError
from edgegpu_cloud.store.store import ContendedError, ControllerStore, OlderTablesError, StoreError, check_current

_LOG = logging.getLogger(__name__)

LOOK_S = 2.0
NEWER_S = 60.0
"""How long a process waits for tables of a newer version to be put back."""

_AGAIN_S = 1.0
"""How often a process that waits looks at its tables."""


def await_tables(url: str, group: TaskGroup, *, tell: Callable[[str], None], newer_s: float = NEWER_S) -> None:
    """Wait until the tables are this program's, or until the group ends.

    A person migrates those of an older edgegpu. For those of a newer one another program has to be installed, and this
    process cannot become it: it ends after a while, and its unit starts what is there by then.

    Args:
        url: of the database.
        group: of the process.
        tell: is told once what the process waits for.
        newer_s: how long it waits where the tables are a newer edgegpu's.

    Raises:
        OtherTablesError: they are a newer edgegpu's.
        CloudError: no such database, or its tables are another program's.
    """
    waits, until_s = False, time.monotonic() + newer_s
    while not group.ended:
        try:
            check_current(url)
        except (OtherTablesError, ContendedError) as error:  # contended: a migration that takes long is at it
            if not isinstance(error, OlderTablesError | ContendedError) and time.monotonic() >= until_s:
                raise
            if not waits:
                _LOG.warning("%s; this process waits: %s", error.text, error.remedy)
                tell(f"{error.text}: {error.remedy}")
            waits = True
            group.wait_until(lambda: False, timeout_s=_AGAIN_S)
        else:
            if waits:
                _LOG.warning("the tables of the store have our version now: this process goes on")
            return


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
