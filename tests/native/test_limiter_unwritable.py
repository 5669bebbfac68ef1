"""A container whose programs may not write its usage file, as SELinux can have it: told in words."""

import os
import subprocess
from pathlib import Path

import pytest
from native.limiterkit import NULL_CARD, Container, compile_program, make_container

WITHOUT_RIGHTS = (
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
)
"""As root: without the capabilities by which it may write every file."""
SAID = (
    "edgegpu: programs of this container get no card memory: {} cannot be written (error 13); SELinux or a "
    "user namespace (hostUsers: false) can be why\n"
)


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path) -> Container:
    (tmp_path / "driver").mkdir()
    library = tmp_path / "driver/libcuda.so.1"
    compile_program(library, limiter_build, ["tests/nulldriver.c"], "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    made = make_container(tmp_path / "container", limiter_build, library.parent)
    made.limit((NULL_CARD, 64))
    return made


@pytest.fixture
def program(tmp_path: Path, limiter_build: Path) -> Path:
    return compile_program(tmp_path / "unwritable", limiter_build, ["tests/unwritable.c"])


def _run(container: Container, program: Path, *words: str) -> tuple[int, str]:
    prefix = WITHOUT_RIGHTS if os.geteuid() == 0 else ()
    done = subprocess.run(
        [*prefix, program, *words], env=container.environment(), stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


def test_a_program_says_once_why_it_gets_no_memory(container: Container, program: Path) -> None:
    container.usage.chmod(0o444)
    assert _run(container, program) == (0, SAID.format(container.usage))
    container.usage.chmod(0o666)
    assert _run(container, program) == (1, "")  # its call for a context succeeds


def test_a_program_that_has_something_else_in_the_place_of_stderr_is_told_nothing(
    container: Container, program: Path, tmp_path: Path
) -> None:
    container.usage.chmod(0o444)
    data = tmp_path / "data"
    assert _run(container, program, str(data)) == (0, "")
    assert data.read_bytes() == b""
