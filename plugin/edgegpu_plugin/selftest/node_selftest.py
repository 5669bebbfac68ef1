"""The task that tries the limiter on this node's cards: once for each driver and limiter, and on request."""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from edgegpu_base.files import stamp
from edgegpu_base.http_unix import Response
from edgegpu_core.inventory import Card
from edgegpu_core.reasons import BY_NAME_REMEDY, NEWER_DRIVER_REMEDY
from edgegpu_plugin.containers.limiter_files import LimiterFiles
from edgegpu_plugin.containers.usage_file import uuid_digits
from edgegpu_plugin.errors import PluginError
from edgegpu_plugin.records.selftest_results import CardResult, SelftestResults, Verdict
from edgegpu_plugin.selftest.observation import judge
from edgegpu_plugin.selftest.runner import SelftestError, SelftestRunner

_LOG = logging.getLogger(__name__)

TARGET = "/v1/selftest"
"""What a PUT on the plugin's socket asks for."""

_LOOK_AT = "sudo journalctl -u edgegpu-selftest -e; then sudo edgegpu selftest"
_AGAIN_S = 600.0
"""How long after a result that says nothing it is tried again: a card may have room by then."""


class NodeSelftest:
    """The self-test of this node; `run` is its task, and the rest may be called on any thread."""

    def __init__(
        self,
        results: SelftestResults,
        runner: SelftestRunner,
        *,
        root: Path,
        is_wanted: Callable[[], bool],
        cards: Callable[[], Iterable[Card]],
        driver_version: Callable[[], str],
        limiter: Callable[[], LimiterFiles],
        changed: Callable[[], None],
    ) -> None:
        """Build the self-test.

        Args:
            results: what is known of each card.
            runner: runs the program.
            root: the driver's root.
            is_wanted: returns whether it is run without being asked, which is where the limiter holds containers.
            cards: returns the cards that are offered.
            driver_version: returns the driver's version; empty until the driver has answered.
            limiter: returns the limiter's libraries; raises PluginError.
            changed: called when what is known has changed.
        """
        self._results, self._runner, self._root = results, runner, root
        self._is_wanted = is_wanted
        self._cards, self._driver_version, self._limiter, self._changed = cards, driver_version, limiter, changed
        self._wake = threading.Event()
        self._is_stopping = False
        self._asked = False
        self._is_running = False
        self._ended = 0
        self._error = ""
        self._digest: tuple[object, str] | None = None

    def run(self) -> None:
        """Run the self-test whenever it is due, until `stop`."""
        while not self._is_stopping:
            self._wake.clear()
            self._look()
            if not self._is_stopping:
                self._wake.wait(_AGAIN_S)

    def stop(self) -> None:
        """Make `run` end."""
        self._is_stopping = True
        self._runner.stop()
        self._wake.set()

    def look(self) -> None:
        """Make the task look whether cards or the driver have changed."""
        self._wake.set()

    def ask(self) -> Response:
        """Have all cards tried anew; the answer has the number of runs so far, which rises when this one has ended."""
        self._asked = True
        self._wake.set()
        return Response(202, json.dumps({"ended": self._ended}).encode())

    def document(self) -> dict[str, Any]:
        """Return its part of the status document."""
        rows = [(card, self._results.result(card.uuid)) for card in self._cards()]
        return {
            "running": self._is_running or self._asked,
            "ended": self._ended,
            "error": self._error,
            "cards": [{"index": card.label, **_row(card.uuid, found)} for card, found in rows],
        }

    def problem(self) -> str:
        """Return which cards the limiter does not work on, and why; empty where there is none."""
        found = ((card, self._results.result(card.uuid)) for card in self._cards())
        red = [(card, one) for card, one in found if one is not None and one.verdict.is_red]
        return "; ".join(f"card {card.label}: self-test: {one.reason}" for card, one in red)

    def _look(self) -> None:
        version, asked = self._driver_version(), self._asked
        cards = [card for card in self._cards() if card.healthy]
        try:
            limiter = self._limiter()
            key = f"{version} {self._digest_of(limiter)}"
        except (PluginError, OSError) as error:  # the status document says so where the limiter is on
            self._end(asked=asked, error=str(error))
            return
        if not version:
            self._end(asked=asked, error="the driver has not answered: nvidia-smi")
            return
        self._results.use_key(key)
        due = [card.uuid for card in cards if asked or (self._is_wanted() and self._is_due(card.uuid))]
        self._is_running = bool(due)
        if due:
            self._test(due, limiter, key=key)
        self._end(asked=asked, error="" if cards else "no card is offered that is in order: edgegpu doctor")

    def _end(self, *, asked: bool, error: str) -> None:
        self._is_running = False
        if asked:
            self._asked, self._error = False, error
            self._ended += 1

    def _is_due(self, card: str) -> bool:
        found = self._results.result(card)
        return found is None or (found.verdict is Verdict.INCONCLUSIVE and not 0 <= time.time() - found.at_s < _AGAIN_S)

    def _test(self, cards: Sequence[str], limiter: LimiterFiles, *, key: str) -> None:
        """Try the limiter on cards; what is red is tried once more, and the second time counts."""
        found = self._tried(cards, limiter, key=key)
        red = [one.card for one in found if one.verdict.is_red]
        if red and not self._is_stopping:
            again = {one.card: one for one in self._tried(red, limiter, key=key)}
            found = [again.get(one.card, one) for one in found]
        if self._is_stopping:
            return
        before = {one.card: self._results.result(one.card) for one in found}
        self._results.put(found)
        for one in found:
            _tell(one, before[one.card])
        self._changed()

    def _tried(self, cards: Sequence[str], limiter: LimiterFiles, *, key: str) -> list[CardResult]:
        named = [card for card in cards if uuid_digits(card)]
        at_s = int(time.time())

        def unsure(some: Iterable[str], reason: str, remedy: str) -> list[CardResult]:
            verdict = Verdict.INCONCLUSIVE
            return [
                CardResult(card=card, key=key, verdict=verdict, reason=reason, remedy=remedy, at_s=at_s)
                for card in some
            ]

        nameless = unsure(set(cards) - set(named), "the limiter cannot name this card", "set isolation.mode to none")
        if not named:
            return nameless
        try:
            seen = self._runner.run(named, root=self._root, version=self._driver_version(), limiter=limiter)
        except SelftestError as error:
            return nameless + unsure(named, f"it could not be run: {error}", _LOOK_AT)
        return nameless + [judge(seen, card, key=key, at_s=at_s) for card in seen.cards]

    def _digest_of(self, limiter: LimiterFiles) -> str:
        """Return a digest of the limiter's libraries and of the program that tries them."""
        paths = [path for path in (*limiter.libraries.values(), self._runner.program) if path.exists()]
        stamps = [stamp(path) for path in paths]
        if self._digest is None or self._digest[0] != stamps:
            whole = hashlib.sha256()
            for path in paths:
                whole.update(path.read_bytes())
            self._digest = (stamps, whole.hexdigest()[:16])
        return self._digest[1]


def _row(card: str, found: CardResult | None) -> dict[str, Any]:
    if found is None:
        return {"card": card, "verdict": "", "reason": "", "remedy": ""}
    return found.model_dump(mode="json", exclude={"key"})


def _tell(now: CardResult, before: CardResult | None) -> None:
    """Log a result that is news."""
    if now.newer_driver and (before is None or before.newer_driver != now.newer_driver):
        _LOG.warning("self-test of card %s: %s; %s", now.card, now.newer_driver, NEWER_DRIVER_REMEDY)
    if now.by_name and (before is None or before.by_name != now.by_name):
        _LOG.warning("self-test of card %s: %s; %s", now.card, now.by_name, BY_NAME_REMEDY)
    if before is not None and (before.verdict, before.reason) == (now.verdict, now.reason):
        return
    if now.verdict is Verdict.PASSED:
        _LOG.info("self-test of card %s: the limiter holds; a context counts %s MiB", now.card, now.context_mib)
    elif now.verdict is Verdict.INCONCLUSIVE:
        _LOG.warning("self-test of card %s: %s; %s", now.card, now.reason, now.remedy)
    else:
        _LOG.error("self-test of card %s: %s; %s", now.card, now.reason, now.remedy)
