"""Processes that are checkpointed and restored, through the limiter: what one has is given and taken all at once."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from native.limiterkit import MIB, Container, compile_program, make_container
from native.simkit import Child

from edgegpu_plugin.containers.usage_file import load_usage
from edgegpu_sim.driver import SimCard, SimDriver, SimVersions, make_card

LIMIT_MIB, CONTEXT_MIB, HELD_MIB = 1024, 100, 500
OUT_OF_MEMORY, INVALID, ILLEGAL_STATE, NO_PERMISSION = 2, 1, 401, 800
CHECKPOINTED, LOCKED = 2, 1
OWN_STORAGES = ("x" * 8 + "\0" * 56, "\0" * 56 + "x" * 8)
"""Arguments of a checkpoint that are not all 0: the caller brings a storage of its own, or what nobody knows yet."""

Start = Callable[[], Child]


@pytest.fixture
def card() -> SimCard:
    return make_card(0, "Tesla T4", 8192)


@pytest.fixture
def driver(tmp_path: Path, card: SimCard, simdriver_build: Path) -> SimDriver:
    versions = SimVersions(cuda="12.8", context_mib=CONTEXT_MIB)
    return SimDriver.create(tmp_path / "box", [card], build=simdriver_build, versions=versions)


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path, driver: SimDriver, card: SimCard) -> Container:
    made = make_container(tmp_path / "container", limiter_build, driver.libraries)
    made.limit((card, LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


@pytest.fixture
def start(container: Container) -> Iterator[Start]:
    """Starts processes in the container, each with a context, and ends them with the test."""
    with ExitStack() as stack:

        def begin() -> Child:
            process = stack.enter_context(Child(container.libraries))
            process.open_cuda()
            return process

        yield begin


@pytest.fixture
def held(start: Start) -> Child:
    process = start()
    process.alloc(HELD_MIB)
    return process


@pytest.fixture
def other(start: Start) -> Child:
    return start()


def _go(process: Child, what: str, pid: int, args: object = 0) -> int:
    (status,) = process.call(f"cuCheckpointProcess{what}", pid, args)
    return int(status)


def _put_aside(process: Child, pid: int, args: object = 0) -> None:
    assert _go(process, "Lock", pid) == 0
    assert _go(process, "Checkpoint", pid, args) == 0


def _state(process: Child, pid: int) -> int:
    status, state = process.call("cuCheckpointProcessGetState", pid, "&int")
    assert status == 0
    return int(state)


def _alloc(process: Child, mib: int) -> int:
    return int(process.call("cuMemAlloc_v2", "&u64", mib * MIB)[0])


def _counted_mib(container: Container, driver: SimDriver, card: SimCard) -> int:
    """Return what counts, by the limiter's tests, by the plugin and by the driver, which must agree."""
    counts = load_usage(container.usage)
    assert counts is not None
    mib = container.counted() // MIB
    assert sum(counts.bytes.values()) == container.counted()
    assert driver.used_mib(card.uuid) == mib
    return mib


def test_a_checkpoint_gives_all_that_a_process_has_and_a_restore_takes_it_back(
    held: Child, other: Child, container: Container, driver: SimDriver, card: SimCard
) -> None:
    assert _counted_mib(container, driver, card) == HELD_MIB + 2 * CONTEXT_MIB
    _put_aside(other, held.pid)
    assert _counted_mib(container, driver, card) == CONTEXT_MIB
    at = other.alloc(LIMIT_MIB - CONTEXT_MIB)
    assert _alloc(other, 1) == OUT_OF_MEMORY
    refused = container.refused()
    assert _go(other, "Restore", held.pid) == OUT_OF_MEMORY
    assert (_state(other, held.pid), container.refused()) == (CHECKPOINTED, refused + 1)
    assert other.call("cuMemFree_v2", at) == [0]
    assert _go(other, "Restore", held.pid) == 0
    assert _go(other, "Unlock", held.pid) == 0
    assert _counted_mib(container, driver, card) == HELD_MIB + 2 * CONTEXT_MIB
    left = LIMIT_MIB - HELD_MIB - 2 * CONTEXT_MIB
    assert _alloc(other, left + 1) == OUT_OF_MEMORY
    held.alloc(left)
    assert _counted_mib(container, driver, card) == LIMIT_MIB


