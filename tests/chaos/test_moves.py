from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from chaos.kept import Kept
from chaos.moves import PartitionMoves
from kits.stores import open_store

from edgegpu_cloud.store.records import ControllerBeat

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edgegpu_cloud.store.store import ControllerStore

pytestmark = pytest.mark.chaos


def _give_all(store: ControllerStore, holder: str) -> None:
    with store.write() as tx:
        for lease in tx.leases.all():
            assert tx.leases.give(lease, holder) is not None


def _beat(store: ControllerStore, name: str) -> None:
    with store.write() as tx:
        assert tx.leases.beat(name, "one", now_s=0.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControllerStore]:
    opened = open_store(tmp_path / "controller.db")
    with opened.write() as tx:
        for at in (1, 2):
            tx.leases.join(ControllerBeat(name=f"controller-{at}", instance="one", beat=0))
    yield opened
    opened.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Sequence[Kept]]:
    made = [Kept(name=f"controller-{at}", command=["sleep", "60"], log=tmp_path / f"{at}.log") for at in (1, 2)]
    for one in made:
        one.tend()
    yield made
    for one in made:
        one.stop()


def test_a_move_is_timed_from_the_moment_at_which_a_controller_is_away(
    kept: Sequence[Kept], store: ControllerStore
) -> None:
    moves = PartitionMoves(kept, store)
    _give_all(store, "controller-1")
    _tick(moves)
    _beat(store, "controller-2")
    _tick(moves)
    assert kept[0].freeze()
    frozen_s = time.monotonic()
    _tick(moves)
    _tick(moves)
    assert not moves.taken_s, "it holds them still"
    _give_all(store, "controller-2")
    _tick(moves)
    [took_s] = moves.taken_s
    assert 0.0 < took_s <= time.monotonic() - frozen_s
    kept[0].thaw()
    _tick(moves)
    _give_all(store, "controller-1")
    _tick(moves)
    assert len(moves.taken_s) == 1, "nobody was away"


def test_partitions_wait_only_while_another_controller_works(kept: Sequence[Kept], store: ControllerStore) -> None:
    moves = PartitionMoves(kept, store)
    _give_all(store, "controller-1")
    assert kept[0].freeze()
    for _ in range(3):
        _tick(moves)
    assert moves.most_s == 0.0, "controller-2 has no beat yet: it starts"
    _beat(store, "controller-2")
    for _ in range(3):
        _tick(moves)
    assert moves.most_s >= 0.5
    most_s = moves.most_s
    kept[0].thaw()
    _tick(moves)
    assert (moves.taken_s, moves.most_s) == ([], most_s), "it came back, and they had waited"


def _tick(moves: PartitionMoves) -> None:
    time.sleep(0.25)
    moves.tick()
