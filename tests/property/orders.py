"""All that a model can come to, by every order of its steps."""

from collections.abc import Callable, Iterable
from typing import TypeVar

World = TypeVar("World")


def reached(begin: World, after: Callable[[World], Iterable[World]]) -> set[World]:
    """Return what can be reached from a world; `after` yields what can come next."""
    found, left = {begin}, [begin]
    while left:
        for one in after(left.pop()):
            if one not in found:
                found.add(one)
                left.append(one)
    return found
