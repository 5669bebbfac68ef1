"""Behind the limiter's libraries programs find what the driver exports: all of it, and nothing that it lacks."""

from pathlib import Path

import pytest
from driver.cache import Unpacked
from driver.elf import exports
from driver.limited import STEMS, make_copies
from driver.report import Figures

BREAKPOINTS = {"cudbgReportDriverApiError", "cudbgReportDriverInternalError"}
"""What the driver itself calls for a debugger that has set a breakpoint there: on a jump in front of it none would be
reached."""

pytestmark = pytest.mark.driver

DEBUGGERS_DATA = "cudbg"
"""How the names begin of data that libcuda exports. A debugger reads and writes it in the driver's own library, which
it finds in the program: a copy in front of it would be the wrong one."""


@pytest.mark.parametrize("name", STEMS)
def test_each_function_of_the_driver_is_one_of_the_limiters(
    driver: Unpacked, limiter_build: Path, figures: Figures, name: str
) -> None:
    real = exports(driver.library(STEMS[name]))
    limited = exports(limiter_build / name)
    functions = {symbol for symbol, kind in real.items() if kind == "FUNC"} - BREAKPOINTS
    lost = functions - {symbol for symbol, kind in limited.items() if kind == "FUNC"}
    figures.note("exports", **{name: len(functions), f"{name} lost": len(lost)})
    assert len(functions) > {"libcuda.so.1": 300, "libnvidia-ml.so.1": 150}[name]
    assert lost == set(), "give each a row in the limiter's functions.tsv"


def test_containers_get_the_drivers_functions_and_no_others(
    driver: Unpacked, limiter_build: Path, tmp_path: Path, figures: Figures
) -> None:
    copies = make_copies(driver, limiter_build, tmp_path)
    for name, stem in STEMS.items():
        real, copy = (exports(path) for path in (driver.library(stem), tmp_path / name))
        functions = {symbol for symbol, kind in real.items() if kind == "FUNC"} - BREAKPOINTS
        assert {symbol for symbol, kind in copy.items() if kind == "FUNC"} == functions
        figures.note("exports", **{f"{name} absent": len(exports(limiter_build / name).keys() - copy.keys())})
    assert copies.unlisted == ()


@pytest.mark.parametrize("name", STEMS)
def test_data_of_the_driver_is_for_debuggers_alone(driver: Unpacked, limiter_build: Path, name: str) -> None:
    data = {symbol for symbol, kind in exports(driver.library(STEMS[name])).items() if kind != "FUNC"}
    assert {symbol for symbol in data if not symbol.startswith(DEBUGGERS_DATA)} == set()
    assert (data | BREAKPOINTS) & set(exports(limiter_build / name)) == set(), "a debugger would find the limiter's"
