"""The limiter's own programs (plugin/limiter/tests), on a driver that answers at once."""

import os
import platform
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from native.limiterkit import (
    CARDS,
    MIB,
    NULL_CARD,
    SOURCES,
    USAGE_BYTES,
    Container,
    compile_program,
    make_container,
    make_null_container,
)
from native.simkit import Child

LIMIT_MIB, CONTEXT_MIB = 64, 4
LEFT = (LIMIT_MIB - CONTEXT_MIB) * MIB
OUT_OF_MEMORY = 2
PARTS_OF_USAGE = ("bytes", "clock", "liveness", "mutex", "process", "unwritable", "usage", "usage_file")

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


def _with_objects(folder: Path, build: Path, *flags: str) -> Container:
    container = make_null_container(folder, build, *flags, objects=True)
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB)
    return container


def test_backing_that_something_else_may_keep_counts_after_its_release(
    tmp_path: Path, limiter_build: Path, programs: Compile
) -> None:
    container = _with_objects(tmp_path, limiter_build)
    exported = programs("exported")
    container.run(exported)
    container.run(exported)  # with the process what it exported counts no more


def test_the_oldest_forms_of_functions_lead_nowhere_past_the_limit(
    tmp_path: Path, limiter_build: Path, programs: Compile
) -> None:
    """Pointers and sizes have 32 bits there; each driver exports them, and a program may call them by name."""
    container = _with_objects(tmp_path, limiter_build)
    container.run(programs("oldest"))
    assert container.counted() == CONTEXT_MIB * MIB


@pytest.mark.parametrize("call", ["bind", "map"])
def test_what_waits_in_the_driver_for_others_keeps_no_other_thread_waiting(
    tmp_path: Path, limiter_build: Path, programs: Compile, call: str
) -> None:
    """As a multicast object, to which nothing can be bound until all its devices are added."""
    _with_objects(tmp_path, limiter_build).run(programs("crowd"), call)


@pytest.mark.parametrize(
    ("flags", "device", "usage_bytes", "answer"),
    [
        (("-DUUID_ERROR=719",), 0, USAGE_BYTES, 719),
        (("-DUUID_ERROR=801",), 0, USAGE_BYTES, OUT_OF_MEMORY),
        (("-DDEVICES=20",), CARDS, USAGE_BYTES, OUT_OF_MEMORY),
        ((), 0, USAGE_BYTES - 1, OUT_OF_MEMORY),
        ((), 0, None, OUT_OF_MEMORY),
    ],
    ids=["after a launch failed", "with a driver too old", "one card too many", "another usage file", "no usage file"],
)
def test_a_card_that_cannot_be_counted_gives_nothing(
    tmp_path: Path,
    limiter_build: Path,
    programs: Compile,
    flags: tuple[str, ...],
    device: int,
    usage_bytes: int | None,
    answer: int,
) -> None:
    container = _with_objects(tmp_path, limiter_build, *flags)
    if usage_bytes is None:
        container.usage.unlink()
    else:
        os.truncate(container.usage, usage_bytes)
    container.run(programs("uncounted"), str(device), str(answer))
    if usage_bytes == USAGE_BYTES and answer == OUT_OF_MEMORY:
        assert container.refused() > 10, "what was refused is told"


def test_who_is_called_back_by_the_driver_may_call_it(
    container: Container, null_driver: Path, programs: Compile
) -> None:
    container.run(programs("callback"), null_driver / "libcuda.so.1")


def test_contexts_that_come_and_go_in_threads_count_while_they_are_there(
    container: Container, programs: Compile
) -> None:
    container.run(programs("contexts"), "4", "9000")  # more than half of the numbers that contexts get
    assert container.counted() == 0


def test_a_card_that_could_not_be_counted_at_first_is_counted_later(container: Container, programs: Compile) -> None:
    container.run(programs("late"))


def test_a_process_that_nobody_may_look_into_counts_itself(container: Container, programs: Compile) -> None:
    assert container.run(programs("undumpable")) == "0\n"


def test_memory_of_another_cards_pool_counts_there(tmp_path: Path, limiter_build: Path, programs: Compile) -> None:
    container = _with_objects(tmp_path, limiter_build, "-DDEVICES=2")
    cards = ((NULL_CARD, LIMIT_MIB), ("GPU-01010101-0101-0101-0101-010101010101", LIMIT_MIB))
    container.limit(*cards, context_mib=CONTEXT_MIB)
    container.run(programs("elsewhere"))


@pytest.mark.parametrize(
    ("mib", "status", "freed"),
    [(LIMIT_MIB - CONTEXT_MIB, 0, LIMIT_MIB - CONTEXT_MIB), (LIMIT_MIB - CONTEXT_MIB + 1, OUT_OF_MEMORY, 0)],
)
def test_a_context_that_came_past_the_limiter_counts_from_the_first_call_in_it(
    container: Container, null_driver: Path, programs: Compile, mib: int, status: int, freed: int
) -> None:
    """As one that a private table brings: as much as any, once, whichever of its threads comes first."""
    told = container.run(programs("brought", "-pthread"), null_driver / "libcuda.so.1", str(mib))
    assert [*map(int, told.split())] == [status, freed]


def test_who_launches_in_a_context_that_ended_hides_no_later_one(
    tmp_path: Path, limiter_build: Path, programs: Compile
) -> None:
    """Four kernels of 5 ms at 10 percent take 150 ms at least: the last one's debt is paid later."""
    container = _with_objects(tmp_path, limiter_build, "-DKERNEL_MS=5")
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB, core=10)
    assert float(container.run(programs("ghost"))) > 100


