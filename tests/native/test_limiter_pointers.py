"""cuGetProcAddress of a driver whose pointers are no symbols of its own: each hook goes by its name and version."""

import subprocess
from pathlib import Path

import pytest
from limiter_functions import read_table
from native.limiterkit import SOURCES, make_container
from native.simkit import DRIVER_FILE
from native.thunkskit import put_thunks

from edgegpu_sim.driver import SimDriver, SimVersions, make_card

CARD = make_card(0, "Tesla T4", 15360)
PROGRAM = Path(__file__).parents[1] / "driver/pointers.c"
FUNCTIONS = read_table(SOURCES / "cuda/functions.tsv")
HOOKS = {function.name for function in FUNCTIONS if function.rule == "hook"}
NEWEST = 13050
"""The newest version of CUDA whose functions the list has."""
VERSIONS = (2000, 3020, 4000, 7000, 10000, 11000, 11030, 12000, 12050, 13000, 13010, NEWEST)

Answers = dict[tuple[str, ...], tuple[str, str]]
"""By generation, name, version and flags: the symbol that the pointer is (`?`: none), and in which library."""


class Bed:
    """A simulated driver, the limiter over it, and the program that asks."""

    def __init__(self, folder: Path, driver: SimDriver, limiter: Path) -> None:
        self.driver, self._folder, self._limiter = driver, folder, limiter
        self._program = folder / "pointers"
        subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", self._program, PROGRAM, "-ldl"], check=True)
        (folder / "names").write_text("\n".join(sorted({_base(name) for name in HOOKS} | {"cuDeviceGet", "cuNone"})))

    def _asked(self, libraries: Path, versions: tuple[int, ...]) -> Answers:
        (self._folder / "versions").write_text("\n".join(map(str, versions)))
        command = [self._program, self._folder / "names", self._folder / "versions"]
        env = {"LD_LIBRARY_PATH": str(libraries)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=240)
        rows = [line.split() for line in done.stdout.splitlines()]
        return {tuple(row[:4]): (row[6], row[7]) for row in rows}

    def bare(self, *versions: int) -> Answers:
        return self._asked(self.driver.libraries, versions or VERSIONS)

    def limited(self, *versions: int) -> Answers:
        container = make_container(self._folder / "container", self._limiter, self.driver.libraries)
        container.limit((CARD, 1024))
        (container.libraries / DRIVER_FILE).symlink_to("libcuda.so.1")
        return self._asked(container.libraries, versions or VERSIONS)


def _base(name: str) -> str:
    plain = name.removesuffix("_ptsz").removesuffix("_ptds")
    return plain[:-3] if plain[-3:-1] == "_v" else plain


@pytest.fixture
def bed(tmp_path: Path, simdriver_build: Path, limiter_build: Path) -> Bed:
    driver = SimDriver.create(
        tmp_path / "box", [CARD], build=simdriver_build, versions=SimVersions(cuda="14.0", context_mib=200)
    )
    return Bed(tmp_path, driver, limiter_build)


def test_each_hook_is_given_where_no_pointer_of_the_driver_is_a_symbol_of_it(bed: Bed) -> None:
    named = bed.bare()
    put_thunks(bed.driver)
    assert {symbol for symbol, _ in bed.bare().values()} == {"?", "-"}
    answers = bed.limited()
    hooked = {question: symbol for question, (symbol, _) in named.items() if symbol in HOOKS}
    assert set(hooked.values()) > HOOKS - {name for name in HOOKS if name.startswith(("cuGLCtx", "cuVDPAU"))}
    assert {q: answers[q] for q in hooked} == {q: (symbol, "front") for q, symbol in hooked.items()}
    passed = {question for question, (symbol, _) in named.items() if symbol not in HOOKS | {"-"}}
    assert {answers[question] for question in passed} == {("?", "behind")}
    assert {answers[question] for question in set(named) - set(hooked) - passed} == {("-", "-")}


def test_a_form_that_is_newer_than_the_list_is_withheld_unless_the_listed_version_has_the_same(bed: Bed) -> None:
    put_thunks(bed.driver)
    assert bed.limited(14000)["2", "cuMemAlloc", "14000", "0"] == ("cuMemAlloc_v2", "front")


def test_a_driver_whose_answers_are_never_the_same_gives_no_form_that_may_be_newer(bed: Bed) -> None:
    put_thunks(bed.driver, "-DANEW")
    answers = bed.limited(NEWEST, 14000)
    assert answers["2", "cuMemAlloc", str(NEWEST), "0"] == ("cuMemAlloc_v2", "front")
    assert answers["2", "cuMemAlloc", "14000", "0"] == ("-", "-")
    assert answers["1", "cuMemAlloc", "14000", "0"] == ("-", "-")


def test_where_one_functions_pointers_differ_the_others_are_as_before(bed: Bed) -> None:
    named = bed.bare()
    put_thunks(bed.driver, '-DONLY="cuLaunchKernel"')
    answers = bed.limited()
    assert answers["2", "cuLaunchKernel", "12000", "2"] == ("cuLaunchKernel_ptsz", "front")
    assert answers["1", "cuLaunchKernel", "4000", "0"] == ("cuLaunchKernel", "front")
    hooked = {question: symbol for question, (symbol, _) in named.items() if symbol in HOOKS}
    assert {q: answers[q] for q in hooked} == {q: (symbol, "front") for q, symbol in hooked.items()}
