"""All that a model can come to, by every order of its steps."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

World = TypeVar("World")


def walk(begin: World, after: Callable[[World], Iterable[World]]) -> Iterator[World]:
    """Yield each world that can be reached, as soon as it is: who looks for one of a kind need not see all."""
    found, left = {begin}, [begin]
    yield begin
    while left:
        for world in after(left.pop()):
            if world not in found:
                found.add(world)
                left.append(world)
                yield world
