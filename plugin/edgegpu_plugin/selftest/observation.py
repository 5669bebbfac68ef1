"""What edgegpu-selftest saw on a card (`plugin/limiter/selftest`), and what follows from it."""

from collections.abc import Iterator
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from edgegpu_plugin.records.selftest_results import CardResult, Verdict

_MIB = 1 << 20
_OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY: what a program is to hear past its limit."""
_KILL = 9
_UNKNOWN_BYTES = 256 * _MIB
"""What counts for a context that nobody could see (`plugin/limiter/selftest/main.c`)."""
_LEAST_MARGIN_MIB = 16
_MARGIN = 20
"""A twentieth is added to what a context takes: a program's first kernel makes it a little larger."""

_REPORT = "report it with `edgegpu selftest --json`; set isolation.mode to none to run without"
_AGAIN = "sudo edgegpu selftest"


class RunEnd(StrEnum):
    """How a process of the self-test ended."""

    EXIT = "exit"
    SIGNAL = "signal"
    LATE = "late"
    NOT_BEGUN = "not begun"


class _Seen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Taken(_Seen):
    """One way of allocation: how many were granted, and CUDA's status of the one that was not."""

    way: str
    granted: int
    code: int
    missing: bool = False


class ProgramRun(_Seen):
    """One process: how it ended (`number`: status, signal or seconds), at which step, by which status of CUDA."""

    ended: RunEnd
    number: int
    step: str
    code: int
    no_room: bool = False
    init_us: int = 0
    context_bytes: int = -1
    total_bytes: int = 0
    nvml_total_bytes: int = -1
    error: str = ""
    taken: tuple[Taken, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether it did all that it had to do."""
        return self.ended is RunEnd.EXIT and self.step == "done" and self.code == 0


class CardObservation(_Seen):
    """The processes on one card: without the limiter, with it, and a second one beside that."""

    card: str
    native: ProgramRun
    held: ProgramRun
    second: ProgramRun


class Observations(_Seen):
    """All cards of one self-test; `id` is that of its request."""

    v: int
    id: str
    each_bytes: int
    tries: int
    payload_bytes: int
    cards: tuple[CardObservation, ...]


def judge(seen: Observations, card: CardObservation, *, key: str, at_s: int) -> CardResult:
    """Return the result of one card.

    A program that the limiter stops weighs more than a limit that does not hold: with such a limiter no new container
    is started.
    """
    found = (
        next(_inconclusive(seen, card), None)
        or next(_harmful(seen, card), None)
        or next(_loose(seen, card), None)
        or next(_unsure_of_second(card), None)
    )
    verdict, reason, remedy = found or (Verdict.PASSED, "", "")
    return CardResult(
        card=card.card,
        key=key,
        verdict=verdict,
        reason=reason,
        remedy=remedy,
        at_s=at_s,
        context_mib=_context_mib(card.native),
        native_us=card.native.init_us or None,
        held_us=card.held.init_us or None,
        granted={one.way: one.granted for one in card.held.taken if not one.missing},
    )


_Found = tuple[Verdict, str, str]


def _context_mib(native: ProgramRun) -> int | None:
    """Return what counts for a context: what one took, in whole MiB, and a margin."""
    if not native.is_done or native.context_bytes < 0:
        return None
    took = -(-native.context_bytes // _MIB)
    return took + max(_LEAST_MARGIN_MIB, -(-took // _MARGIN))


def _usable(seen: Observations, native: ProgramRun) -> set[str]:
    """Return the ways that work without the limiter: an old driver or card does not have all of them."""
    return {one.way for one in native.taken if not one.missing and one.granted == seen.tries}


def _inconclusive(seen: Observations, card: CardObservation) -> Iterator[_Found]:
    """Yield why the card says nothing about the limiter."""
    native, held = card.native, card.held
    if native.no_room:
        yield _unsure("the card is nearly full, and what is left is for its pods", f"{_AGAIN}, once pods have ended")
    elif native.ended is RunEnd.NOT_BEGUN:
        yield _unsure("its time was over before this card's turn", _AGAIN)
    elif native.ended is RunEnd.LATE:
        yield _unsure(f"the driver itself did not answer for {native.number} s, at {_at(native)}", "nvidia-smi")
    elif not native.is_done:
        yield _unsure(f"no CUDA program works without the limiter either: {_why(native)}", "nvidia-smi")
    elif "plain" not in _usable(seen, native):
        yield _unsure("the card has less memory to spare than the self-test takes", f"{_AGAIN}, once pods have ended")
    elif held.ended is RunEnd.NOT_BEGUN:
        yield _unsure("the files of its container could not be made", "df -h /run")
    elif held.step == "load" and held.error:
        yield _unsure(f"the limiter's library cannot be loaded here: {held.error}", _REPORT)
    elif held.ended is RunEnd.SIGNAL and held.number == _KILL:
        yield _unsure("something on this machine killed it", _AGAIN)


def _unsure(why: str, remedy: str) -> _Found:
    return Verdict.INCONCLUSIVE, f"it cannot say whether the limiter holds: {why}", remedy


def _at(run: ProgramRun) -> str:
    names = {
        "load": "the loading of the library",
        "init": "cuInit",
        "device": "cuDeviceGet",
        "context": "cuDevicePrimaryCtxRetain",
        "info": "cuMemGetInfo",
        "ways": "an allocation",
        "hold": "the end of the context",
    }
    return names.get(run.step, run.step)


def _why(run: ProgramRun) -> str:
    match run.ended:
        case RunEnd.SIGNAL:
            return f"it is ended by signal {run.number} at {_at(run)}"
        case RunEnd.LATE:
            return f"no answer for {run.number} s at {_at(run)}"
        case _ if run.error:
            return run.error
        case _:
            return f"CUDA error {run.code} at {_at(run)}"


def _harmful(seen: Observations, card: CardObservation) -> Iterator[_Found]:
    """Yield what works without the limiter and does not with it."""
    held, second = card.held, card.second
    if not held.is_done:
        yield _stops(f"a CUDA program that works without the limiter does not with it: {_why(held)}")
        return
    usable = _usable(seen, card.native)
    for one in held.taken:
        if one.way in usable and one.granted == 0:
            yield _stops(f"the limiter grants no {one.way} memory within the limit (CUDA error {one.code})")
        elif one.way in usable and one.granted < seen.tries and one.code != _OUT_OF_MEMORY:
            yield _stops(f"past the limit {one.way} memory is refused by CUDA error {one.code} and not by 2")
    if second.ended is RunEnd.LATE or (second.ended is RunEnd.SIGNAL and second.number != _KILL):
        yield _stops(f"a second program does not work with the limiter: {_why(second)}")


def _stops(what: str) -> _Found:
    return Verdict.HARMFUL, what, _REPORT


def _loose(seen: Observations, card: CardObservation) -> Iterator[_Found]:
    """Yield each limit that did not hold."""
    held, second = card.held, card.second
    usable, remedy = _usable(seen, card.native), f"share this card among apps that you trust alone; {_REPORT}"
    for one in held.taken:
        if one.way in usable and one.granted == seen.tries:
            yield Verdict.LOOSE, f"{one.way} memory past the limit was granted", remedy
    counted = card.native.context_bytes if card.native.context_bytes >= 0 else _UNKNOWN_BYTES
    for name, total in (("cuMemGetInfo", held.total_bytes), ("NVML", held.nvml_total_bytes)):
        if total > counted + seen.payload_bytes:
            yield Verdict.LOOSE, f"{name} shows {total // _MIB} MiB, more than the limit", remedy
    if any(one.granted for one in second.taken):
        yield Verdict.LOOSE, "a second process got memory that the first one held already", remedy


def _unsure_of_second(card: CardObservation) -> Iterator[_Found]:
    second = card.second
    codes = {second.code, *(one.code for one in second.taken if one.way == "plain")}
    if second.ended is not RunEnd.EXIT or _OUT_OF_MEMORY not in codes:
        why = "its time was over" if second.ended is RunEnd.NOT_BEGUN else _why(second)
        yield _unsure(f"a second process could not begin ({why}); is the card's compute mode Default?", "nvidia-smi -q")
