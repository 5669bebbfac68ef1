"""Modules and libraries: the driver loads each once, and what a neighbour takes meanwhile counts within bounds."""

from pathlib import Path

from native.limiterkit import NULL_CARD, compile_program, make_container


def test_the_driver_loads_a_module_once_whatever_a_neighbour_takes_meanwhile(
    tmp_path: Path, limiter_build: Path
) -> None:
    (tmp_path / "driver").mkdir()
    driver = tmp_path / "driver/libcuda.so.1"
    compile_program(driver, limiter_build, ["tests/nullloads.c"], "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    container = make_container(tmp_path / "container", limiter_build, driver.parent)
    container.limit((NULL_CARD, 256))
    container.run(compile_program(tmp_path / "loads", limiter_build, ["tests/loads.c"]), driver)
