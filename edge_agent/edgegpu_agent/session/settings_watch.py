"""The watch of the agent's configuration: when the file changes, the process restarts with it."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from edgegpu_base.files import stamp

_LOG = logging.getLogger(__name__)

LOOK_S = 5.0


class SettingsWatch:
    """The watch of one file, which need not exist."""

    def __init__(self, path: Path, changed: Callable[[], None], *, look_s: float = LOOK_S) -> None:
        """Remember the file's present state; `changed` is called once, from the loop."""
        self._path, self._changed, self._look_s = path, changed, look_s
        self._stopping = threading.Event()
        self._mark = self._look()

    def run(self) -> None:
        """Check the file until `stop`; after a change call `changed` once, and wait for `stop`."""
        while not self._stopping.wait(self._look_s):
            if self._look() != self._mark:
                _LOG.warning("%s is another one now: starting anew with it", self._path)
                self._changed()
                self._stopping.wait()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping.set()

    def _look(self) -> tuple[int, ...]:
        try:
            return stamp(self._path)
        except OSError:
            return ()
