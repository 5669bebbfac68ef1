from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from chaos.kept import Kept
from chaos.moves import PartitionMoves
from kits.stores import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from edgegpu_cloud.store.store import ControllerStore

pytestmark = pytest.mark.chaos


def _give_all(store: ControllerStore, holder: str) -> None:
    with store.write() as tx:
        for lease in tx.leases.all():
            assert tx.leases.give(lease, holder) is not None


def test_a_move_is_timed_from_the_moment_at_which_a_controller_is_away(tmp_path: Path) -> None:
    kept = [Kept(name=f"controller-{at}", command=["sleep", "60"], log=tmp_path / f"{at}.log") for at in (1, 2)]
    store = open_store(tmp_path / "controller.db")
    moves = PartitionMoves(kept, store)
    try:
        for one in kept:
            one.tend()
        _give_all(store, "controller-1")
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
    finally:
        for one in kept:
            one.stop()
        store.close()


def _tick(moves: PartitionMoves) -> None:
    time.sleep(0.25)
    moves.tick()
