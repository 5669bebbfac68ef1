"""Lines about work that is tried again for as long as it fails: one when it begins to fail, one when it works again."""

import logging


class OutageLog:
    """The failing works of one task, which alone uses it.

    A database that is away for an hour would otherwise be a traceback every five seconds.
    """

    def __init__(self, log: logging.Logger) -> None:
        """Build it over the log of the task's module."""
        self._log = log
        self._causes: dict[str, str] = {}

    def failed(self, work: str, error: Exception) -> None:
        """Log a failure whose cause is not that of the last one; `work` completes "cannot …"."""
        cause = str(error)
        if self._causes.get(work) != cause:
            self._log.error("cannot %s, which is tried again: %s", work, cause)
        self._causes[work] = cause

    def worked(self, work: str) -> None:
        """Log that a work which failed before works again."""
        if self._causes.pop(work, None) is not None:
            self._log.warning("works again: %s", work)
