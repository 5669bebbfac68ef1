"""The cards of this machine, looked at every few seconds behind a deadline; a driver that hangs holds nobody up."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.nvml_library import NvmlLibrary
from edgegpu_plugin.cards.nvml_worker import NvmlWorker
from edgegpu_plugin.config.schema import Driver
from edgegpu_plugin.errors import NvmlError, NvmlProblem

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_START_TIMES = 12
"""NVML's start wakes up every card, which without persistence mode takes seconds for each."""

_TROUBLED_LOOK_S = 1.0
"""How often it is asked whether a hang has ended; the cards are looked at again then."""


class Nvml:
    """Looks at the cards every few seconds; `run` is the task, the rest may be called anywhere, also before it."""

    def __init__(
        self,
        settings: Driver,
        *,
        on_cards: Callable[[tuple[Card, ...]], None] = lambda _cards: None,
        on_silence: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make it; nothing is loaded yet.

        Args:
            settings: driver root, deadline, periods.
            on_cards: told on the task's thread at the first look and whenever a card or its health changed.
            on_silence: told on the task's thread when NVML could not tell about the cards, for whatever reason, for
                `settings.absent_s`: they count as out of order until `on_cards` is told again.
            clock: seconds that only go forward.
        """
        self._settings = settings
        self._on_cards = on_cards
        self._on_silence = on_silence
        self._clock = clock
        self._library = NvmlLibrary(root=settings.root, recover_s=settings.recover_s, clock=clock)
        self._worker = NvmlWorker(step=lambda: self._library.step, clock=clock)
        self._stopping = threading.Event()
        self._told: tuple[Card, ...] | None = None
        self._trouble: NvmlError | None = None
        self._silent_since: float | None = None
        self._is_silent = False
        self._next_look = clock()

    @property
    def driver_version(self) -> str:
        """The driver's version; empty before it has answered."""
        return self._library.driver_version

    @property
    def trouble(self) -> NvmlError | None:
        """Why NVML cannot tell about the cards now; None when it can."""
        return self._worker.hang() or self._trouble

    @property
    def problem(self) -> str:
        """The words of `trouble`; empty when all is well."""
        trouble = self.trouble
        return "" if trouble is None else str(trouble)

    @property
    def has_looked(self) -> bool:
        """Whether the first look has ended, with cards or with a trouble."""
        return self._told is not None or self._trouble is not None

    def run(self) -> None:
        """Look at the cards until `stop`; what `on_cards` raises ends it."""
        while not self._stopping.is_set():
            try:
                if self._is_due():
                    self._tell(self.cards())
                    self._note(None)
            except NvmlError as error:
                if not self._stopping.is_set():
                    self._note(error)
            poll_s = self._settings.poll_s
            self._stopping.wait(poll_s if self._trouble is None else min(_TROUBLED_LOOK_S, poll_s))

    def stop(self) -> None:
        """Let `run` end, also where a call hangs."""
        self._stopping.set()
        self._worker.stop()

    def cards(self, timeout_s: float | None = None) -> tuple[Card, ...]:
        """Look at the cards now: GPUs, and MIG devices in place of GPUs in MIG mode, by index, with their health.

        A card that stopped answering in this process's life stays in the list, out of order.

        Raises:
            NvmlError: no driver, not loaded, no cards, or no answer in time (the settings' when none is given).
        """
        if timeout_s is None and self._library.starts_next:
            timeout_s = self._settings.nvml_timeout_s * _START_TIMES
        return self._ask(self._library.look, timeout_s)

    def _ask(self, work: Callable[[], _T], timeout_s: float | None = None) -> _T:
        return self._worker.call(work, timeout_s=self._settings.nvml_timeout_s if timeout_s is None else timeout_s)

    def _is_due(self) -> bool:
        """Return whether to look at the cards: by time, or at the end of a hang."""
        now = self._clock()
        hung = self._trouble is not None and self._trouble.kind is NvmlProblem.HANGS
        if now < self._next_look and not (hung and self._worker.hang() is None):
            return False
        self._next_look = now + self._settings.poll_s
        return True

    def _tell(self, cards: tuple[Card, ...]) -> None:
        if cards == self._told:
            return
        for card in cards:
            if card.healthy != self._was_healthy(card.uuid):
                state = "in order again" if card.healthy else "out of order"
                _log.warning("card %s (%s) is %s", card.label, card.uuid, state)
        self._told = cards
        self._on_cards(cards)

    def _was_healthy(self, uuid: str) -> bool:
        return next((card.healthy for card in self._told or () if card.uuid == uuid), True)

    def _note(self, error: NvmlError | None) -> None:
        """Log a trouble once, and its end; cards of a driver that is gone are out of order."""
        if error is not None and str(error) != str(self._trouble):
            _log.error("%s", error)
        elif error is None and self._trouble is not None:
            _log.info("NVML answers again")
        self._trouble = error
        self._mind_silence()
        if error is not None and self._told and error.kind in (NvmlProblem.NOT_LOADED, NvmlProblem.NO_DRIVER):
            self._tell(tuple(replace(card, healthy=False) for card in self._told))

    def _mind_silence(self) -> None:
        """Give the cards up when there has been no word of them for long."""
        if self._trouble is None:
            self._silent_since, self._is_silent = None, False
            return
        now = self._clock()
        self._silent_since = now if self._silent_since is None else self._silent_since
        if self._is_silent or now - self._silent_since < self._settings.absent_s:
            return
        self._is_silent = True
        self._told = None if self._told is None else tuple(replace(card, healthy=False) for card in self._told)
        self._on_silence()
