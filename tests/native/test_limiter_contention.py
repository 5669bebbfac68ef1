"""Threads and processes that reserve memory at once wait for each other, and none is told that there is no memory."""

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from mmap import mmap
from pathlib import Path

import pytest
from native.limiterkit import MIB, NULL_CARD, Container, compile_program, make_null_container
from native.simkit import Child

LOCK_AT = 16
"""Where the lock of a usage file stands: whose it is (plugin/limiter/common/usage.h)."""
HIGH_AT = 32
"""Where the number of its slots stands that may be taken."""
OOM = 2
STOPPED_S = 4
"""For so long a holder that does not let go is waited for (WAIT_MS)."""


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path) -> Container:
    made = make_null_container(tmp_path, limiter_build)
    made.limit((NULL_CARD, 1024), context_mib=1)
    return made


def _holder(turn: int) -> bytes:
    """Return what the lock says while this process, which has the first slot, holds it in that turn."""
    return struct.pack("=Q", 1 << 16 | turn % 64 << 10 | 1)


@contextmanager
def _holding(container: Container) -> Iterator[mmap]:
    """Take the first slot for this process; the usage file, in which it can hold the lock."""
    with container.usage.open("r+b") as file, mmap(file.fileno(), 0) as usage:
        container.fill_slots(1)
        yield usage


@contextmanager
def _process(container: Container) -> Iterator[Child]:
    with Child(container.libraries) as process:
        process.open_cuda()
        yield process


def _alloc(process: Child) -> int:
    return int(process.call("cuMemAlloc_v2", "&u64", MIB)[0])


def test_who_waits_for_one_after_the_other_is_not_refused(container: Container) -> None:
    """All of them together hold the lock for longer than one that is stopped is waited for.

    Before a refusal the limiter reaps and tries once more: it refuses after twice `STOPPED_S`, where it does not see
    that the turns change.
    """
    with _holding(container) as usage, _process(container) as process:
        usage[LOCK_AT : LOCK_AT + 8] = _holder(0)
        call = process.start("cuMemAlloc_v2", "&u64", MIB, thread=False)
        until, turn = time.monotonic() + 3 * STOPPED_S, 0
        while time.monotonic() < until:
            assert not process.answered(call)
            turn += 1
            usage[LOCK_AT : LOCK_AT + 8] = _holder(turn)
            threading.Event().wait(0.2)
        usage[LOCK_AT : LOCK_AT + 8] = bytes(8)
        assert process.result(call)[0] == 0


def test_a_stopped_holder_is_waited_for_once(container: Container) -> None:
    with _holding(container) as usage, _process(container) as process:
        usage[LOCK_AT : LOCK_AT + 8] = _holder(1)
        began = time.monotonic()
        assert _alloc(process) == OOM
        first = time.monotonic() - began
        assert [_alloc(process) for _ in range(5)] == [OOM] * 5
        assert time.monotonic() - began - first < first / 2
        usage[LOCK_AT : LOCK_AT + 8] = _holder(2)  # it has let go, and holds it again
        call = process.start("cuMemAlloc_v2", "&u64", MIB, thread=False)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            assert not process.answered(call)
        usage[LOCK_AT : LOCK_AT + 8] = bytes(8)
        assert process.result(call)[0] == 0


def test_many_threads_of_many_processes_get_what_fits(
    container: Container, tmp_path: Path, limiter_build: Path
) -> None:
    program = compile_program(tmp_path / "contention", limiter_build, ["tests/contention.c"], "-O2")
    container.run(program, "64", "8", "3", timeout_s=300)
    assert container.refused() == 0


def _high(container: Container) -> int:
    """Return the number of slots that are looked at."""
    return int(struct.unpack_from("=I", container.usage.read_bytes(), HIGH_AT)[0])


def test_slots_of_processes_that_ended_are_looked_at_no_more(container: Container) -> None:
    with _process(container) as process:
        with ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(_process(container))
            assert _high(container) == 7
        until = time.monotonic() + 10
        while _high(container) != 1:
            assert time.monotonic() < until
            assert process.call("cuMemGetInfo_v2", "&u64", "&u64")[0] == 0
        with _process(container):
            assert _high(container) == 2
            assert container.counted() == 2 * MIB