def test_what_fits_to_the_byte_comes_back_and_one_byte_more_does_not(held: Child, other: Child) -> None:
    _put_aside(other, held.pid)
    other.alloc(LIMIT_MIB - HELD_MIB - 2 * CONTEXT_MIB)
    status, at = other.call("cuMemAlloc_v2", "&u64", 1)
    assert status == 0
    assert _go(other, "Restore", held.pid) == OUT_OF_MEMORY
    assert other.call("cuMemFree_v2", at) == [0]
    assert _go(other, "Restore", held.pid) == 0


def test_a_process_puts_itself_aside_and_comes_back(
    held: Child, other: Child, container: Container, driver: SimDriver, card: SimCard
) -> None:
    for _ in range(3):
        _put_aside(held, held.pid)
        at = other.alloc(LIMIT_MIB - CONTEXT_MIB)
        assert _go(held, "Restore", held.pid) == OUT_OF_MEMORY
        assert other.call("cuMemFree_v2", at) == [0]
        assert _go(held, "Restore", held.pid) == 0
        assert _go(held, "Unlock", held.pid) == 0
        assert _counted_mib(container, driver, card) == HELD_MIB + 2 * CONTEXT_MIB


def test_who_is_put_aside_waits_and_is_in_no_list(held: Child, other: Child) -> None:
    _put_aside(other, held.pid)
    waiting = held.start("cuMemAlloc_v2", "&u64", MIB, thread=False)
    other.call("nvmlInit")
    listed = other.call("nvmlDeviceGetComputeRunningProcesses", ["dev", 0])
    assert [row["pid"] for row in listed] == [other.pid]
    assert _go(other, "Restore", held.pid) == 0
    assert not held.answered(waiting)
    assert _go(other, "Unlock", held.pid) == 0
    assert held.result(waiting)[0] == 0


@pytest.mark.parametrize("args", OWN_STORAGES)
def test_with_a_storage_of_the_callers_all_stays_counted(
    held: Child, other: Child, container: Container, args: str
) -> None:
    counted = container.counted()
    _put_aside(other, held.pid, args)
    assert container.counted() == counted
    assert _alloc(other, LIMIT_MIB - HELD_MIB) == OUT_OF_MEMORY
    assert _go(other, "Restore", held.pid) == 0
    assert container.counted() == counted


@pytest.mark.parametrize("what", ["Checkpoint", "Restore"])
def test_what_the_driver_refuses_changes_nothing(
    held: Child, other: Child, container: Container, driver: SimDriver, card: SimCard, what: str
) -> None:
    counted = _counted_mib(container, driver, card)
    assert _go(other, what, held.pid) == ILLEGAL_STATE
    assert _counted_mib(container, driver, card) == counted
    if what == "Restore":
        _put_aside(other, held.pid)
    driver.fail(f"cuCheckpointProcess{what}", NO_PERMISSION)
    before = _counted_mib(container, driver, card)
    assert _go(other, what, held.pid) == NO_PERMISSION
    assert _counted_mib(container, driver, card) == before
    driver.clear()
    assert _go(other, "Lock" if what == "Checkpoint" else what, held.pid) == 0
    assert _counted_mib(container, driver, card) == counted


def test_a_process_that_ends_aside_leaves_a_slot_in_which_another_counts(
    held: Child, other: Child, start: Start, container: Container
) -> None:
    _put_aside(other, held.pid)
    held.kill()
    start().alloc(HELD_MIB)
    assert container.counted() == (HELD_MIB + 2 * CONTEXT_MIB) * MIB
    assert _alloc(other, LIMIT_MIB - HELD_MIB) == OUT_OF_MEMORY


