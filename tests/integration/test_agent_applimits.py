"""The look at app limits: lease, cluster, what has landed and what is to be tried again, over a small API server."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Self

import pytest
from kits.limitsapi import Api
from kits.limitsbed import Bed, Paper, field
from kits.limitsworld import CLUSTER

from edgegpu_agent.daemon.applimits import AppLimits, app_limits
from edgegpu_agent.daemon.looks import Board, Settled
from edgegpu_installer.layout import PLUGIN_UNIT, Layout
from edgegpu_sync.settle import Settlement
from edgegpu_sync.up import Settled as State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 20.0


@pytest.fixture
def bed() -> Iterator[Bed]:
    with Api() as api:
        yield field(api)


def layout(root: Path) -> Layout:
    made = Layout(root)
    made.units.mkdir(parents=True)
    (made.units / PLUGIN_UNIT).touch()
    return made


class Looks:
    """The part in threads; what it tells the worker lies in `told`."""

    def __init__(self, bed: Bed, root: Path) -> None:
        self.part = AppLimits(bed.api.client(), layout(root), node="box-1", look_s=0.02)
        self.told: queue.Queue[tuple[str, object]] = queue.Queue()
        self.items: list[Settled] = []
        board = Board(
            settled=lambda: self.items,
            landed=lambda name, _key, settlement: self.told.put((name, settlement)),
            noticed=lambda name, conditions: self.told.put((name, conditions)),
            again=lambda name: self.told.put((name, "again")),
        )
        self.tasks = self.part.tasks(board)
        self.threads = [threading.Thread(target=task.run) for task in self.tasks]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        ends = time.monotonic() + WAIT_S
        while not (self.part.cluster().holder and self.part.cluster().uid):
            assert time.monotonic() < ends, self.part.cluster()
            threading.Event().wait(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        for task in self.tasks:
            task.stop()
        for thread in self.threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def hear(self) -> tuple[str, object]:
        return self.told.get(timeout=WAIT_S)


def test_what_was_pending_lands_and_what_stood_elsewhere_is_tried_again(bed: Bed, tmp_path: Path) -> None:
    asked = bed.ask(1)
    with Looks(bed, tmp_path) as looks:
        assert looks.part.cluster().uid == CLUSTER
        looks.items = [Settled(asked=asked, settlement=Settlement(state=State.PENDING), notes=Paper())]
        assert looks.hear() == (asked.name, Settlement.applied())
        assert looks.hear() == (asked.name, ())
        looks.items = [Settled(asked=asked, settlement=Settlement(state=State.ELSEWHERE), notes=Paper())]
        while (told := looks.hear()) != (asked.name, "again"):
            assert told[0] == asked.name


def test_a_box_without_the_account_has_no_such_part(tmp_path: Path) -> None:
    assert app_limits(tmp_path / "limits-kubeconfig", layout(tmp_path), node="box-1") is None
    (tmp_path / "limits-kubeconfig").write_text("nonsense: [")
    assert app_limits(tmp_path / "limits-kubeconfig", Layout(tmp_path), node="box-1") is None


def test_it_is_able_while_its_account_is_there(bed: Bed, tmp_path: Path) -> None:
    account = tmp_path / "limits-kubeconfig"
    part = AppLimits(bed.api.client(), layout(tmp_path), node="box-1", account=account)
    assert not part.able
    account.touch()
    assert part.able
