"""Notices that the agent's configuration has become another one: the process starts anew with it."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

_LOG = logging.getLogger(__name__)

LOOK_S = 5.0


class SettingsWatch:
    """Looks at one file, which need not be there."""

    def __init__(self, path: Path, changed: Callable[[], None], *, look_s: float = LOOK_S) -> None:
        """Remember how it is now; `changed` is called once, from the loop."""
        self._path, self._changed, self._look_s = path, changed, look_s
        self._stopping = threading.Event()
        self._mark = self._look()

    def run(self) -> None:
        """Look, until `stop`; when it has changed that is said once, and it is for others to end us."""
        while not self._stopping.wait(self._look_s):
            if self._look() != self._mark:
                _LOG.warning("%s is another one now: starting anew with it", self._path)
                self._changed()
                self._stopping.wait()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping.set()

    def _look(self) -> tuple[int, int, int] | None:
        try:
            info = self._path.stat()
        except OSError:
            return None
        return info.st_ino, info.st_mtime_ns, info.st_size
