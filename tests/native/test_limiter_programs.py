"""The limiter's own programs (plugin/limiter/tests), on a driver that answers at once."""

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from native.limiterkit import MIB, NULL_CARD, SOURCES, USAGE_BYTES, Container, compile_program, make_container

LIMIT_MIB, CONTEXT_MIB = 64, 4
LEFT = (LIMIT_MIB - CONTEXT_MIB) * MIB

Compile = Callable[..., Path]


@pytest.fixture(scope="module")
def programs(limiter_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Compile:
    folder = tmp_path_factory.mktemp("programs")

    def make(name: str, *flags: str | Path) -> Path:
        out = folder / name
        return out if out.exists() else compile_program(out, limiter_build, [f"tests/{name}.c"], *flags)

    return make


@pytest.fixture(scope="module")
def null_driver(limiter_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nulldriver")
    compile_program(folder / "libcuda.so.1", limiter_build, ["tests/nulldriver.c"], "-O2", "-shared", "-fPIC")
    return folder


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path, null_driver: Path) -> Container:
    made = make_container(tmp_path / "container", limiter_build, null_driver)
    made.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


def test_each_family_counts_to_the_byte(container: Container, programs: Compile) -> None:
    container.run(programs("families"))
    assert container.counted() == CONTEXT_MIB * MIB


def test_no_way_to_the_functions_leads_past_the_limiter(container: Container, programs: Compile) -> None:
    container.run(programs("ways"))


def test_a_static_program_that_loads_the_driver_is_held(container: Container, tmp_path: Path) -> None:
    """Such a program has a loader of its own, which no LD_PRELOAD reaches."""
    source, program = SOURCES / "tests/loader.c", tmp_path / "loader"
    subprocess.run(["cc", "-O1", "-w", "-static", "-o", program, source, "-ldl"], capture_output=True, check=True)
    assert container.run(program, str(LEFT), "1") == "0 2\n"
    assert container.run(program, str(LEFT + 1)) == "2\n"


def test_a_program_that_links_the_driver_is_held(container: Container, programs: Compile) -> None:
    container.run(programs("linked", container.libraries / "libcuda.so.1"))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_one_alone_gets_the_last_byte(container: Container, programs: Compile, kind: str) -> None:
    rounds = 3000
    assert container.run(programs("racer"), kind, "4", str(rounds)) == f"{rounds}\n"


def test_a_process_whose_first_thread_ended_still_counts(container: Container, programs: Compile) -> None:
    with subprocess.Popen([programs("leaderless")], env=container.environment(), stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holding\n"
        stat = Path(f"/proc/{holder.pid}/stat")
        while ") Z " not in stat.read_text():
            time.sleep(0.01)
        assert int(container.run(programs("churn"), "100")) == LEFT - (CONTEXT_MIB + 50) * MIB
        holder.kill()
    assert container.run(programs("churn"), "0") == f"{LEFT}\n"


def test_ten_million_allocations_leave_no_byte_behind(container: Container, programs: Compile) -> None:
    assert container.run(programs("churn", "-O2"), "20000000") == f"{LEFT}\n"  # each second round frees
    assert container.counted() == CONTEXT_MIB * MIB


def test_killed_processes_leave_nothing_behind(container: Container, programs: Compile) -> None:
    churn, seed = programs("churn"), random.randrange(2**32)
    draw = random.Random(seed)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(120):
            while len(running) < 4:
                running.append(subprocess.Popen([churn], env=container.environment()))
            time.sleep(draw.uniform(0, 0.02))
            assert container.counted() <= LIMIT_MIB * MIB, seed
            victim = running.pop(draw.randrange(len(running)))
            victim.send_signal(signal.SIGKILL)
            assert victim.wait() == -signal.SIGKILL, f"it ended by itself (seed {seed})"
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert container.run(churn, "0") == f"{LEFT}\n", seed


def test_the_parts_by_themselves(limiter_build: Path, tmp_path: Path) -> None:
    common = [
        f"common/{path.name}"
        for path in (SOURCES / "common").glob("*.c")
        if path.name not in {"driver.c", "settings.c"}
    ]
    unit = compile_program(tmp_path / "unit", limiter_build, ["tests/unit.c", *common], "-fsanitize=address,undefined")
    done = subprocess.run([unit, tmp_path], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{USAGE_BYTES}\n"


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("sanitizer", "command"),
    [("thread", ("racer", "threads", "4", "500")), ("address,undefined", ("families",))],
)
def test_under_a_sanitizer(
    tmp_path: Path, limiter_build: Path, null_driver: Path, sanitizer: str, command: tuple[str, ...]
) -> None:
    flag = f"-fsanitize={sanitizer}"
    build = tmp_path / "build"
    make: list[str | Path] = ["make", "-s", "-C", SOURCES, f"OUT={build}", "CC=cc", f"EXTRA={flag}"]
    made = subprocess.run(make, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    container = make_container(tmp_path / "container", build, null_driver)
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB)
    program = compile_program(tmp_path / "program", limiter_build, [f"tests/{command[0]}.c"], flag)
    container.run(program, *command[1:])
