"""What follows from what edgegpu-selftest saw, and how results are kept."""

import inspect
import json
import re
from pathlib import Path

import pytest

from edgegpu_plugin.records.selftest_results import NOT_ENDED, CardResult, SelftestResults, Verdict
from edgegpu_plugin.selftest import observation
from edgegpu_plugin.selftest.observation import (
    CardObservation,
    Kernel,
    NameFinding,
    NameLookups,
    Observations,
    ProgramRun,
    RunEnd,
    Taken,
    judge,
)

CARD, OTHER = "GPU-1", "GPU-2"
UNSEEN = Path(__file__).parents[3] / "docs/box/unseen.md"
MIB = 1 << 20
WAYS = ("plain", "managed", "async", "virtual", "graph", "cuGetProcAddress", "cuGetProcAddress_v2")


def kernel(work_ms: int, **changes: object) -> Kernel:
    return Kernel(step="compute", work_us=work_ms * 1000).model_copy(update=changes)


def run(granted: int = 4, status: int = 0, /, **changes: object) -> ProgramRun:
    """Return a run whose kernels took 0.1 s without a limit and 0.45 s with one."""
    done = ProgramRun(
        ended=RunEnd.EXIT,
        number=0,
        step="done",
        code=0,
        init_us=5000,
        context_bytes=500 * MIB,
        total_bytes=600 * MIB,
        kernel=kernel(100 if granted == 4 else 450),
        taken=tuple(Taken(way=way, granted=granted, code=status) for way in WAYS),
    )
    return done.model_copy(update=changes)


REFUSED = run(0, 0, number=1, step="context", code=2)


def result(
    *,
    native: ProgramRun | None = None,
    held: ProgramRun | None = None,
    second: ProgramRun | None = None,
    names: NameLookups | None = None,
) -> CardResult:
    card = CardObservation(
        card=CARD,
        native=native or run(),
        held=held or run(3, 2),
        second=second or REFUSED,
        names=names or NameLookups(asked=1984),
    )
    sizes = {"each_bytes": 32 * MIB, "tries": 4, "payload_bytes": 100 * MIB}
    work = {"kernels": 100, "kernel_us": 1000, "core_percent": 20, "listed_cuda": 13050}
    seen = Observations(v=1, id="a", cards=(card,), **sizes, **work)
    return judge(seen, card, key="k", at_s=7)


def test_a_context_counts_what_it_took_and_a_margin() -> None:
    assert (result().verdict, result().context_mib) == (Verdict.PASSED, 525)
    assert result(native=run(context_bytes=1), held=run(3, 2, total_bytes=1)).context_mib == 1 + 16
    assert result(native=run(context_bytes=-1)).context_mib is None


def with_way(way: str, granted: int, code: int = 2) -> ProgramRun:
    rest = tuple(one for one in run(3, 2).taken if one.way != way)
    return run(3, 2, taken=(*rest, Taken(way=way, granted=granted, code=code)))


@pytest.mark.parametrize("way", WAYS)
def test_each_way_counts(way: str) -> None:
    assert result(held=with_way(way, 4, 0)).verdict is Verdict.LOOSE
    assert result(held=with_way(way, 0)).verdict is Verdict.HARMFUL
    assert result(held=with_way(way, 3, 999)).verdict is Verdict.HARMFUL
    assert result(held=with_way(way, 1)).verdict is Verdict.PASSED  # a pool rounds up
    lacks = tuple(Taken(way=one, granted=0 if one == way else 4, code=801) for one in WAYS)
    wanted = Verdict.INCONCLUSIVE if way == "plain" else Verdict.PASSED
    assert result(native=run(taken=lacks), held=with_way(way, 0, 801)).verdict is wanted


@pytest.mark.parametrize(
    ("second", "verdict"),
    [
        (run(0, 2), Verdict.PASSED),  # where a context takes nothing
        (run(1, 2), Verdict.LOOSE),
        (run(0, 0, ended=RunEnd.LATE, number=60, step="init"), Verdict.HARMFUL),
        (run(0, 0, ended=RunEnd.SIGNAL, number=11, step="init"), Verdict.HARMFUL),
        (run(0, 0, ended=RunEnd.SIGNAL, number=9, step="init"), Verdict.INCONCLUSIVE),
        (run(0, 0, number=1, step="context", code=46), Verdict.INCONCLUSIVE),  # compute mode EXCLUSIVE_PROCESS
        (run(0, 0, ended=RunEnd.NOT_BEGUN), Verdict.INCONCLUSIVE),
    ],
)
def test_a_second_process_counts_too(second: ProgramRun, verdict: Verdict) -> None:
    assert result(second=second).verdict is verdict


def test_the_size_that_is_shown_is_the_limit() -> None:
    assert "cuMemGetInfo shows 15360 MiB" in result(held=run(3, 2, total_bytes=15360 * MIB)).reason
    assert "NVML shows 15360 MiB" in result(held=run(3, 2, nvml_total_bytes=15360 * MIB)).reason


