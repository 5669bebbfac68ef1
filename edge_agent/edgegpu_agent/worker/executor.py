"""The executor of blocking calls (actions, settlements), each on its own thread; the worker's thread gets the results.

The worker decides what may run at the same time: it starts nothing that must not begin now.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from edgegpu_agent.ports import ActionStopped

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RaisedError:
    """The error with which a call ended; `stopped`: the agent ends, and the call's result is not known."""

    error: Exception
    stopped: bool = False

    @property
    def text(self) -> str:
        """The error's class and text, for a result."""
        return f"{type(self.error).__name__}: {self.error}"


class Executor(Protocol):
    """An executor of blocking calls beside the worker; their results come back on the worker's thread."""

    def start(self, name: str, work: Callable[[], T], then: Callable[[T | RaisedError], None]) -> None:
        """Run `work` now; `then` is called on the worker's thread."""
        ...


class ThreadExecutor:
    """The executor of the real agent; its threads are daemons, so that an action that hangs does not keep the agent."""

    def __init__(self, put: Callable[[Callable[[], None]], None]) -> None:
        """Build the executor.

        Args:
            put: queues a call for the worker's thread.
        """
        self._put = put

    def start(self, name: str, work: Callable[[], T], then: Callable[[T | RaisedError], None]) -> None:
        """Run `work` on a new thread; `then` is called on the worker's."""
        threading.Thread(target=self._run, args=(name, work, then), name=name, daemon=True).start()

    def _run(self, name: str, work: Callable[[], T], then: Callable[[T | RaisedError], None]) -> None:
        result = caught(name, work)
        self._put(lambda: then(result))


def caught(name: str, work: Callable[[], T]) -> T | RaisedError:
    """Call `work`; log and return what it raises."""
    try:
        return work()
    except ActionStopped as stop:
        return RaisedError(stop, stopped=True)
    except Exception as error:  # noqa: BLE001  (the border of a call: its fault ends its command, not the agent)
        _LOG.exception("%s failed for a reason that it does not know", name)
        return RaisedError(error)
