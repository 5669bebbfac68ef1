"""edgegpu-recover on a machine in a folder: before each start of k3s, and when the dead-man's time is over."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from integration.transactionkit import DROP_IN, OVER, SCHEDULER, Bed, install

from edgegpu_installer.changes import FileChange, Plan, TransactionKind
from edgegpu_installer.layout import RECOVER, RECOVER_UNIT, UNITS, WANTS
from edgegpu_installer.transaction.journal import TransactionJournal, TransactionRecord
from edgegpu_installer.transaction.lock import LOCK, locked
from edgegpu_installer.transaction.states import TransactionState


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "root")


def record(bed: Bed) -> TransactionRecord:
    found = TransactionJournal(bed.layout.tx).read()
    assert found is not None
    return found


def edit(bed: Bed, **values: object) -> None:
    """Change values in the journal's record."""
    path = bed.layout.tx / "state"
    lines = dict(line.split("=", 1) for line in path.read_text().splitlines()) | {k: str(v) for k, v in values.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))


def test_nothing_to_do_is_done_quickly(bed: Bed) -> None:
    bed.run(install())
    took = []
    for _ in range(5):
        began = time.monotonic()
        assert bed.recover("check", "k3s.service") == ""
        took.append(time.monotonic() - began)
    assert min(took) < 0.25, took  # a tenth of a second on a machine that does nothing else
    assert not [call for call in bed.calls() if call.startswith("start --no-block")]


def test_without_a_journal_nothing_happens(bed: Bed) -> None:
    before = bed.tree()
    assert bed.recover("check", "k3s") == ""
    assert bed.recover("deadline") == ""
    assert "no transaction" in bed.recover("show")
    assert bed.tree() == before


def test_new_files_are_tried_three_times_and_then_taken_back_before_k3s_reads_them(bed: Bed) -> None:
    bed.die_at("after-restart", install(b"bad\n"))
    for attempt in (2, 3):
        bed.recover("check", "k3s")
        assert (record(bed).state, record(bed).attempts) == (TransactionState.RESTARTING, attempt)
        assert (bed.root / SCHEDULER[1:]).exists()
    bed.recover("check", "k3s")
    assert not (bed.root / SCHEDULER[1:]).exists()
    assert record(bed).state is TransactionState.ROLLING_BACK
    assert bed.calls("start --no-block edgegpu-recover.service")
    bed.recover("deadline")
    assert record(bed).state is TransactionState.ROLLED_BACK
    assert "k3s started 3 times" in record(bed).why


def test_a_try_arms_the_dead_man_for_what_is_left(bed: Bed) -> None:
    bed.die_at("after-restart", install(), deadline_s=600)
    bed.recover("deadline")
    (armed,) = bed.calls("run")[1:]
    left_s = int(armed.partition("--on-active=")[2].partition("s ")[0])
    assert 500 < left_s <= 611


def test_a_hanging_author_is_killed_when_its_time_is_over(bed: Bed) -> None:
    old = bed.tree()
    go, told = os.pipe()
    pid = os.fork()
    if pid == 0:

        def hang(step: str) -> None:
            if step == "after-VERIFYING":
                os.write(told, b"x")
                time.sleep(60)

        bed.run(install(), at_step=hang, deadline_s=OVER)
        os._exit(0)
    assert os.read(go, 1) == b"x"
    said = bed.recover("deadline")
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == 9
    assert f"process {pid}" in said
    assert record(bed).state is TransactionState.ROLLED_BACK
    assert bed.tree() == old


def test_an_author_at_work_is_left_alone(bed: Bed) -> None:
    seen = []

    def look(step: str) -> None:
        if step == "after-VERIFYING":
            bed.recover("deadline")
            bed.recover("check", "k3s")
            seen.append(bed.recover("show"))

    assert bed.run(install(), at_step=look).state is TransactionState.COMMITTED
    assert "to be done: wait" in seen[0]


def test_another_process_with_the_pid_of_the_author_lives(bed: Bed) -> None:
    bed.die_at("after-VERIFYING", install(), deadline_s=OVER)
    edit(bed, author=f"{os.getpid()}:1")
    with locked(bed.layout.at(LOCK)):
        done = subprocess.run(
            ["timeout", "-s", "KILL", "5", "sh", bed.layout.at(RECOVER), "deadline"],
            env=bed.environment,
            check=False,
            capture_output=True,
            text=True,
        )
    assert "it is killed" not in done.stderr