def test_compute_counts() -> None:
    found = result()
    assert (found.native_work_us, found.held_work_us, found.core_percent) == (100_000, 450_000, 20)
    loose = result(held=run(3, 2, kernel=kernel(199)))
    assert (loose.verdict, loose.held_work_us) == (Verdict.LOOSE, 199_000)
    assert loose.reason == (
        "a compute limit of 20 percent held nothing: the same work took 199 ms with it, and 100 ms without"
    )
    assert result(held=run(3, 2, kernel=kernel(200))).verdict is Verdict.PASSED


@pytest.mark.parametrize("step", ["module", "launch", "compute"])
def test_a_kernel_that_runs_without_the_limiter_alone_is_harm(step: str) -> None:
    found = result(held=run(3, 2, kernel=kernel(0, code=719, step=step)))
    assert found.verdict is Verdict.HARMFUL
    assert "a kernel that runs without the limiter does not with it: CUDA error 719 at the l" in found.reason


@pytest.mark.parametrize(
    ("native", "names", "why"),
    [
        (kernel(0, missing=True, step="load"), ["kernel", "compute"], "the driver has no such function"),
        (kernel(0, code=222, step="module"), ["kernel", "compute"], "CUDA error 222 at the loading of a module"),
        (kernel(0, code=719, step="compute"), ["kernel", "compute"], "CUDA error 719 at the launch of many kernels"),
        (kernel(200), ["compute"], "other programs keep the card busy: 100 ms of kernels took 200 ms"),
        (kernel(49), ["compute"], "its kernel ends too early on this card: 49000 us for 100000 us of work"),
    ],
)
def test_what_the_card_cannot_show_is_not_tried_and_never_red(native: Kernel, names: list[str], why: str) -> None:
    found = result(native=run(kernel=native), held=run(3, 2, kernel=native))
    assert found.verdict is Verdict.PASSED
    assert list(found.not_tried) == names
    assert all(one.startswith(why) for one in found.not_tried.values())
    assert (found.native_work_us, found.held_work_us) == (None, None)


def test_a_driver_that_has_no_figure_of_a_process_is_told_and_makes_no_verdict() -> None:
    found = result(native=run(listed=False))
    assert found.verdict is Verdict.PASSED
    assert found.not_tried == {
        "count": "NVML has no figure of a process: what programs take past the limiter is not seen"
    }
    assert found.held_work_us


def test_a_way_that_the_driver_lacks_is_not_tried() -> None:
    old = (*run().taken[:-1], Taken(way=WAYS[-1], granted=0, code=0, missing=True))
    found = result(native=run(taken=old), held=with_way(WAYS[-1], 0, 801))
    assert (found.verdict, found.not_tried) == (Verdict.PASSED, {WAYS[-1]: "the driver has no such function"})
    assert set(found.granted) == set(WAYS[:-1])


@pytest.mark.parametrize("version", [0, 11040, 13050, 13051])
def test_a_driver_whose_functions_are_listed_needs_no_word(version: int) -> None:
    found = result(native=run(cuda_version=version))
    assert (found.cuda_version, found.newer_driver) == (version or None, "")


def test_a_driver_that_is_newer_than_the_list_is_told_and_makes_no_verdict(tmp_path: Path) -> None:
    found = result(native=run(cuda_version=14010))
    assert found.newer_driver == (
        "the driver's CUDA 14.1 is newer than the limiter's list of functions, which ends with CUDA 13.5"
    )
    assert found.verdict is Verdict.PASSED
    SelftestResults(tmp_path).put([found])
    kept_so = SelftestResults(tmp_path)
    assert kept_so.result(CARD) == found
    assert kept_so.why_degraded([CARD]) == ""  # its containers stay enforced


LAUNCH = NameFinding(count=1, examples=("cuLaunchKernel by cuGetProcAddress for CUDA 4.0",))
TWO_MORE = LAUNCH.model_copy(update={"count": 3})


@pytest.mark.parametrize(
    ("names", "verdict", "reason"),
    [
        (
            NameLookups(withheld=TWO_MORE),
            Verdict.HARMFUL,
            f"functions that programs find without the limiter are missing with it: {LAUNCH} and 2 more",
        ),
        (
            NameLookups(wrong=LAUNCH, passed=LAUNCH),
            Verdict.HARMFUL,
            f"programs get other functions with the limiter than without: {LAUNCH}",
        ),
        (
            NameLookups(passed=LAUNCH),
            Verdict.LOOSE,
            "the driver's own functions are found past the limiter: cuLaunchKernel by cuGetProcAddress for CUDA 4.0",
        ),
    ],
)
def test_a_function_that_programs_do_not_find_as_they_should_counts(
    names: NameLookups, verdict: Verdict, reason: str
) -> None:
    found = result(names=names)
    assert (found.verdict, found.reason, found.by_name) == (verdict, reason, "")


