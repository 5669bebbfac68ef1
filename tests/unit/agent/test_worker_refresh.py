"""inventory.refresh: its end is told after what it was for, whatever dies in between."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kits.telemetry import Source, pod, seen
from kits.worker import Wire, fast_folder, wired
from kits.workercontroller import REFRESH

from edgegpu_agent.worker.refreshes import PATIENCE_S
from edgegpu_sync.messages.telemetry import Alloc, Inventory
from edgegpu_sync.messages.uplink import CommandResult
from edgegpu_sync.states import CommandState


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def wire(source: Source) -> Iterator[Wire]:
    with fast_folder() as folder:
        wire = wired(Path(folder), telemetry=source)
        yield wire
        wire.box.crash()


def said(wire: Wire) -> list[type | CommandState]:
    """Return inventories, allocations and states of results in the order in which the controller got them."""
    found = [one for one in wire.controller.seen if isinstance(one, Inventory | Alloc | CommandResult)]
    return [one.state if isinstance(one, CommandResult) else type(one) for one in found]


def test_a_refresh_ends_when_what_it_found_has_gone_up(wire: Wire, source: Source) -> None:
    wire.pass_time(1)
    wire.controller.seen.clear()
    wire.controller.command(REFRESH)
    source.node, source.pods = "box-2", {"a1": pod("asr")}  # found within the five seconds between two looks
    wire.exchange()
    assert said(wire)[-3:] == [Inventory, Alloc, CommandState.SUCCEEDED]
    (inventory,), (alloc,) = seen(wire, Inventory), seen(wire, Alloc)
    assert (inventory.node, set(alloc.pods)) == ("box-2", {"a1"})


def test_a_refresh_that_ends_offline_is_told_after_what_it_found(wire: Wire, source: Source) -> None:
    wire.controller.command(REFRESH)
    wire.down += wire.controller.sends()
    ((topic, payload),) = wire.down
    wire.down.clear()
    wire.box.arrive(topic, payload)
    wire.box.disconnect()
    source.node = "box-2"
    wire.box.settle()
    wire.controller.seen.clear()
    wire.connect()
    wire.exchange()
    assert said(wire)[:3] == [Inventory, Alloc, CommandState.SUCCEEDED]


def killed_at_its_end(wire: Wire) -> None:
    """Have a refresh end, and kill the agent when that is written and nothing of it has gone up."""
    wire.controller.command(REFRESH)
    for topic, payload in wire.controller.sends():
        wire.box.link.room = 0
        wire.box.arrive(topic, payload)
    wire.box.settle()
    assert sum(wire.box.world.refreshed_by.values()) == 1
    wire.box.crash()
    wire.controller.seen.clear()


def test_a_refresh_that_a_kill_overtook_is_told_after_what_the_next_life_finds(wire: Wire, source: Source) -> None:
    killed_at_its_end(wire)
    source.blind, source.node = True, "box-2"  # nothing was looked at yet
    wire.box.start()
    wire.connect()
    wire.exchange()
    assert said(wire) == []
    source.blind = False
    wire.pass_time(6)
    assert said(wire) == [Inventory, Alloc, CommandState.SUCCEEDED]
    (inventory,) = seen(wire, Inventory)
    assert inventory.node == "box-2"


def test_a_refresh_ends_where_the_plugin_says_nothing(wire: Wire, source: Source) -> None:
    killed_at_its_end(wire)
    source.silent = True
    wire.box.start()
    wire.connect()
    wire.exchange()
    wire.pass_time(2)
    assert list(dict.fromkeys(said(wire))) == [Inventory, CommandState.SUCCEEDED]


def test_a_refresh_does_not_wait_for_ever(wire: Wire, source: Source) -> None:
    killed_at_its_end(wire)
    source.blind = True
    wire.box.start()
    wire.connect()
    wire.exchange()
    wire.pass_time(PATIENCE_S - 5)
    assert said(wire) == []
    wire.pass_time(10)
    assert set(said(wire)) == {CommandState.SUCCEEDED}
