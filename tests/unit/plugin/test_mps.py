"""MPS on a node: what cards it needs, what the daemon is started with, who is no client, and what is told of it."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kits.mps import MpsControl
from pydantic import ValidationError

from edgegpu_core.inventory import Card
from edgegpu_plugin.cards.nvml_library import CardProcess
from edgegpu_plugin.config.schema import IsolationSection
from edgegpu_plugin.containers.cgroups import CgroupOwner
from edgegpu_plugin.containers.mps.clients import MpsClients
from edgegpu_plugin.containers.mps.daemon import MpsDaemon, can_share, card_problem

CARD = Card(uuid="GPU-1", index=0, name="Tesla T4", memory_mib=8192, pci="1", minor=0, capability=(7, 5))
UID = "3c8f2c55-0d0e-4a57-9a0e-1f8d2f7c9b11"
KEY = (UID, "main")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a path that leaves room for a socket's."""
    with tempfile.TemporaryDirectory(prefix="mps") as name:
        yield Path(name)


@pytest.fixture
def root(folder: Path, simdriver_build: Path) -> Path:
    """Return a driver's root with the control program of MPS."""
    (folder / "usr/bin").mkdir(parents=True)
    shutil.copy(simdriver_build / "nvidia-cuda-mps-control", folder / "usr/bin")
    return folder


@pytest.fixture
def daemon(folder: Path) -> MpsDaemon:
    times = iter(range(0, 40_000, 40))
    return MpsDaemon(root=folder, run=folder / "run", proc=folder / "proc", clock=lambda: next(times))


@pytest.fixture
def running(root: Path, daemon: MpsDaemon) -> Iterator[MpsControl]:
    """Run the daemon as its unit does, with what `prepare` wrote."""
    daemon.proc.mkdir()
    daemon.prepare(wanted=True)
    with MpsControl(root / "usr/bin/nvidia-cuda-mps-control", daemon.pipe) as control:
        control.start()
        yield control


@pytest.mark.parametrize(
    ("card", "says", "shares"),
    [
        (CARD, "", True),
        (replace(CARD, capability=(7, 0)), "", True),
        (replace(CARD, capability=(6, 1), name="Tesla P4"), "Tesla P4) has compute capability 6.1", False),
        (replace(CARD, capability=None), "does not say which compute capability card 0 has", False),
        (replace(CARD, mig=1, parent="GPU-0"), "card 0:1 is a MIG device", False),
        (replace(CARD, exclusive=True), "sudo nvidia-smi -i GPU-1 -c DEFAULT", True),
    ],
    ids=["T4", "Volta", "Pascal", "unknown", "MIG", "exclusive"],
)
def test_what_a_card_needs(card: Card, says: str, *, shares: bool) -> None:
    assert says in card_problem(card)
    assert bool(card_problem(card)) == bool(says)
    assert can_share(card) is shares


def test_the_unit_starts_the_drivers_own_program_in_folders_of_roots(root: Path, daemon: MpsDaemon) -> None:
    daemon.prepare(wanted=True)
    told = dict(line.split("=", 1) for line in daemon.settings.read_text().splitlines())
    assert told["PROGRAM"] == str(root / "usr/bin/nvidia-cuda-mps-control")
    assert told["CUDA_MPS_PIPE_DIRECTORY"] == str(daemon.pipe)
    assert told["CUDA_MPS_LOG_DIRECTORY"] == str(daemon.log)
    assert [oct(one.stat().st_mode & 0o777) for one in (daemon.pipe, daemon.log)] == ["0o755", "0o700"]
    daemon.prepare(wanted=False)
    assert not daemon.settings.exists()


def test_without_the_program_nothing_is_started_and_the_remedy_is_named(daemon: MpsDaemon) -> None:
    daemon.prepare(wanted=True)
    assert not daemon.settings.exists()
    assert "nvidia-compute-utils" in daemon.problem([CARD])


def test_a_program_that_others_can_replace_is_none(root: Path, daemon: MpsDaemon) -> None:
    (root / "usr/bin/nvidia-cuda-mps-control").chmod(0o777)
    daemon.prepare(wanted=True)
    assert not daemon.settings.exists()


