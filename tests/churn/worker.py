"""A thread of the run: the load, the faults and the sampler each have one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Worker(ABC):
    """Works in a thread of its own from `start` to `stop`; what it does looks at `_end`."""

    def __init__(self, name: str) -> None:
        """Prepare the thread."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _run(self) -> None:
        """Work until `_end` is set."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still works: an error that nobody foresaw ends it."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End, and wait for that."""
        self._end.set()
        self._thread.join()
