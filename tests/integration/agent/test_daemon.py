"""The agent as a process: systemd's socket and the command `edgegpu` are stood in for, the journal is of real files."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edgegpu_installer.transaction.journal import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT_S = 60.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
ROLLS_BACK = """\
echo "$@" >> "$BOX/calls"
sed -i 's/^state=.*/state=ROLLED_BACK/' "$BOX/var/lib/edgegpu/tx/state"
echo '{"state": "ROLLED_BACK", "why": "its author died"}'
"""


class Agent:
    """A root with a journal and a stub of `edgegpu`, and the process over it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tx = root / "var/lib/edgegpu/tx"
        self.tx.mkdir(parents=True)
        (root / "proc").symlink_to("/proc")
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.bind(str(root / "notify"))
        self.told: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None

    def stub(self, script: str) -> None:
        path = self.root / "bin/edgegpu"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def booted(self) -> None:
        """Have a systemd, and a systemd-run that says what it was asked for and starts it."""
        (self.root / "run/systemd/system").mkdir(parents=True)
        run = self.root / "bin/systemd-run"
        run.write_text('#!/bin/sh\necho "$@" >> "$BOX/scopes"\nshift 3\nexec "$@"\n')
        run.chmod(0o755)

    def journal(self, state: str, *, author: str = "", deadline_s: float = 600) -> None:
        """Write the record of a transaction as its author does: a new file by a rename."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        record = {
            "id": "t1",
            "op": "install",
            "state": state,
            "boot_id": BOOT_ID,
            "deadline_boot_s": str(int(now + deadline_s)),
            "author": author,
        }
        new = self.tx / ".state"
        new.write_text("".join(f"{key}={value}\n" for key, value in record.items()))
        new.rename(self.tx / "state")

    def start(self, *arguments: str, watchdog_s: float = 30) -> None:
        env = {
            **os.environ,
            "NOTIFY_SOCKET": str(self.root / "notify"),
            "WATCHDOG_USEC": str(int(watchdog_s * 1e6)),
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "BOX": str(self.root),
        }
        command = [sys.executable, "-m", "edgegpu_agent", "--root", str(self.root), *arguments]
        with (self.root / "log").open("wb") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def hear(self, words: str) -> None:
        """Wait until systemd is told something; what was told before counts no more."""
        ends = time.monotonic() + WAIT_S
        while time.monotonic() < ends:
            self._manager.settimeout(max(0.01, ends - time.monotonic()))
            try:
                self.told.append(self._manager.recv(4096).decode())
            except TimeoutError:
                break
            if words in self.told[-1]:
                return
        pytest.fail(f"{words} was not told: {self.told}\n{self.log}")

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something by what systemd is told: the loop feeds its watchdog in each round."""
        ends = time.monotonic() + WAIT_S
        while not what():
            assert time.monotonic() < ends, self.log
            self.hear("WATCHDOG=1")

    @property
    def log(self) -> str:
        return (self.root / "log").read_text()

    @property
    def calls(self) -> list[str]:
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def end(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)
        self._manager.close()


@pytest.fixture
def agent(short_tmp: Path) -> Iterator[Agent]:
    made = Agent(short_tmp)
    yield made
    made.close()


def author_of(pid: int) -> str:
    return f"{pid}:{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"


def test_is_ready_feeds_its_watchdog_and_ends_in_order(agent: Agent) -> None:
    agent.start()
    agent.until(lambda: "READY=1" in agent.told)
    agent.until(lambda: "STATUS=nothing was ever changed on this machine" in agent.told)
    agent.hear("WATCHDOG=1")
    agent.hear("WATCHDOG=1")
    assert agent.end() == 0
    agent.hear("STOPPING=1")
    assert "ERROR" not in agent.log


def test_a_transaction_that_has_ended_is_left_alone(agent: Agent) -> None:
    agent.stub('echo "$@" >> "$BOX/calls"')
    agent.journal("COMMITTED")
    agent.start()
    agent.hear("STATUS=install t1 is at COMMITTED")
    agent.hear("WATCHDOG=1")
    assert agent.calls == []


@pytest.mark.parametrize("state", ["PREPARED", "SWAPPED", "RESTARTING", "VERIFYING", "ROLLING_BACK", "INCONSISTENT"])
def test_an_unfinished_transaction_is_finished_at_the_start(agent: Agent, state: str) -> None:
    agent.stub(ROLLS_BACK)
    agent.journal(state)
    agent.start()
    agent.hear("STATUS=install t1 is at ROLLED_BACK")
    assert agent.calls == ["transaction resume --json"]
    assert "ROLLED_BACK: its author died" in agent.log


def test_a_transaction_whose_author_dies_later_is_finished_then(agent: Agent) -> None:
    agent.stub(ROLLS_BACK)
    agent.start()
    agent.hear("STATUS=nothing was ever changed")
    author = subprocess.Popen(["sleep", "100"])
    try:
        agent.journal("RESTARTING", author=author_of(author.pid))
        agent.hear("STATUS=install t1 is at RESTARTING, and its author is at work")
        assert agent.calls == []
    finally:
        author.kill()
        author.wait(WAIT_S)
    agent.hear("STATUS=install t1 is at ROLLED_BACK")
    assert agent.calls == ["transaction resume --json"]


