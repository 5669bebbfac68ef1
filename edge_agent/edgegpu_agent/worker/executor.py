"""Runs what blocks, acts and settlements, each on a thread of its own; what comes of it goes to the worker's thread.

Who may run beside whom is the worker's rule: it starts nothing that may not begin now.
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
    """A call ended with this; `stopped`: because the agent ends, and nothing is known of it."""

    error: Exception
    stopped: bool = False


class Executor(Protocol):
    """Runs calls that block beside the worker, and gives back what came of them on the worker's thread."""

    def start(self, name: str, work: Callable[[], T], then: Callable[[T | RaisedError], None]) -> None:
        """Run `work` now; `then` is called on the worker's thread."""
        ...


class ThreadExecutor:
    """The executor of the real agent. Its threads are daemons: an act that does not end holds no agent back."""

    def __init__(self, put: Callable[[Callable[[], None]], None]) -> None:
        """Begin with none.

        Args:
            put: takes what is to be called on the worker's thread.
        """
        self._put = put

    def start(self, name: str, work: Callable[[], T], then: Callable[[T | RaisedError], None]) -> None:
        """Run `work` on a new thread; `then` is called on the worker's."""
        threading.Thread(target=self._run, args=(name, work, then), name=name, daemon=True).start()

    def _run(self, name: str, work: Callable[[], T], then: Callable[[T | RaisedError], None]) -> None:
        result = caught(name, work)
        self._put(lambda: then(result))


def caught(name: str, work: Callable[[], T]) -> T | RaisedError:
    """Call `work`; what it raises is logged, and returned."""
    try:
        return work()
    except ActionStopped as stop:
        return RaisedError(stop, stopped=True)
    except Exception as error:  # noqa: BLE001  (the border of an act: its fault is its command's end, not the agent's)
        _LOG.exception("%s failed for a reason that it does not know", name)
        return RaisedError(error)
