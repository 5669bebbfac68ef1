"""A model of checkpoints in the usage file: every order of steps, and kills between any.

Some put a process aside, some bring it back, and some take memory meanwhile.

The steps are those of `plugin/limiter/cuda/cuda_checkpoint.c`, each one access to the file or one call of the driver.
All are about one process, which is locked. Taking memory is one step here: `test_usage_file.py` has its order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
from property.orders import walk

LIMIT = 2
HELD = 2
"""What the process has that is put aside and comes back."""
NOBODY = -1
Kind = Literal["checkpoint", "restore", "take"]
FIRST: dict[Kind, str] = {"checkpoint": "enter", "restore": "enter", "take": "take"}
ALL: tuple[Kind, ...] = ("checkpoint", "checkpoint", "restore", "restore", "take", "take")


@dataclass(frozen=True, slots=True)
class Actor:
    """`took` is whether it has made what was aside count again."""

    kind: Kind
    at: str
    took: bool = False
    has: int = 0
    alive: bool = True


@dataclass(frozen=True, slots=True)
class World:
    actors: tuple[Actor, ...]
    kills: int
    moving: int = NOBODY
    aside: bool = False
    on_card: bool = True

    def put(self, index: int, changes: dict[str, Any], **own: Any) -> "World":  # noqa: ANN401  (the fields' own)
        actors = (*self.actors[:index], replace(self.actors[index], **own), *self.actors[index + 1 :])
        return replace(self, actors=actors, **changes)

    @property
    def counted(self) -> int:
        return (0 if self.aside else HELD) + sum(one.has for one in self.actors)

    @property
    def held(self) -> int:
        return (HELD if self.on_card else 0) + sum(one.has for one in self.actors)


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds; a model without one of them has to see what comes of it."""

    one_at_a_time: bool = True
    counts_first: bool = True
    frees_first: bool = True

    def enter(self, world: World, index: int) -> World | None:
        if self.one_at_a_time and world.moving != NOBODY and world.actors[world.moving].alive:
            return None
        if world.actors[index].kind == "restore":
            return world.put(index, {"moving": index}, at="count" if self.counts_first else "driver")
        return world.put(index, {"moving": index}, at="driver" if self.frees_first else "put")

    def count(self, world: World, index: int) -> World:
        after = "driver" if self.counts_first else "leave"
        if not world.aside:
            return world.put(index, {}, at=after)
        if world.counted + HELD > LIMIT:
            return world.put(index, {}, at="leave")
        return world.put(index, {"aside": False}, took=True, at=after)

    def driver(self, world: World, index: int) -> World:
        one = world.actors[index]
        if one.kind == "checkpoint":
            after = "put" if self.frees_first and world.on_card else "leave"
            return world.put(index, {"on_card": False}, at=after)
        if world.on_card:
            return world.put(index, {}, at="put" if one.took else "leave")
        return world.put(index, {"on_card": True}, at="leave" if self.counts_first else "count")

    def put(self, world: World, index: int) -> World:
        is_last = self.frees_first or world.actors[index].kind == "restore"
        return world.put(index, {"aside": True}, at="leave" if is_last else "driver")

    def leave(self, world: World, index: int) -> World:
        return world.put(index, {"moving": NOBODY if world.moving == index else world.moving}, at="end")

    def take(self, world: World, index: int) -> World:
        return world.put(index, {}, has=1 if world.counted < LIMIT else 0, at="end")


def _next(world: World, rules: Rules) -> Iterator[World]:
    for index, one in enumerate(world.actors):
        if one.at == "end" or not one.alive:
            continue
        after = getattr(rules, one.at)(world, index)
        if after is not None:
            yield after
        if world.kills:
            yield world.put(index, {"kills": world.kills - 1}, alive=False)


def _walk(rules: Rules) -> Iterator[World]:
    """Yield all that can be."""
    begin = World(tuple(Actor(kind, FIRST[kind]) for kind in ALL), kills=1)
    return walk(begin, lambda world: _next(world, rules))


def test_in_no_order_the_limit_is_passed_and_nobody_waits_for_ever() -> None:
    found = set(_walk(Rules()))
    assert not [world for world in found if world.held > LIMIT or world.counted > LIMIT]
    for world in found:
        left = [index for index, one in enumerate(world.actors) if one.alive and one.at != "end"]
        moves = [getattr(Rules(), world.actors[index].at)(world, index) for index in left]
        assert not left or any(moves), world


def test_what_is_aside_makes_room_and_comes_back_where_there_is_some() -> None:
    found = set(_walk(Rules()))
    over = [world for world in found if world.kills == 1 and all(one.at == "end" for one in world.actors)]
    assert {(world.on_card, world.aside, world.held) for world in over} == {
        (True, False, LIMIT),
        (False, True, 0),
        (False, True, 1),
        (False, True, LIMIT),
    }


@pytest.mark.parametrize("rules", [Rules(one_at_a_time=False), Rules(counts_first=False), Rules(frees_first=False)])
def test_the_model_sees_what_each_rule_is_for(rules: Rules) -> None:
    assert any(world.held > LIMIT for world in _walk(rules))
