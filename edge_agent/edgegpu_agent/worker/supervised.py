"""The worker of the real agent: besides its work it says whether it turns, and lets app limits be looked at."""

import threading
import time
from collections.abc import Callable, Collection
from dataclasses import astuple, replace

from edgegpu_agent.worker.core import Core
from edgegpu_agent.worker.desired_items import ItemNotes
from edgegpu_agent.worker.drift_checks import DriftBoard, SettledItem
from edgegpu_agent.worker.worker import Parts, Worker
from edgegpu_sync.link.events import LinkEvent
from edgegpu_sync.messages.spec import AppLimits, Asked
from edgegpu_sync.messages.uplink import ItemState as State
from edgegpu_sync.wire import Json


class _LookNotes:
    """What looks keep of an item: of one asking for it, for a person who sets it anew begins from nothing."""

    def __init__(self, core: Core, one: Asked) -> None:
        self._notes, self._key = ItemNotes(core, f"look/{one.name}"), list(astuple(one.key))

    def read(self) -> Json | None:
        kept = self._notes.read() or {}
        note = kept.get("note")
        return note if isinstance(note, dict) and kept.get("key") == self._key else None

    def write(self, note: Json) -> None:
        self._notes.write({"key": self._key, "note": note})


class TurningWorker(Worker):
    """A worker that says when it turned last, has turned first, and has ended; and what looks at items need of it.

    What it can do may change while it runs: then its birth is sent again.
    """

    def __init__(self, parts: Parts, *, lacks: Callable[[], Collection[str]] = tuple) -> None:
        """Prepare it; see `Worker`. `lacks` is asked at each turn which capabilities this box has not now."""
        super().__init__(parts)
        self._all, self._lacks = self.capabilities, lacks
        self._mind_capabilities()
        self.began, self.finished = threading.Event(), threading.Event()
        self._turned_s = time.monotonic()
        self._shown: object = None
        self._tell_of_board: list[Callable[[], None]] = []

    @property
    def age_s(self) -> float:
        """Seconds since it turned last."""
        return time.monotonic() - self._turned_s

    def _mind_capabilities(self) -> None:
        lacking = self._lacks()
        now = tuple(one for one in self._all if one not in lacking)
        if now != self.capabilities:
            self.capabilities = self._say.capabilities = now
            self._sender.birth_again()

    @property
    def board(self) -> DriftBoard:
        """What the looks at app limits need."""
        return DriftBoard(
            settled=self._settled,
            landed=self.landed,
            noticed=self.noticed,
            again=self._again_from,
            on_change=self._tell_of_board.append,
        )

    def _settled(self) -> list[SettledItem]:
        core = self._core

        def look() -> list[SettledItem]:
            held = core.held
            found = ((one, held.board.settlement(one)) for one in held.board.asked if isinstance(one.item, AppLimits))
            return [
                SettledItem(asked=one, settlement=settlement, notes=_LookNotes(core, one))
                for one, settlement in found
                if settlement.state is not State.OPEN
            ]

        return core.ask(look)

    def _again_from(self, name: str) -> None:
        """Have an item tried once more that stands as Elsewhere."""
        core = self._core

        def drop() -> None:
            board = core.held.board
            tried = board.tries.get(name)
            if tried is not None and tried.settlement.state is State.ELSEWHERE:
                tries = {one: each for one, each in board.tries.items() if one != name}
                core.save(replace(core.held, board=replace(board, tries=tries)))

        core.ask(drop)

    def run(self) -> None:
        """See `Worker`."""
        self._turned_s = time.monotonic()
        try:
            super().run()
        finally:
            self.began.set()
            self.finished.set()

    def turn(self, first: LinkEvent | Callable[[], None] | None = None) -> None:
        """See `Worker`."""
        self._mind_capabilities()
        super().turn(first)
        board = self._core.held.board
        if board is not self._shown:
            self._shown = board
            for tell in self._tell_of_board:
                tell()
        self._turned_s = time.monotonic()
        self.began.set()