def test_a_driver_whose_pointers_are_no_symbols_is_told_and_makes_no_verdict(tmp_path: Path) -> None:
    found = result(names=NameLookups(by_name=LAUNCH))
    assert found.by_name == (
        "the driver's cuGetProcAddress gives other addresses than its symbols have: cuLaunchKernel by cuGetProcAddress "
        "for CUDA 4.0; the limiter goes by these functions' names and versions"
    )
    assert found.verdict is Verdict.PASSED
    SelftestResults(tmp_path).put([found])
    assert SelftestResults(tmp_path).result(CARD) == found
    assert result().by_name == ""


def test_what_stops_programs_weighs_more_than_what_does_not_hold() -> None:
    found = tuple(Taken(way=way, granted=0 if way == "async" else 4, code=2) for way in WAYS)
    assert result(held=run(taken=found)).verdict is Verdict.HARMFUL


def test_something_that_killed_the_program_is_not_the_limiter() -> None:
    killed = run(ended=RunEnd.SIGNAL, number=9, step="init")
    assert result(held=killed).verdict is Verdict.INCONCLUSIVE
    assert result(native=killed).verdict is Verdict.INCONCLUSIVE


def kept(
    key: str = "k", verdict: Verdict = Verdict.PASSED, card: str = CARD, context_mib: int | None = 300
) -> CardResult:
    return CardResult(card=card, key=key, verdict=verdict, reason="why", at_s=1, context_mib=context_mib)


def test_results_stay_over_a_restart_and_count_for_their_driver_and_limiter_alone(tmp_path: Path) -> None:
    results = SelftestResults(tmp_path)
    assert results.why_degraded([CARD]) == NOT_ENDED
    results.use_key("k")
    results.put([kept()])
    assert results.why_degraded([CARD]) == ""
    assert results.why_degraded([CARD, OTHER]) == NOT_ENDED
    again = SelftestResults(tmp_path)
    assert again.why_degraded([CARD]) == ""  # before the driver has said which it is
    again.use_key("of another driver")
    assert again.why_degraded([CARD]) == NOT_ENDED
    assert again.context_mib(CARD) == 300  # still better than an estimate
    again.put([kept("of another driver", Verdict.LOOSE, context_mib=None)])
    assert (again.why_degraded([CARD]), again.context_mib(CARD)) == ("self-test: why", 300)


def test_a_result_of_a_release_before_is_read(tmp_path: Path) -> None:
    row = {"card": CARD, "key": "k", "verdict": "passed", "at_s": 1, "context_mib": 300, "granted": {"plain": 3}}
    (tmp_path / "selftest.json").write_text(json.dumps({"version": 1, "results": [row]}))
    found = SelftestResults(tmp_path).result(CARD)
    assert found is not None
    assert (found.context_mib, found.cuda_version, found.newer_driver) == (300, None, "")


def test_only_what_stops_programs_is_not_laid_over(tmp_path: Path) -> None:
    results = SelftestResults(tmp_path)
    results.use_key("k")
    for verdict in Verdict:
        results.put([kept(verdict=verdict)])
        assert results.stops_programs([OTHER, CARD]) is (verdict is Verdict.HARMFUL)
    assert results.result(OTHER) is None
    results.put([kept(verdict=Verdict.HARMFUL)])
    assert results.why_degraded([OTHER, CARD]) == "self-test: why"  # the worst of them


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"results": [{}]}', '{"results": 7}'])
def test_a_file_that_makes_no_sense_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "selftest.json").write_text(text)
    results = SelftestResults(tmp_path)
    assert results.why_degraded([CARD]) == NOT_ENDED
    results.put([kept()])
    assert json.loads((tmp_path / "selftest.json").read_text())["results"][0]["card"] == CARD


def test_a_disk_that_is_full_costs_no_result(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    results = SelftestResults(tmp_path / "file")
    results.use_key("k")
    results.put([kept()])
    assert results.why_degraded([CARD]) == ""


def test_the_lines_that_notice_what_was_never_seen_on_a_card_are_the_self_tests() -> None:
    text = UNSEEN.read_text(encoding="utf-8").partition("## What nobody has seen")[0]
    assumptions = re.findall(r"^\d\. (.*?)(?=^\d\. |\Z)", text, re.DOTALL | re.MULTILINE)
    assert len(assumptions) == 5
    lines = [
        quoted
        for assumption in assumptions
        for named in re.findall(r"Lines?:((?: `[^`]+`[,.])+)", " ".join(assumption.split()))
        for quoted in re.findall(r"`([^`]+)`", named)
    ]
    assert len(lines) == 6
    source = inspect.getsource(observation)
    for line in lines:
        words = re.sub(r"\d+", "{.*?}", line.rpartition(": ")[2])
        assert re.search(words, source), line