@pytest.mark.parametrize("opened", ["0", "1"], ids=["first call", "driver open"])
def test_a_constructor_that_calls_the_driver_waits_for_no_thread_that_waits_for_it(
    container: Container, programs: Compile, tmp_path: Path, limiter_build: Path, opened: str
) -> None:
    part = compile_program(tmp_path / "part.so", limiter_build, ["tests/constructor.c"], "-DPART", "-shared", "-fPIC")
    container.run(programs("constructor", "-rdynamic"), part, opened, timeout_s=20)


def test_a_preloaded_library_tells_the_limiter_neither_limits_nor_who_lives(
    container: Container, programs: Compile, tmp_path: Path
) -> None:
    """It answers in the place of libc where the limiter asks, and as libc elsewhere."""
    liar = tmp_path / "liar.so"
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", liar, SOURCES / "tests/liar.c", "-ldl"], check=True)
    wrong = tmp_path / "wrong"
    wrong.write_text(f"edgegpu-limits 1\ncard {NULL_CARD} memory_bytes={1 << 40} context_bytes=0 policy=strict\n")
    lies = {"LD_PRELOAD": str(liar), "LIAR_LIMITER": str(container.libraries), "LIAR_LIMITS": str(wrong)}
    with subprocess.Popen([programs("leaderless")], env=container.environment(), stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holding\n"
        told = subprocess.run(
            [programs("churn"), "0"],
            env={**container.environment(), **lies},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(told.stdout) == LEFT - (CONTEXT_MIB + 50) * MIB
        holder.kill()
    done = subprocess.run(
        [programs("families")], env={**container.environment(), **lies}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_who_leaves_the_driver_by_a_jump_counts_as_before(container: Container, programs: Compile) -> None:
    container.run(programs("jumps"))


def test_each_function_that_launches_is_held_and_sleeps_meanwhile(
    tmp_path: Path, limiter_build: Path, programs: Compile
) -> None:
    """Four kernels of 5 ms at 10 percent take 200 ms; what is in flight when a row is read is the next one's."""
    launches = programs("launches")
    container = _with_objects(tmp_path, limiter_build, "-DKERNEL_MS=5")
    free = [line.split() for line in container.run(launches).splitlines()]
    container.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB, core=10)
    *held, worked = [line.split() for line in container.run(launches).splitlines()]
    assert len(held) == 12
    assert {way: float(ms) for way, ms in held if float(ms) < 100} == {}
    assert sum(float(ms) for _, ms in held) > 12 * 180
    assert worked[0] == "worked"
    assert float(worked[1]) < 10, "percent of a core while it waits"
    assert sum(float(ms) for way, ms in free if way != "worked") < 200


def test_each_family_counts_to_the_byte(container: Container, programs: Compile) -> None:
    container.run(programs("families"))
    assert container.counted() == CONTEXT_MIB * MIB


def test_the_size_of_code_is_known_by_its_first_words(limiter_build: Path, tmp_path: Path) -> None:
    program = compile_program(tmp_path / "images", limiter_build, ["tests/images.c", "cuda/cuda_image.c"])
    done = subprocess.run([program, program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


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


def test_a_module_that_is_compiled_keeps_no_other_program_from_starting(container: Container) -> None:
    with Child(container.libraries) as first, Child(container.libraries) as second:
        first.open_cuda()
        compiling = first.start("cuModuleLoadData", "&ptr", "slow", thread=False)
        time.sleep(1)
        second.open_cuda()
        assert not first.answered(compiling)
        assert first.result(compiling)[0] == 0


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


@pytest.mark.skipif(platform.machine() != "x86_64", reason="it reads the registers of that processor")
def test_a_kill_at_any_instruction_leaves_nothing_behind(container: Container, programs: Compile) -> None:
    points = 200
    assert int(container.run(programs("stepped"), str(points))) > points


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


@pytest.mark.sanitizer
def test_the_parts_by_themselves(limiter_build: Path, tmp_path: Path) -> None:
    common = [
        f"common/{path.name}"
        for path in (SOURCES / "common").glob("*.c")
        if path.name not in {"driver.c", "settings.c"}
    ]
    unit = compile_program(tmp_path / "unit", limiter_build, ["tests/unit.c", *common], "-fsanitize=address,undefined")
    done = subprocess.run([unit, tmp_path], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{USAGE_BYTES}\n"


def test_whatever_another_process_writes_meanwhile_none_is_given_more_than_the_limit(
    limiter_build: Path, tmp_path: Path
) -> None:
    common = [f"common/{name}.c" for name in PARTS_OF_USAGE]
    program = compile_program(tmp_path / "scribbled", limiter_build, ["tests/scribbled.c", *common])
    done = subprocess.run([program, tmp_path], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 1000, "it was given something, again and again"


@pytest.mark.sanitizer
def test_processes_that_take_turns_are_charged_for_all_that_they_use(limiter_build: Path, tmp_path: Path) -> None:
    """However far the clock of the card drifts from the host's, and however late each sees what is over."""
    sources = ["tests/segments.c", "common/cover.c"]
    model = compile_program(tmp_path / "segments", limiter_build, sources, "-fsanitize=address,undefined")
    done = subprocess.run([model], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("sanitizer", "command"),
    [
        ("thread", ("racer", "threads", "4", "500")),
        ("thread", ("contexts", "4", "500")),
        ("address,undefined", ("families",)),
    ],
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