def loop(bed: Bed, *, times: int = 4) -> None:
    """K3s ends soon after its start, again and again; systemd counts."""
    for restarts in range(times):
        bed.set_unit("k3s.service", "activating", start=f"loop{restarts}", restarts=restarts)
        bed.recover("check", "k3s.service")


def test_a_k3s_in_a_crash_loop_loses_what_it_reads_from_us(bed: Bed) -> None:
    bed.run(install())
    (bed.root / SCHEDULER[1:]).write_text("broken by hand\n")
    loop(bed)
    assert not (bed.root / SCHEDULER[1:]).exists()
    assert not (bed.root / DROP_IN[1:]).exists()
    assert (bed.root / "etc/edited").read_text() == "new\n"
    assert (record(bed).op, record(bed).state) == (TransactionKind.GUARD, TransactionState.ROLLED_BACK)
    assert "k3s did not come up" in record(bed).why
    assert (bed.layout.tx / "taken/edgegpu-scheduler.yaml").read_text() == "broken by hand\n"
    assert bed.run(install()).state is TransactionState.COMMITTED
    assert (bed.root / SCHEDULER[1:]).read_text() == "good\n"


def test_a_start_or_two_more_take_nothing_out(bed: Bed) -> None:
    bed.run(install())
    loop(bed, times=3)
    assert (bed.root / SCHEDULER[1:]).exists()


def test_restarts_over_a_long_time_take_nothing_out(bed: Bed) -> None:
    bed.run(install())
    loop(bed, times=3)
    (bed.root / "run/edgegpu-k3s-starts").write_text("1\n2\n3\n")
    bed.set_unit("k3s.service", "activating", start="x", restarts=3)
    bed.recover("check", "k3s.service")
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    assert (bed.root / SCHEDULER[1:]).exists() or up_s < 601


@pytest.mark.parametrize(
    ("api", "version", "stays"),
    [
        ("", "v1.24.17+k3s1", False),
        ("", "v1.25.0+k3s1", True),
        ("", "dev", True),
        ("v1", "v1.24.17+k3s1", False),
        ("v1", "v1.33.13+k3s1", True),
        ("v1beta1", "v1.21.14+k3s1", True),
        ("v1beta1", "v1.23.17+k3s1", False),
        ("v1beta2", "v1.22.17+k3s1", True),
        ("v1beta2", "v1.28.15+k3s1", False),
        ("v1beta3", "v1.28.15+k3s1", True),
        ("v1beta3", "v1.29.14+k3s1", False),
        ("v1beta3", "v1.22.17+k3s1", False),
    ],
)
def test_a_k3s_whose_scheduler_takes_no_such_file_loses_what_it_reads_from_us(
    bed: Bed, api: str, version: str, *, stays: bool
) -> None:
    bed.run(install())
    if api:
        (bed.root / SCHEDULER[1:]).write_text(f"apiVersion: kubescheduler.config.k8s.io/{api}\nkind: x\n")
    binary = bed.fake / "bin/k3s"
    binary.write_text(f"#!/bin/sh\necho k3s version {version} '(abc)'\necho go version go1.20\n")
    binary.chmod(0o755)
    bed.recover("check", "k3s.service")
    assert (bed.root / SCHEDULER[1:]).exists() is stays
    if not stays:
        assert version in record(bed).why
        assert "run edgegpu install" in record(bed).why


def test_the_guard_can_be_cut_off(bed: Bed) -> None:
    bed.run(install())
    loop(bed, times=3)
    edit(bed, op="guard", state="ROLLING_BACK", id="guard-1", why="k3s did not come up")
    bed.recover("check", "k3s")
    assert not (bed.root / SCHEDULER[1:]).exists()
    bed.recover("deadline")
    assert (record(bed).op, record(bed).state) == (TransactionKind.GUARD, TransactionState.ROLLED_BACK)