def test_a_daemon_that_answers_is_no_problem_and_one_that_is_gone_is(daemon: MpsDaemon, running: MpsControl) -> None:
    assert daemon.problem([CARD]) == ""
    assert "compute capability 6.1" in daemon.problem([CARD, replace(CARD, capability=(6, 1))])
    running.kill()
    assert "systemctl status edgegpu-mps.service" in daemon.problem([CARD])


def test_a_foreign_daemon_is_told(root: Path, daemon: MpsDaemon, running: MpsControl) -> None:
    program = root / "usr/bin/nvidia-cuda-mps-control"

    def process(pid: int, *, pipe: Path, words: tuple[str, ...]) -> None:
        place = daemon.proc / str(pid)
        place.mkdir()
        (place / "exe").symlink_to(program)
        (place / "cmdline").write_bytes("\0".join((program.name, *words)).encode())
        (place / "environ").write_bytes(f"A=b\0CUDA_MPS_PIPE_DIRECTORY={pipe}\0".encode())

    process(7, pipe=daemon.pipe, words=("-f",))
    process(8, pipe=Path("/tmp/nvidia-mps"), words=())  # noqa: S108  (somebody asks a daemon)
    assert daemon.problem([CARD]) == ""
    process(9, pipe=Path("/tmp/nvidia-mps"), words=("-d",))  # noqa: S108
    assert "another MPS daemon runs on this machine (process 9)" in daemon.problem([CARD])
    del running


def test_a_daemon_is_let_go_only_when_it_has_no_client(daemon: MpsDaemon, running: MpsControl) -> None:
    with running.client(30) as client:
        assert daemon.clients() == frozenset({client.pid})
        daemon.end_unneeded()
        assert running.is_running
    running.wait_for_clients(0)
    daemon.end_unneeded()
    running.wait_for_end()
    daemon.end_unneeded()  # nothing is there any more
    assert daemon.clients() is None


def test_large_logs_are_cut_to_their_end(daemon: MpsDaemon) -> None:
    daemon.log.mkdir(parents=True)
    small, large = daemon.log / "control.log", daemon.log / "server.log"
    small.write_bytes(b"x" * 4096)
    large.write_bytes(b"x" * (5 << 20) + b"the last line\n")
    with large.open("ab") as log:
        daemon.trim_logs()
        assert (small.stat().st_size, large.stat().st_size) == (4096, 64 << 10)
        log.write(b"one more\n")
    assert large.read_bytes().endswith(b"xthe last line\none more\n")


def test_a_process_that_is_no_client_is_told_at_the_second_look(daemon: MpsDaemon, running: MpsControl) -> None:
    clients = MpsClients(daemon=daemon)

    def look(*pids: int) -> bool:
        for pid in pids:
            (daemon.proc / str(pid)).mkdir(exist_ok=True)
            (daemon.proc / str(pid) / "cgroup").write_text(f"0::/kubepods/besteffort/pod{UID}/{'ab' * 32}\n")
        return clients.look({CARD.uuid: [CardProcess(pid, 1) for pid in pids]}, [KEY], _key)

    with running.client(30) as client:
        assert not look(client.pid)
        assert not look(client.pid)
        assert clients.reason(KEY) == ""
        assert not look(client.pid, 77)
        assert look(client.pid, 77)
        assert clients.reason(KEY) == "mps: process 77 is no client of MPS: its compute is held by time"
        assert look(client.pid)
        assert clients.reason(KEY) == ""


