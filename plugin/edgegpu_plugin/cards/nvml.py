"""The cards of this machine, queried every few seconds behind a deadline, so that a driver that hangs blocks nobody."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.nvml_library import CardProcess, NvmlLibrary
from edgegpu_plugin.cards.nvml_worker import NvmlWorker
from edgegpu_plugin.cards.verdicts import CardVerdicts
from edgegpu_plugin.config.schema import Driver
from edgegpu_plugin.errors import NvmlError, NvmlProblem

_log = logging.getLogger(__name__)

_START_TIMES = 12
"""How many times longer NVML's start may take: it wakes up every card, seconds for each without persistence mode."""

_PROCESSES_S = 30.0
"""How often the processes on the cards are listed: three calls for each card, and one file of each process."""

_RECOVERY_POLL_S = 1.0
"""How often the end of a hang is checked for; then the cards are queried again."""


class Nvml:
    """The watch over the cards by NVML: `run` is the task; the rest may be called on any thread, also before it."""

    def __init__(
        self,
        settings: Driver,
        *,
        on_cards: Callable[[tuple[Card, ...]], None] = lambda _cards: None,
        on_silence: Callable[[], None] = lambda: None,
        on_processes: Callable[[Mapping[str, tuple[CardProcess, ...]]], None] = lambda _processes: None,
        processes_s: Callable[[], float | None] = lambda: None,
        verdicts: CardVerdicts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the watch over the cards without loading NVML.

        Args:
            settings: driver root, deadline, periods.
            on_cards: called on the task's thread after the first query and whenever a card or its health changed.
            on_silence: called on the task's thread when NVML could not list the cards, for any reason, for
                `settings.absent_s`: they count as out of order until `on_cards` is called again.
            on_processes: called on the task's thread with the processes on each card, by its UUID; a card that
                cannot tell is left out.
            processes_s: returns the seconds between two such lists; None: twice a minute.
            verdicts: the cards that are out until a reset; None: none, and none is kept.
            clock: a monotonic clock in seconds.
        """
        self._settings = settings
        self._on_cards = on_cards
        self._on_silence = on_silence
        self._on_processes = on_processes
        self._processes_s = processes_s
        self._clock = clock
        self._library = NvmlLibrary(root=settings.root, recover_s=settings.recover_s, verdicts=verdicts, clock=clock)
        self._worker = NvmlWorker(step=lambda: self._library.step, clock=clock)
        self._stopping = threading.Event()
        self._woken = threading.Event()
        """Set by what the task shall do at once: end, or look at the cards."""
        self._reported: tuple[Card, ...] | None = None
        self._trouble: NvmlError | None = None
        self._silent_since: float | None = None
        self._is_silent = False
        self._next_query = clock()
        self._listed_at: float | None = None

    @property
    def driver_version(self) -> str:
        """The driver's version; empty until the driver has answered."""
        return self._library.driver_version

    @property
    def problem(self) -> str:
        """Why NVML cannot list the cards now; empty when it can."""
        error = self._worker.hang() or self._trouble
        return "" if error is None else str(error)

    @property
    def has_queried(self) -> bool:
        """Whether the first query has ended, with cards or with an error."""
        return self._reported is not None or self._trouble is not None

    def run(self) -> None:
        """Query the cards until `stop`; an exception of `on_cards` ends the task."""
        while not self._stopping.is_set():
            try:
                due = self._is_due()
                if due:
                    self._report(self.cards())
                if due or self._trouble is None:
                    self._list_processes()
                if due:
                    self._note(None)
            except NvmlError as error:
                if not self._stopping.is_set():
                    self._note(error)
            poll_s = self._settings.poll_s
            often_s = (self._processes_s() or poll_s) if self._trouble is None else _RECOVERY_POLL_S
            self._woken.wait(min(often_s, poll_s))
            self._woken.clear()

    def stop(self) -> None:
        """Make `run` end, even while a call hangs."""
        self._stopping.set()
        self._woken.set()
        self._worker.stop()

    def cards(self) -> tuple[Card, ...]:
        """Query the cards now: GPUs, and MIG devices in place of GPUs in MIG mode, by index, with their health.

        A card that has stopped answering since the process began stays in the list as out of order.

        Raises:
            NvmlError: no driver, not loaded, no cards, or no answer in the time of the settings.
        """
        times = _START_TIMES if self._library.starts_next else 1
        return self._worker.call(self._library.query, timeout_s=self._settings.nvml_timeout_s * times)

    def release(self, gpu: str) -> None:
        """Close all that is open of the cards, and leave one GPU alone until `accept`; on any thread.

        Raises:
            NvmlError: NVML does not answer in the time of the settings.
        """
        self._worker.call(lambda: self._library.release(gpu), timeout_s=self._settings.nvml_timeout_s)
        self._look_now()

    def accept(self, gpu: str) -> None:
        """Take a GPU back as in order; on any thread.

        Raises:
            NvmlError: NVML does not answer in the time of the settings.
        """
        self._worker.call(lambda: self._library.accept(gpu), timeout_s=self._settings.nvml_timeout_s)
        self._look_now()

    def _look_now(self) -> None:
        self._next_query = self._clock()
        self._woken.set()

    def process_shares(self, cards: Collection[str]) -> Mapping[str, Mapping[int, int] | None]:
        """Return what `NvmlLibrary.process_shares` does, on any thread.

        Raises:
            NvmlError: the driver is not loaded any more, or does not answer in the time of the settings.
        """
        return self._worker.call(lambda: self._library.process_shares(cards), timeout_s=self._settings.nvml_timeout_s)

    def _is_due(self) -> bool:
        """Return whether a query of the cards is due: by time, or because a hang has ended."""
        now = self._clock()
        hung = self._trouble is not None and self._trouble.kind is NvmlProblem.HANGS
        if now < self._next_query and not (hung and self._worker.hang() is None):
            return False
        self._next_query = now + self._settings.poll_s
        return True

    def _list_processes(self) -> None:
        now = self._clock()
        every_s = self._processes_s() or _PROCESSES_S
        if self._listed_at is not None and now < self._listed_at + every_s:
            return
        self._listed_at = now
        self._on_processes(self._worker.call(self._library.processes, timeout_s=self._settings.nvml_timeout_s))

    def _report(self, cards: tuple[Card, ...]) -> None:
        if cards == self._reported:
            return
        for card in cards:
            if card.healthy != self._was_healthy(card.uuid):
                state = "in order again" if card.healthy else f"out of order: {card.problem}"
                _log.warning("card %s (%s) is %s", card.label, card.uuid, state)
        self._reported = cards
        self._on_cards(cards)

    def _was_healthy(self, uuid: str) -> bool:
        return next((card.healthy for card in self._reported or () if card.uuid == uuid), True)

    def _note(self, error: NvmlError | None) -> None:
        """Log an error once, and its end; without a driver all cards are out of order."""
        if error is not None and str(error) != str(self._trouble):
            _log.error("%s", error)
        elif error is None and self._trouble is not None:
            _log.info("NVML answers again")
        self._trouble = error
        self._check_silence()
        if error is not None and self._reported and error.kind in (NvmlProblem.NOT_LOADED, NvmlProblem.NO_DRIVER):
            self._report(tuple(replace(card, healthy=False, problem=str(error)) for card in self._reported))

    def _check_silence(self) -> None:
        """Count the cards as out of order when NVML has not listed them for `absent_s`."""
        if self._trouble is None:
            self._silent_since, self._is_silent = None, False
            return
        now = self._clock()
        self._silent_since = now if self._silent_since is None else self._silent_since
        if self._is_silent or now - self._silent_since < self._settings.absent_s:
            return
        self._is_silent = True
        why = str(self._trouble)
        if self._reported is not None:
            self._reported = tuple(replace(card, healthy=False, problem=why) for card in self._reported)
        self._on_silence()
