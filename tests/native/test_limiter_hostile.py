"""What a program does to have more than its share, with functions of libc and of the driver that it may call."""

import subprocess
from pathlib import Path

from native.limiterkit import NULL_CARD, SOURCES, USAGE_BYTES, compile_program, make_container


def test_a_process_that_can_read_its_limits_no_more_is_given_nothing_new(limiter_build: Path, tmp_path: Path) -> None:
    common = [
        f"common/{path.name}"
        for path in (SOURCES / "common").glob("*.c")
        if path.name not in {"driver.c", "settings.c"}
    ]
    (tmp_path / "usage").write_bytes(b"\0" * USAGE_BYTES)
    program = compile_program(tmp_path / "unread", limiter_build, ["tests/unread.c", *common])
    done = subprocess.run([program, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_driver_is_told_and_answers_counts_whatever_else_writes_there(
    limiter_build: Path, tmp_path: Path
) -> None:
    driver = tmp_path / "driver/libcuda.so.1"
    driver.parent.mkdir()
    compile_program(driver, limiter_build, ["tests/nullmeanwhile.c"], "-O2", "-shared", "-fPIC")
    container = make_container(tmp_path / "container", limiter_build, driver.parent)
    container.limit((NULL_CARD, 64), context_mib=4)
    container.run(compile_program(tmp_path / "meanwhile", limiter_build, ["tests/meanwhile.c"]), driver)
