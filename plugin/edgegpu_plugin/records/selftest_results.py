"""What the node's self-test said of each card, kept on the disk: does the limiter hold, what does a context take?"""

import logging
import threading
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgegpu_base.errors import EdgegpuError
from edgegpu_base.files import write_if_changed

_LOG = logging.getLogger(__name__)

_MOST_MIB = 1 << 24
"""More than any card has."""

NOT_ENDED = "the node's self-test has not ended"
"""Why a container is `degraded` while nobody has tried the limiter on its card."""


class Verdict(StrEnum):
    """What the self-test found on a card."""

    PASSED = "passed"
    LOOSE = "loose"
    """A limit did not hold."""
    HARMFUL = "harmful"
    """A program that works without the limiter crashes, hangs or fails with it."""
    INCONCLUSIVE = "inconclusive"
    """Nothing can be said: no CUDA program runs here without the limiter either, or the card is nearly full."""

    @property
    def is_red(self) -> bool:
        """Whether the limiter does not work on the card."""
        return self in {Verdict.LOOSE, Verdict.HARMFUL}


class CardResult(BaseModel):
    """The result of one card; `key` names the driver and the build of the limiter that it is of."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    card: str
    key: str
    verdict: Verdict
    reason: str = ""
    """Why it is not `passed`, without a full stop."""
    remedy: str = ""
    at_s: int
    """When the self-test ended, in seconds since 1970."""
    context_mib: Annotated[int, Field(ge=0, le=_MOST_MIB)] | None = None
    """What a CUDA context takes on this card; None where it was not seen."""
    native_us: int | None = None
    """The time of the first CUDA call with its context, without the limiter; `held_us`: with it."""
    held_us: int | None = None
    native_work_us: int | None = None
    """How long a row of kernels took without the limiter; None where that was not tried."""
    held_work_us: int | None = None
    """The same kernels with the limiter and a compute limit of `core_percent`."""
    core_percent: int | None = None
    granted: dict[str, int] = {}
    """By way of allocation, how many of four were granted within a limit that has room for three."""
    not_tried: dict[str, str] = {}
    """What does not work here without the limiter either (a way, `kernel`, `compute`, `count`), and why."""
    cuda_version: int | None = None
    """The driver's, as cuDriverGetVersion gives it (12060: CUDA 12.6); None where it was not seen."""
    newer_driver: str = ""
    """That the driver is newer than the limiter's list of functions, without a full stop; empty where it is not.

    It makes no verdict: a newer version alone is no hole."""
    by_name: str = ""
    """For which functions the driver's pointers are not its symbols, so that the limiter goes by their names.

    It makes no verdict either: they are held all the same. Empty where there are none.
    """


class _Saved(BaseModel):
    version: Annotated[int, Field(ge=1, le=1)] = 1
    results: tuple[CardResult, ...] = ()


class SelftestResults:
    """The file `selftest.json` in the state folder; calls come from several threads."""

    def __init__(self, state: Path) -> None:
        self._path = state / "selftest.json"
        self._lock = threading.Lock()
        self._key: str | None = None
        self._results = {one.card: one for one in self._load()}

    def use_key(self, key: str) -> None:
        """Take the driver and the build of the limiter that are in use: results of others do not count any more.

        Until it is known, right after a start, those that are kept do.
        """
        with self._lock:
            self._key = key

    def result(self, card: str) -> CardResult | None:
        """Return the result of a card for the driver and the limiter in use; None where there is none."""
        with self._lock:
            found = self._results.get(card)
            return found if found is not None and self._key in {None, found.key} else None

    def context_mib(self, card: str) -> int | None:
        """Return what a context took on a card when it was last seen, with another driver too; None: never."""
        with self._lock:
            found = self._results.get(card)
        return None if found is None else found.context_mib

    def put(self, results: Iterable[CardResult]) -> None:
        """Keep results; a figure that was not seen this time stays as it was. A full disk is logged."""
        with self._lock:
            for one in results:
                before = self._results.get(one.card)
                known = one.context_mib if one.context_mib is not None or before is None else before.context_mib
                self._results[one.card] = one.model_copy(update={"context_mib": known})
            saved = _Saved(results=tuple(self._results.values()))
        try:
            write_if_changed(self._path, saved.model_dump_json(indent=1) + "\n", mode=0o600)
        except EdgegpuError as error:
            _LOG.warning("the self-test's results are not kept over a restart: %s", error)

    def why_degraded(self, cards: Iterable[str]) -> str:
        """Return why containers on these cards are not known to be held; empty where the self-test passed on all."""
        found = [self.result(card) for card in cards]
        worst = [one for one in found if one is not None and one.verdict is Verdict.HARMFUL]
        for one in worst or found:
            if one is None:
                return NOT_ENDED
            if one.verdict is not Verdict.PASSED:
                return f"self-test: {one.reason}"
        return ""

    def stops_programs(self, cards: Iterable[str]) -> bool:
        """Return whether programs on one of these cards would crash, hang or fail with the limiter."""
        found = (self.result(card) for card in cards)
        return any(one is not None and one.verdict is Verdict.HARMFUL for one in found)

    def _load(self) -> tuple[CardResult, ...]:
        try:
            return _Saved.model_validate_json(self._path.read_bytes()).results
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            _LOG.warning("cannot read %s: %s; the self-test is run again", self._path, error)
            return ()