def test_a_pid_that_counts_nowhere_is_the_drivers_to_answer(other: Child, container: Container) -> None:
    counted = container.counted()
    for what in ("Checkpoint", "Restore"):
        assert _go(other, what, 1) == INVALID
    assert container.counted() == counted


@pytest.mark.parametrize("what", ["Checkpoint", "Restore"])
def test_a_threads_number_stands_for_its_process(
    held: Child, other: Child, container: Container, driver: SimDriver, card: SimCard, what: str
) -> None:
    """As for the driver: what is restored by it counts as well."""
    driver.hang("cuDeviceGetName")
    held.start("cuDeviceGetName", "&buffer", 64, 0)  # in a thread, which stays
    held.call("cuCtxSynchronize")
    thread = next(int(one.name) for one in Path(f"/proc/{held.pid}/task").iterdir() if int(one.name) != held.pid)
    by = {"Checkpoint": held.pid, "Restore": held.pid} | {what: thread}
    assert _go(other, "Lock", held.pid) == 0
    assert _go(other, "Checkpoint", by["Checkpoint"]) == 0
    assert _counted_mib(container, driver, card) == CONTEXT_MIB
    at = other.alloc(LIMIT_MIB - CONTEXT_MIB)
    assert _go(other, "Restore", by["Restore"]) == OUT_OF_MEMORY
    assert other.call("cuMemFree_v2", at) == [0]
    assert _go(other, "Restore", by["Restore"]) == 0
    assert _counted_mib(container, driver, card) == HELD_MIB + 2 * CONTEXT_MIB


def test_what_is_aside_itself_brings_another_back(held: Child, other: Child) -> None:
    """Two models that take turns, each too large to be there beside the other."""
    _put_aside(held, held.pid)
    other.alloc(LIMIT_MIB - CONTEXT_MIB - HELD_MIB)
    _put_aside(other, other.pid)
    assert _go(other, "Restore", held.pid) == 0
    assert _go(held, "Restore", other.pid) == OUT_OF_MEMORY
    _put_aside_again = _go(held, "Checkpoint", held.pid)
    assert (_put_aside_again, _go(held, "Restore", other.pid)) == (0, 0)


def test_who_is_aside_is_not_asked_for_room_which_it_would_wait_for(held: Child, other: Child) -> None:
    """The driver has a locked process wait in each call by which room is made."""
    status, at = held.call("cuMemAllocAsync", "&u64", MIB, 0)
    assert status == 0
    assert held.call("cuMemFreeAsync", at, 0) == [0]
    _put_aside(held, held.pid)
    other.alloc(LIMIT_MIB - CONTEXT_MIB)
    assert _go(held, "Restore", held.pid) == OUT_OF_MEMORY
    assert _go(other, "Restore", held.pid) == OUT_OF_MEMORY


@pytest.mark.parametrize("what", ["Checkpoint", "Restore"])
def test_who_is_killed_while_the_driver_works_keeps_nobody_waiting(
    held: Child, other: Child, start: Start, container: Container, driver: SimDriver, what: str
) -> None:
    assert _go(other, "Lock", held.pid) == 0
    if what == "Restore":
        assert _go(other, "Checkpoint", held.pid) == 0
    driver.hang(f"cuCheckpointProcess{what}")
    waiting = other.start(f"cuCheckpointProcess{what}", held.pid, 0)
    time.sleep(0.2)
    assert not other.answered(waiting)
    other.kill()
    driver.clear()
    third = start()
    assert _go(third, what, held.pid) == 0
    counted = 2 * CONTEXT_MIB + HELD_MIB if what == "Restore" else CONTEXT_MIB
    assert container.counted() == counted * MIB


