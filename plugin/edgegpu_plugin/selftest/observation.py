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

_LEAST_SLOWDOWN = 2
"""With a fifth of the time the same work takes about 4.5 times as long; less than twice says that nothing held it."""

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


class Kernel(_Seen):
    """A module and its kernel: CUDA's status of the call that failed and its step; `work_us` is 0 where one did."""

    missing: bool = False
    code: int = 0
    step: str = "load"
    work_us: int = 0


class ProgramRun(_Seen):
    """One process: how it ended (`number`: status, signal or seconds), at which step, by which status of CUDA.

    `cuda_version` is the driver's, as cuDriverGetVersion gives it; 0 where it was not asked. `listed`: whether NVML has
    a figure of the process.
    """

    ended: RunEnd
    number: int
    step: str
    code: int
    no_room: bool = False
    init_us: int = 0
    context_bytes: int = -1
    total_bytes: int = 0
    nvml_total_bytes: int = -1
    cuda_version: int = 0
    listed: bool = True
    error: str = ""
    kernel: Kernel = Kernel()
    taken: tuple[Taken, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether it did all that it had to do."""
        return self.ended is RunEnd.EXIT and self.step == "done" and self.code == 0


class NameFinding(_Seen):
    """Functions whose lookup has one fault: how many, and by which question some of them have it."""

    count: int = 0
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = self.count - len(self.examples)
        return ", ".join(self.examples) + (f" and {more} more" if more > 0 else "")


class NameLookups(_Seen):
    """What the driver and the limiter answer for each hooked name; `asked` is 0 where they were not asked.

    `by_name`: the driver's pointer is no symbol of it, and the limiter went by the name. `withheld`: the driver has the
    function, and with the limiter there is none. `passed`: it is the driver's own with the limiter too. `wrong`: it is
    another form.
    """

    asked: int = 0
    by_name: NameFinding = NameFinding()
    withheld: NameFinding = NameFinding()
    passed: NameFinding = NameFinding()
    wrong: NameFinding = NameFinding()


class CardObservation(_Seen):
    """The processes on one card: without the limiter, with it, and a second one beside that."""

    card: str
    native: ProgramRun
    held: ProgramRun
    second: ProgramRun
    names: NameLookups = NameLookups()


class Observations(_Seen):
    """All cards of one self-test; `id` is that of its request.

    `listed_cuda` is the newest version of CUDA whose functions the limiter's list has.
    """

    v: int
    id: str
    each_bytes: int
    tries: int
    payload_bytes: int
    kernels: int
    kernel_us: int
    core_percent: int
    listed_cuda: int
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
    native, held = card.native, card.held
    not_tried = dict(_not_tried(seen, native)) if native.is_done else {}
    is_timed = native.is_done and held.is_done and "compute" not in not_tried
    return CardResult(
        card=card.card,
        key=key,
        verdict=verdict,
        reason=reason,
        remedy=remedy,
        at_s=at_s,
        context_mib=_context_mib(native),
        native_us=native.init_us or None,
        held_us=held.init_us or None,
        native_work_us=(native.kernel.work_us or None) if is_timed else None,
        held_work_us=(held.kernel.work_us or None) if is_timed else None,
        core_percent=seen.core_percent,
        granted={one.way: one.granted for one in held.taken if one.way not in not_tried},
        not_tried=not_tried,
        cuda_version=native.cuda_version or None,
        newer_driver=_newer_driver(native.cuda_version, listed=seen.listed_cuda),
        by_name=_by_name(card.names),
    )


_Found = tuple[Verdict, str, str]


def _context_mib(native: ProgramRun) -> int | None:
    """Return what counts for a context: what one took, in whole MiB, and a margin."""
    if not native.is_done or native.context_bytes < 0:
        return None
    took = -(-native.context_bytes // _MIB)
    return took + max(_LEAST_MARGIN_MIB, -(-took // _MARGIN))


def _newer_driver(version: int, *, listed: int) -> str:
    """Return that the driver may have functions which the limiter's list lacks; empty where its CUDA is listed.

    The last digit of a version is no part of CUDA's: 13050 is 13.5.
    """
    if version // 10 <= listed // 10:
        return ""
    ends = f"which ends with CUDA {_cuda(listed)}"
    return f"the driver's CUDA {_cuda(version)} is newer than the limiter's list of functions, {ends}"


def _by_name(names: NameLookups) -> str:
    """Return for which functions the limiter cannot go by the driver's pointers; empty where it can for all."""
    if not names.by_name.count:
        return ""
    which = f"gives other addresses than its symbols have: {names.by_name}"
    return f"the driver's cuGetProcAddress {which}; the limiter goes by these functions' names and versions"


def _cuda(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _usable(seen: Observations, native: ProgramRun) -> set[str]:
    """Return the ways that work without the limiter: an old driver or card does not have all of them."""
    return {one.way for one in native.taken if not one.missing and one.granted == seen.tries}


def _not_tried(seen: Observations, native: ProgramRun) -> Iterator[tuple[str, str]]:
    """Yield what does not work here without the limiter either, and why: nothing is said of it."""
    usable, kernel, work_us = _usable(seen, native), native.kernel, seen.kernels * seen.kernel_us
    if not native.listed:
        yield "count", "NVML has no figure of a process: what programs take past the limiter is not seen"
    for one in native.taken:
        if one.way not in usable:
            yield one.way, _lacking(missing=one.missing, code=one.code, at="an allocation")
    if kernel.missing or kernel.code != 0:
        why = _lacking(missing=kernel.missing, code=kernel.code, at=_AT.get(kernel.step, kernel.step))
        yield from (("kernel", why), ("compute", why))
    elif kernel.work_us >= _LEAST_SLOWDOWN * work_us:
        took = f"{work_us // 1000} ms of kernels took {kernel.work_us // 1000} ms"
        yield "compute", f"other programs keep the card busy: {took} without the limiter"
    elif _LEAST_SLOWDOWN * kernel.work_us < work_us:
        yield "compute", f"its kernel ends too early on this card: {kernel.work_us} us for {work_us} us of work"


def _memory(way: str) -> str:
    return f"memory by {way}" if way.startswith("cu") else f"{way} memory"


def _lacking(*, missing: bool, code: int, at: str) -> str:
    return "the driver has no such function" if missing else f"CUDA error {code} at {at} without the limiter too"


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


_AT = {
    "load": "the loading of the library",
    "names": "the lookup of functions",
    "init": "cuInit",
    "device": "cuDeviceGet",
    "context": "cuDevicePrimaryCtxRetain",
    "info": "cuMemGetInfo",
    "ways": "an allocation",
    "module": "the loading of a module",
    "launch": "the launch of a kernel",
    "compute": "the launch of many kernels",
    "hold": "the end of the context",
}


def _at(run: ProgramRun) -> str:
    return _AT.get(run.step, run.step)


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
            yield _stops(f"the limiter grants no {_memory(one.way)} within the limit (CUDA error {one.code})")
        elif one.way in usable and one.granted < seen.tries and one.code != _OUT_OF_MEMORY:
            yield _stops(f"past the limit {_memory(one.way)} is refused by CUDA error {one.code} and not by 2")
    if card.native.kernel.work_us and held.kernel.work_us == 0:
        why = f"CUDA error {held.kernel.code} at {_AT.get(held.kernel.step, held.kernel.step)}"
        yield _stops(f"a kernel that runs without the limiter does not with it: {why}")
    if second.ended is RunEnd.LATE or (second.ended is RunEnd.SIGNAL and second.number != _KILL):
        yield _stops(f"a second program does not work with the limiter: {_why(second)}")
    if card.names.withheld.count:
        yield _stops(f"functions that programs find without the limiter are missing with it: {card.names.withheld}")
    if card.names.wrong.count:
        yield _stops(f"programs get other functions with the limiter than without: {card.names.wrong}")


def _stops(what: str) -> _Found:
    return Verdict.HARMFUL, what, _REPORT


def _loose(seen: Observations, card: CardObservation) -> Iterator[_Found]:
    """Yield each limit that did not hold."""
    held, second = card.held, card.second
    usable, remedy = _usable(seen, card.native), f"share this card among apps that you trust alone; {_REPORT}"
    for one in held.taken:
        if one.way in usable and one.granted == seen.tries:
            yield Verdict.LOOSE, f"{_memory(one.way)} past the limit was granted", remedy
    counted = card.native.context_bytes if card.native.context_bytes >= 0 else _UNKNOWN_BYTES
    for name, total in (("cuMemGetInfo", held.total_bytes), ("NVML", held.nvml_total_bytes)):
        if total > counted + seen.payload_bytes:
            yield Verdict.LOOSE, f"{name} shows {total // _MIB} MiB, more than the limit", remedy
    if any(one.granted for one in second.taken):
        yield Verdict.LOOSE, "a second process got memory that the first one held already", remedy
    alone_us, held_us = card.native.kernel.work_us, held.kernel.work_us
    if "compute" not in dict(_not_tried(seen, card.native)) and held_us < _LEAST_SLOWDOWN * alone_us:
        took = f"took {held_us // 1000} ms with it, and {alone_us // 1000} ms without"
        yield (
            Verdict.LOOSE,
            f"a compute limit of {seen.core_percent} percent held nothing: the same work {took}",
            remedy,
        )
    if card.names.passed.count:
        yield Verdict.LOOSE, f"the driver's own functions are found past the limiter: {card.names.passed}", remedy


def _unsure_of_second(card: CardObservation) -> Iterator[_Found]:
    second = card.second
    codes = {second.code, *(one.code for one in second.taken if one.way == "plain")}
    if second.ended is not RunEnd.EXIT or _OUT_OF_MEMORY not in codes:
        why = "its time was over" if second.ended is RunEnd.NOT_BEGUN else _why(second)
        yield _unsure(f"a second process could not begin ({why}); is the card's compute mode Default?", "nvidia-smi -q")