def test_a_daemon_is_asked_only_about_processes_that_it_did_not_name(folder: Path) -> None:
    """The real one writes four to five lines for each question."""
    program, asked = folder / "usr/bin/nvidia-cuda-mps-control", folder / "asked"
    program.parent.mkdir(parents=True)
    answers = "case $asked in get_server_list) echo 4711 ;; get_client_list*) echo 50; echo 51 ;; *) echo 100.0 ;; esac"
    program.write_text(f"#!/bin/sh\nread -r asked; echo $asked >> {asked}\n{answers}\n")
    program.chmod(0o755)
    now = [1000.0]
    daemon = MpsDaemon(root=folder, run=folder / "run", proc=folder / "proc", clock=lambda: now[0])
    daemon.pipe.mkdir(parents=True)
    clients = MpsClients(daemon=daemon)

    def process(pid: int, *, start: int = 7) -> None:
        (daemon.proc / str(pid)).mkdir(parents=True, exist_ok=True)
        (daemon.proc / str(pid) / "cgroup").write_text(f"0::/kubepods/besteffort/pod{UID}/{'ab' * 32}\n")
        (daemon.proc / str(pid) / "stat").write_text(f"{pid} (a) b) S {'0 ' * 18}{start} 0 0\n")

    def questions(*pids: int, keys: tuple[tuple[str, str], ...] = (KEY,)) -> int:
        """How many questions a look at these processes takes."""
        asked.write_text("")
        clients.look({CARD.uuid: [CardProcess(pid, 1) for pid in pids]}, keys, _key)
        return len(asked.read_text().splitlines())

    for pid in (50, 51, 77):
        process(pid)
    assert [questions(50), questions(50), questions(50, 51), questions(50, 51)] == [2, 0, 2, 0]
    assert [questions(50, 77), questions(50, 77), questions(50, 77)] == [2, 2, 0]  # told at the second look
    assert clients.reason(KEY) != ""
    now[0] += 31.0
    assert [questions(50, 77), questions(50, 77)] == [2, 0]
    assert clients.reason(KEY) != ""
    process(50, start=8)  # another process by now
    assert questions(50) == 2
    assert [questions(), questions(77, keys=())] == [0, 0]


def test_an_answer_counts_while_the_process_of_the_daemon_is_there(folder: Path, root: Path) -> None:
    program, asked = root / "usr/bin/nvidia-cuda-mps-control", folder / "asked"
    program.write_text(f"#!/bin/sh\nread -r asked; echo $asked >> {asked}; echo 100.0\n")
    now = [1000.0]
    daemon = MpsDaemon(root=folder, run=folder / "run", proc=folder / "proc", clock=lambda: now[0])
    daemon.pipe.mkdir(parents=True)
    place = daemon.proc / "7"
    place.mkdir(parents=True)
    (place / "exe").symlink_to(program)
    (place / "cmdline").write_bytes(b"x\0-f\0")
    (place / "environ").write_bytes(f"CUDA_MPS_PIPE_DIRECTORY={daemon.pipe}\0".encode())

    def questions(after_s: float) -> int:
        asked.write_text("")
        now[0] += after_s
        assert daemon.problem([CARD]) == ""
        return len(asked.read_text().splitlines())

    assert [questions(2), questions(2), questions(50), questions(10)] == [1, 0, 0, 1]
    place.rename(daemon.proc / "8")
    assert questions(2) == 1


def test_the_socket_of_a_daemon_that_was_killed_is_no_daemon(daemon: MpsDaemon, running: MpsControl) -> None:
    running.kill()
    assert (daemon.pipe / "control").exists()
    assert daemon.is_there
    daemon.end_unneeded()
    assert not daemon.is_there


def test_where_the_daemon_does_not_answer_nobody_is_named(daemon: MpsDaemon) -> None:
    clients = MpsClients(daemon=daemon)
    place = daemon.proc / "77"
    place.mkdir(parents=True)
    (place / "cgroup").write_text(f"0::/kubepods/besteffort/pod{UID}/{'ab' * 32}\n")
    for _ in range(3):
        assert not clients.look({CARD.uuid: [CardProcess(77, 1)]}, [KEY], _key)


def test_a_kill_of_bypasses_is_refused_with_mps() -> None:
    with pytest.raises(ValidationError, match="a client of MPS that is killed faults the others on its card"):
        IsolationSection.model_validate({"mode": "mps", "on_bypass": "kill"})
    IsolationSection.model_validate({"mode": "mps"})
    IsolationSection.model_validate({"mode": "limiter", "on_bypass": "kill"})


def _key(owner: CgroupOwner) -> tuple[str, str]:
    return owner.pod_uid, "main"


def test_a_server_that_ended_between_two_questions_is_no_client(folder: Path, daemon: MpsDaemon) -> None:
    """What the real daemon says then, with status 0: `make driver` asks it."""
    program = folder / "usr/bin/nvidia-cuda-mps-control"
    program.parent.mkdir(parents=True)
    answers = "read -r asked\ncase $asked in get_server_list) echo 4711 ;; *) echo Server 4711 not found ;; esac\n"
    program.write_text(f"#!/bin/sh\n{answers}")
    program.chmod(0o755)
    daemon.pipe.mkdir(parents=True)
    assert daemon.clients() == frozenset()