def test_an_author_that_is_over_its_deadline_is_not_waited_for(agent: Agent) -> None:
    agent.stub(ROLLS_BACK)
    agent.journal("VERIFYING", author=author_of(os.getpid()), deadline_s=-1)
    agent.start()
    agent.hear("STATUS=install t1 is at ROLLED_BACK")


def test_a_command_that_hangs_is_ended_and_the_watchdog_fed_meanwhile(agent: Agent) -> None:
    agent.stub('echo "$@" >> "$BOX/calls"; echo $$ > "$BOX/pid"; exec sleep 100')
    agent.journal("SWAPPED")
    agent.start("--deadline-s", "1")
    agent.hear("STATUS=install t1 is at SWAPPED and has no author: roll-back")
    agent.until(lambda: "it did not end within 1 s" in agent.log)
    assert not Path(f"/proc/{(agent.root / 'pid').read_text().strip()}").exists()
    agent.stub(ROLLS_BACK)
    agent.hear("STATUS=install t1 is at ROLLED_BACK")


def test_a_command_that_is_missing_or_answers_nonsense_is_reported(agent: Agent) -> None:
    agent.journal("SWAPPED")
    agent.start("--edgegpu", str(agent.root / "bin/edgegpu"))
    agent.until(lambda: "cannot run" in agent.log)
    agent.stub("echo what; exit 3")
    agent.until(lambda: "exit status 3, and no answer that can be read: what" in agent.log)


def test_an_inconsistent_machine_is_tried_once(agent: Agent) -> None:
    agent.stub('echo "$@" >> "$BOX/calls"; echo \'{"state": "INCONSISTENT", "why": "k3s does not start"}\'')
    agent.journal("INCONSISTENT")
    agent.start()
    agent.until(lambda: "it was tried, and is not tried again" in agent.log)
    assert agent.calls == ["transaction resume --json"]
    assert "INCONSISTENT: k3s does not start" in agent.log


def test_what_is_being_finished_goes_on_without_the_agent(agent: Agent) -> None:
    os.mkfifo(agent.root / "go")
    agent.stub(f'echo begun >> "$BOX/calls"; read line < "$BOX/go"\n{ROLLS_BACK}')
    agent.journal("SWAPPED")
    agent.start()
    agent.until(lambda: agent.calls == ["begun"])
    assert agent.end() == 0
    assert "that goes on without us" in agent.log
    (agent.root / "go").write_text("on\n")
    ends = time.monotonic() + WAIT_S
    while "ROLLED_BACK" not in (agent.tx / "state").read_text():
        assert time.monotonic() < ends
        os.sched_yield()


def test_under_systemd_it_is_finished_outside_the_services_cgroup(agent: Agent) -> None:
    agent.stub(ROLLS_BACK)
    agent.booted()
    agent.journal("SWAPPED")
    agent.start()
    agent.until(lambda: "ROLLED_BACK" in (agent.tx / "state").read_text())
    assert (agent.root / "scopes").read_text() == "--scope --collect --quiet edgegpu transaction resume --json\n"
    assert agent.end() == 0


def test_a_journal_that_makes_no_sense_is_reported_and_ends_nothing(agent: Agent) -> None:
    (agent.tx / "state").write_text("garbage\n")
    agent.start()
    agent.hear("STATUS=cannot understand")
    agent.journal("COMMITTED")
    agent.hear("STATUS=install t1 is at COMMITTED")


def test_a_signal_before_the_rest_is_loaded_is_minded(agent: Agent) -> None:
    agent.start()
    assert agent.process is not None
    ends = time.monotonic() + WAIT_S
    caught = Path(f"/proc/{agent.process.pid}/status")
    while not int(next(line for line in caught.read_text().splitlines() if "SigCgt" in line).split()[1], 16) & (
        1 << (signal.SIGTERM - 1)
    ):
        assert time.monotonic() < ends
        os.sched_yield()
    assert agent.end() == 0


def test_stays_small(agent: Agent) -> None:
    agent.start()
    agent.hear("WATCHDOG=1")
    agent.hear("WATCHDOG=1")
    assert agent.process is not None
    lines = Path(f"/proc/{agent.process.pid}/status").read_text().splitlines()
    rss_mib = int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024
    print(f"agent: {rss_mib:.1f} MiB resident")  # noqa: T201  (a figure for the reader of the run)
    assert rss_mib < 40


def test_loads_no_cluster_client_and_no_cli_library() -> None:
    script = "import sys, json, edgegpu_agent.main; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"kubernetes", "typer", "rich", "click", "grpc", "pydantic", "yaml", "cryptography", "urllib3"}
    ours = {name for name in json.loads(done.stdout) if name.startswith("edgegpu_installer.")}
    folders = {"machine", "transaction"}
    pure = folders | {
        "changes",
        "errors",
        "layout",
        "machine.atomic",
        *(f"transaction.{name}" for name in ("journal", "states")),
    }
    assert ours <= {f"edgegpu_installer.{name}" for name in pure}


def test_who_is_alive(tmp_path: Path) -> None:
    proc = Path("/proc")
    assert is_alive(author_of(os.getpid()), proc=proc)
    assert not is_alive(f"{os.getpid()}:1", proc=proc)
    assert not is_alive("", proc=proc)
    assert not is_alive("self:0", proc=tmp_path)