def test_what_cannot_be_put_back_is_said_and_tried_again(bed: Bed) -> None:
    bed.run(install())
    change = Plan(
        TransactionKind.CHANGE, (FileChange(SCHEDULER, content=b"bad\n", mode=0o600, k3s_reads=True),), restart="k3s"
    )
    bed.die_at("after-VERIFYING", change, deadline_s=OVER)
    target = bed.root / SCHEDULER[1:]
    beside, kept = target.with_name(f".{target.name}.edgegpu-old"), bed.layout.tx / "old/1"
    content = kept.read_bytes()
    beside.unlink()
    kept.unlink()
    kept.mkdir()
    environment = bed.environment
    done = subprocess.run(
        ["sh", bed.layout.at(RECOVER), "deadline"], env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert record(bed).state is TransactionState.INCONSISTENT
    assert f"cannot put back: {SCHEDULER} (all else is as before)" in record(bed).why
    kept.rmdir()
    kept.write_bytes(content)
    kept.chmod(0o600)
    bed.recover("deadline")
    assert record(bed).state is TransactionState.ROLLED_BACK
    assert target.read_bytes() == b"good\n"


def test_it_lives_without_edgegpu(bed: Bed) -> None:
    """What is installed needs neither /opt/edgegpu nor Python."""
    bed.die_at("after-VERIFYING", install(), deadline_s=OVER)
    (bed.root / "opt/edgegpu/current").unlink()
    (bed.fake / "units/edgegpu-deadman.timer").unlink()  # it is over where it has started this
    done = subprocess.run(
        ["sh", bed.layout.at(RECOVER), "deadline"], env=bed.environment, check=True, capture_output=True, text=True
    )
    assert "ROLLED_BACK" in done.stderr
    assert not bed.layout.at(RECOVER).exists()


def test_it_goes_on_when_nobody_hears_it_any_more(bed: Bed) -> None:
    """The installer that started it was killed, and with it the reader of its words."""
    old = bed.tree()
    bed.die_at("after-VERIFYING", install(), deadline_s=OVER)
    hears, speaks = os.pipe()
    os.close(hears)
    done = subprocess.run(["sh", bed.layout.at(RECOVER), "deadline"], env=bed.environment, check=False, stderr=speaks)
    os.close(speaks)
    assert (done.returncode, record(bed).state) == (0, TransactionState.ROLLED_BACK)
    assert bed.tree() == old


def test_before_a_boot_starts_k3s_old_files_are_back(bed: Bed) -> None:
    """Then k3s has read them, and needs no restart."""
    bed.die_at("after-VERIFYING", install(), deadline_s=OVER)
    edit(bed, boot_id="other")
    bed.set_unit("k3s", "inactive", start="")
    bed.recover("files")
    assert not (bed.root / SCHEDULER[1:]).exists()
    bed.set_unit("k3s", "active", start="of this boot")
    bed.recover("deadline")
    assert record(bed).state is TransactionState.ROLLED_BACK
    assert bed.start_of_k3s() == "of this boot"


BEFORE_PREPARED = ("after-backups", "after-arm", "before-early-1", *(f"after-early-{n}" for n in range(1, 5)))


@pytest.mark.parametrize("finder", ["dead-man", "boot"])
@pytest.mark.parametrize("step", BEFORE_PREPARED)
def test_a_first_installation_that_had_not_begun_leaves_nothing(bed: Bed, step: str, finder: str) -> None:
    """Before recovery is in place nobody comes: then nothing is there; afterwards it takes everything away."""
    old = bed.tree()
    bed.die_at(step, install())
    unit = bed.layout.at(f"{UNITS}/{RECOVER_UNIT}")
    comes = unit if finder == "dead-man" else bed.layout.at(f"{WANTS}/{RECOVER_UNIT}")
    if comes.is_symlink() or comes.exists():
        bed.recover("deadline")
        assert not (bed.layout.tx / "files").exists()
    left = differing(old, bed.tree())
    unit_alone = finder == "boot" and step == "after-early-1"  # nothing starts it, the next run takes it
    assert left == ({str(unit.relative_to(bed.root))} if unit_alone else set())


def differing(old: dict[str, str], new: dict[str, str]) -> set[str]:
    """The paths that are not as before, less what the journal itself is."""
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path) and "edgegpu/tx" not in path}
