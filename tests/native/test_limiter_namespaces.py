"""Processes of a container in PID namespaces of their own: what one held counts no more once it has been killed."""

import fcntl
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from native.limiterkit import MIB, NULL_CARD, Container, compile_program, make_null_container
from native.simkit import Child

from edgegpu_plugin.containers.held.ended_slots import free_ended_slots

LIMIT_MIB, CONTEXT_MIB, HELD_MIB = 64, 4, 50
BOTH_MIB = 2 * CONTEXT_MIB + HELD_MIB
OUT_OF_MEMORY = 2

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a new PID namespace needs root")


@pytest.fixture
def container(tmp_path: Path, limiter_build: Path) -> Container:
    made = make_null_container(tmp_path, limiter_build)
    made.limit((NULL_CARD, LIMIT_MIB), context_mib=CONTEXT_MIB)
    return made


@pytest.fixture
def holder(tmp_path: Path, limiter_build: Path) -> Path:
    return compile_program(tmp_path / "leaderless", limiter_build, ["tests/leaderless.c"])


@contextmanager
def holding(container: Container, holder: Path, *by: str) -> Iterator[int]:
    """Run a program that holds memory as the first process of a namespace; its number out here."""
    command = ["unshare", "--pid", "--fork", "--kill-child", *by, str(holder)]
    with subprocess.Popen(command, env=container.environment(), stdout=subprocess.PIPE) as outer:
        try:
            assert outer.stdout is not None
            assert outer.stdout.readline() == b"holding\n"
            yield int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
        finally:
            outer.kill()


def _kill(pid: int) -> None:
    """Kill a process that is no child of this one, and wait until it is gone."""
    watched = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([watched], [], [], 20)[0]
    os.close(watched)


@pytest.fixture
def asker(container: Container) -> Iterator[Child]:
    """Return another process of the container, in its first namespace."""
    with Child(container.libraries) as child:
        child.open_cuda()
        yield child


def test_a_killed_process_of_another_namespace_counts_until_the_plugin_looks(
    container: Container, holder: Path, asker: Child
) -> None:
    with holding(container, holder) as pid:
        assert container.counted() == BOTH_MIB * MIB
        _kill(pid)
    assert asker.call("cuMemAlloc_v2", "&u64", HELD_MIB * MIB)[0] == OUT_OF_MEMORY
    assert free_ended_slots([container.usage], Path("/proc")) == 1
    assert container.counted() == CONTEXT_MIB * MIB
    asker.alloc(HELD_MIB)
    assert free_ended_slots([container.usage], Path("/proc")) == 0


def test_a_living_process_of_another_namespace_keeps_its_slot(container: Container, holder: Path, asker: Child) -> None:
    with holding(container, holder):
        assert free_ended_slots([container.usage], Path("/proc")) == 0
        assert container.counted() == BOTH_MIB * MIB
        assert asker.call("cuMemAlloc_v2", "&u64", HELD_MIB * MIB)[0] == OUT_OF_MEMORY


def test_where_all_were_of_one_namespace_and_are_gone_the_next_one_has_the_room(
    container: Container, holder: Path
) -> None:
    """A sandbox with a namespace for each job: no process of the next one can look after those of the one before."""
    with holding(container, holder) as pid:
        assert free_ended_slots([container.usage], Path("/proc")) == 0
        _kill(pid)
    assert free_ended_slots([container.usage], Path("/proc")) == 1
    with holding(container, holder):
        assert container.counted() == (CONTEXT_MIB + HELD_MIB) * MIB


def test_a_process_without_proc_keeps_its_slot_as_long_as_it_lives(
    container: Container, holder: Path, asker: Child
) -> None:
    by = ("sh", "-c", 'mount -t tmpfs none /proc; "$1"; exit', "sh")
    with holding(container, holder, "--mount", "--propagation", "private", *by) as pid:
        assert free_ended_slots([container.usage], Path("/proc")) == 0
        assert asker.call("cuMemAlloc_v2", "&u64", HELD_MIB * MIB)[0] == OUT_OF_MEMORY
        _kill(pid)
    assert free_ended_slots([container.usage], Path("/proc")) == 1
    asker.alloc(HELD_MIB)


def test_of_processes_without_proc_those_that_have_ended_count_no_more(container: Container, holder: Path) -> None:
    by = ("--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs none /proc; "$1"; exit', "sh")
    with holding(container, holder, *by) as pid:
        assert free_ended_slots([container.usage], Path("/proc")) == 0
        assert container.counted() == (CONTEXT_MIB + HELD_MIB) * MIB
        _kill(pid)
    assert free_ended_slots([container.usage], Path("/proc")) == 1


def test_while_somebody_may_be_taking_a_slot_none_is_freed(container: Container, holder: Path, asker: Child) -> None:
    with holding(container, holder) as pid:
        _kill(pid)
    with container.usage.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert free_ended_slots([container.usage], Path("/proc")) == 0
    assert free_ended_slots([container.usage], Path("/proc")) == 1
    asker.alloc(HELD_MIB)
