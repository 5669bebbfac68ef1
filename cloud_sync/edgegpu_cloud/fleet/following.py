"""Following something to its end, for callers that print or wait."""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

_POLL_S = 0.2


class Ending(Protocol):
    """What can be followed: a view of a command, or of a rollout."""

    @property
    def ended(self) -> bool:
        """Whether it changes no more."""
        ...


View = TypeVar("View", bound=Ending)


def follow(
    show: Callable[[], View], *, clock: Callable[[], float], sleep: Callable[[float], None], timeout_s: float
) -> Iterator[View]:
    """Yield what `show` returns, and again each time it has changed, until it has ended or the time is over."""
    end_s, last = clock() + timeout_s, None
    while True:
        view = show()
        if view != last:
            yield view
        if view.ended or clock() >= end_s:
            return
        last = view
        sleep(_POLL_S)