def test_what_the_driver_counts_beyond_takes_room_from_what_comes_back(
    held: Child, other: Child, container: Container, card: SimCard
) -> None:
    _put_aside(other, held.pid)
    beyond = LIMIT_MIB - HELD_MIB - 2 * CONTEXT_MIB
    container.limit((card, LIMIT_MIB), context_mib=CONTEXT_MIB, uncounted_mib=beyond + 1)
    time.sleep(0.3)
    assert _go(other, "Restore", held.pid) == OUT_OF_MEMORY
    container.limit((card, LIMIT_MIB), context_mib=CONTEXT_MIB, uncounted_mib=beyond)
    time.sleep(0.3)
    assert _go(other, "Restore", held.pid) == 0


def test_of_several_cards_each_must_have_room(
    tmp_path: Path, limiter_build: Path, simdriver_build: Path, two_cards: list[SimCard]
) -> None:
    driver = SimDriver.create(tmp_path / "box", two_cards, build=simdriver_build, versions=SimVersions())
    container = make_container(tmp_path / "container", limiter_build, driver.libraries)
    container.limit(*((card, LIMIT_MIB) for card in two_cards))
    with Child(container.libraries) as first, Child(container.libraries) as second:
        for process in (first, second):
            for index in (0, 1):
                process.open_cuda(index)
                if process is first:
                    process.alloc(HELD_MIB)
        _put_aside(second, first.pid)
        at = second.alloc(LIMIT_MIB)  # of the second card
        assert _go(second, "Restore", first.pid) == OUT_OF_MEMORY
        assert second.call("cuMemFree_v2", at) == [0]
        assert _go(second, "Restore", first.pid) == 0
        assert container.counted() == 2 * HELD_MIB * MIB


def test_room_is_made_for_what_comes_back(held: Child, other: Child) -> None:
    """What a pool keeps unused is given up before a restore is refused, as before any refusal."""
    _put_aside(other, held.pid)
    status, at = other.call("cuMemAllocAsync", "&u64", (LIMIT_MIB - CONTEXT_MIB) * MIB, 0)
    assert status == 0
    assert _go(other, "Restore", held.pid) == OUT_OF_MEMORY
    assert other.call("cuMemFreeAsync", at, 0) == [0]
    assert _go(other, "Restore", held.pid) == 0


def test_without_a_usage_file_nothing_comes_back(held: Child, container: Container, other: Child) -> None:
    """A process that cannot count another one brings nothing of it onto the card."""
    _put_aside(other, held.pid)
    usage = container.usage.rename(container.usage.with_name("elsewhere"))
    with Child(container.libraries) as late:
        assert late.call("cuInit", 0) == [0]
        assert _go(late, "Restore", held.pid) == OUT_OF_MEMORY
    usage.rename(container.usage)
    assert (_state(other, held.pid), _go(other, "Restore", held.pid)) == (CHECKPOINTED, 0)
    assert _state(other, held.pid) == LOCKED


@pytest.mark.parametrize("rounds", [3000])
def test_processes_that_put_another_aside_and_take_memory_meanwhile_never_pass_the_limit(
    tmp_path: Path, limiter_build: Path, simdriver_build: Path, rounds: int
) -> None:
    """The card is as large as the limit: the driver has to refuse nothing that the limiter has let through."""
    card = make_card(0, "Tesla T4", LIMIT_MIB)
    driver = SimDriver.create(
        tmp_path / "box", [card], build=simdriver_build, versions=SimVersions(context_mib=CONTEXT_MIB)
    )
    container = make_container(tmp_path / "container", limiter_build, driver.libraries)
    container.limit((card, LIMIT_MIB), context_mib=CONTEXT_MIB)
    program = compile_program(tmp_path / "aside", limiter_build, ["tests/aside.c"])
    told = int(container.run(program, str(LIMIT_MIB // 4), str(LIMIT_MIB), str(rounds)))
    assert told == container.refused()
    assert told > rounds // 100, "they were in each other's way"
