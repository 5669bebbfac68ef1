"""The keeper of transactions: it finishes one whose author died, and reports how the last one ended."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from edgegpu_base.process.inotify import FolderWatch
from edgegpu_base.process.program import DetachedProgram
from edgegpu_base.process.sdnotify import Notifier
from edgegpu_installer.errors import InstallError
from edgegpu_installer.transaction.journal import Clocks, TransactionJournal, TransactionRecord, decide, read_clocks
from edgegpu_installer.transaction.states import RecoveryDecision, TransactionState

_LOG = logging.getLogger(__name__)

_LOOK_S = 2.0
"""How soon the death of an author is noticed, which no file shows."""

_BUSY_LOOK_S = 0.2
_FIRST_RETRY_S = 5.0
_LAST_RETRY_S = 300.0
_MOST_BYTES = 65536


class TransactionFinisher:
    """One run of the command that finishes a transaction.

    It goes on when this process ends: a half made change is better finished than cut, and a command that restarts this
    service must outlive it.
    """

    def __init__(
        self, command: Sequence[str], *, deadline_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Build the transaction finisher.

        Raises:
            OSError: the command cannot be started.
        """
        self._clock = clock
        self._deadline = clock() + deadline_s
        self._deadline_s = deadline_s
        self._late = False
        self._run = DetachedProgram(command)

    def poll(self) -> str | None:
        """Return the command's answer, a line with state and reason, once it has ended, None before.

        A command that takes longer than its deadline is killed.
        """
        status = self._run.poll()
        if status is None:
            if self._clock() > self._deadline and not self._late:
                self._late = True
                self._run.kill()
            return None
        if self._late:
            return f"no answer: it did not end within {self._deadline_s:g} s"
        return _read(self._run.text(_MOST_BYTES), status)

    def leave(self) -> None:
        """Let go of the command, which goes on."""
        self._run.leave()


def _read(text: str, status: int) -> str:
    try:
        value = json.loads(text)
        parts = (str(value.get("state", "")) or "no answer", str(value.get("why") or value.get("error") or ""))
    except (ValueError, AttributeError):
        return f"no answer: exit status {status}, and no answer that can be read: {' '.join(text.split())[:200]}"
    return ": ".join(filter(None, parts))


class TransactionKeeper:
    """The loop that finishes transactions; it feeds the watchdog, so that systemd restarts a loop that hangs."""

    def __init__(
        self,
        *,
        journal: TransactionJournal,
        root: Path,
        command: Sequence[str],
        deadline_s: float,
        watch: FolderWatch,
        notifier: Notifier,
        feed_watchdog: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build the transaction keeper.

        Args:
            journal: the installer's journal.
            root: the folder with `proc`.
            command: the command that finishes a transaction, and prints `{"state", "why"}`.
            deadline_s: how long the command may take.
            watch: wakes the loop when the journal changes.
            notifier: the connection to systemd.
            feed_watchdog: called at each round.
            clock: monotonic seconds.
        """
        self._journal = journal
        self._root = root
        self._command = command
        self._deadline_s = deadline_s
        self._watch = watch
        self._notifier = notifier
        self._feed_watchdog = feed_watchdog
        self._clock = clock
        self._stopping = False
        self._finisher: TransactionFinisher | None = None
        self._retry_s = _FIRST_RETRY_S
        self._not_before = 0.0
        self._tried = ""
        self._said = ""

    def run(self) -> None:
        """Read the journal, finish what has no author, and wait, until `stop`."""
        while not self._stopping:
            self._watch.follow(self._journal.folder)
            self._round()
            self._feed_watchdog()
            self._watch.wait(_LOOK_S if self._finisher is None else _BUSY_LOOK_S)
        if self._finisher is not None:
            _LOG.warning("a transaction is still being finished; that goes on without us")
            self._finisher.leave()

    def stop(self) -> None:
        """Let `run` end."""
        self._stopping = True
        self._watch.wake()

    def _round(self) -> None:
        if self._finisher is not None:
            answer = self._finisher.poll()
            if answer is None:
                return
            self._finisher = None
            self._ended(answer)
        try:
            record = self._journal.read()
            now = read_clocks(self._root)
        except (InstallError, OSError) as error:
            self._report_once(str(error), logging.ERROR)
            return
        self._look(record, now)

    def _look(self, record: TransactionRecord | None, now: Clocks) -> None:
        if record is None:
            self._report_once("nothing was ever changed on this machine")
            return
        words = f"{record.op.value} {record.id} is at {record.state.value}"
        match decide(record, now, proc=self._root / "proc"):
            case RecoveryDecision.NOTHING:
                self._report_settled(f"{words}{f': {record.why}' if record.why else ''}")
            case RecoveryDecision.WAIT:
                self._report_settled(f"{words}, and its author is at work")
            case decision:
                self._finish(record, f"{words} and has no author: {decision.value}")

    def _finish(self, record: TransactionRecord, words: str) -> None:
        if record.state is TransactionState.INCONSISTENT and record.id == self._tried:
            self._report_once(
                f"{words}; it was tried, and is not tried again: `edgegpu doctor` says more", logging.ERROR
            )
            return
        if self._clock() < self._not_before:
            return
        self._report_once(words, logging.WARNING)
        if record.state is TransactionState.INCONSISTENT:  # each try may restart k3s: one try of ours is enough
            self._tried = record.id
        try:
            self._finisher = TransactionFinisher(self._command, deadline_s=self._deadline_s)
        except OSError as error:
            self._ended(f"no answer: cannot run {self._command[0]}: {error.strerror}")

    def _ended(self, answer: str) -> None:
        """Log how the command ended; if it settled nothing, the next tries come later and later."""
        _LOG.warning("finishing the transaction ended: %s", answer)
        self._not_before = self._clock() + self._retry_s
        self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)

    def _report_settled(self, words: str) -> None:
        self._retry_s, self._not_before = _FIRST_RETRY_S, 0.0
        self._report_once(words)

    def _report_once(self, words: str, level: int = logging.INFO) -> None:
        """Report a state once, in the log and to systemd."""
        if words != self._said:
            self._said = words
            _LOG.log(level, "%s", words)
            self._notifier.status(words)
