"""What goes wrong on the way: refused or rolled back with one clear message, k3s up, nothing left."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from box.bed import WAITS, Bed
from box.faults import PAUSE, waiting
from e2e.k3s import DROP_IN
from lab.labrun import Completed, wait_until

FULL = pytest.mark.skipif(not os.environ.get("BOX_FULL"), reason="with FULL=1")
REAL = "/usr/local/bin/k3s.real"
ENDS = """
    echo 'level=fatal msg="scheduler exited: unknown field extenders"' >&2
    exit 1"""


@contextmanager
def stand_in(bed: Bed, does: str) -> Iterator[None]:
    """Put a program before k3s that does something else when our scheduler file is to be read."""
    script = f"""#!/bin/sh
if [ "$1" = server ] && grep -qs edgegpu-scheduler {DROP_IN}; then{does}
fi
exec {REAL} "$@"
"""
    bed.machine.exec("mv", "/usr/local/bin/k3s", REAL)
    bed.node.write("/usr/local/bin/k3s", script, mode=0o755)
    try:
        yield
    finally:
        bed.machine.exec("mv", REAL, "/usr/local/bin/k3s")


@contextmanager
def as_before(bed: Bed) -> Iterator[None]:
    """See that a box is left as it was, with k3s up."""
    disk = bed.disk()
    yield
    bed.machine.ready()
    now = bed.disk()
    differs = {path: now.get(path) for path in disk.keys() | now.keys() if disk.get(path) != now.get(path)}
    differs = {path: what for path, what in differs.items() if not re.search(WAITS, path)}
    assert not differs, differs


def said(done: Completed) -> str:
    """Return what a line that failed says."""
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    return done.stderr + done.stdout


def test_a_disk_without_room_and_a_read_only_etc_are_refused(k3s_box: Bed) -> None:
    bed = k3s_box
    with as_before(bed):
        bed.machine.exec("sh", "-c", "fallocate -l $(($(stat -f -c '%a*%S' /) - 20000000)) /root/ballast")
        assert "MiB" in said(bed.line("--yes", check=False))
        bed.machine.exec("rm", "/root/ballast")
        bed.machine.exec("sh", "-c", "mount --bind /etc /etc && mount -o remount,ro,bind /etc")
        assert "/etc is read-only" in said(bed.line("--yes", check=False))
        bed.machine.exec("umount", "/etc")


def test_one_at_a_time_and_an_interrupted_one_is_undone(k3s_box: Bed, tmp_path: Path) -> None:
    bed, log = k3s_box, tmp_path / "log"
    with as_before(bed):
        running = bed.machine.popen("env", f"{PAUSE}=after-swap-10", "sh", "-c", bed.one_line("--yes"), log=log)
        pid = wait_until(lambda: waiting(log, "after-swap-10"), what="it waits")
        assert "another install.sh or an upgrade is at work" in said(bed.line("--yes", check=False))
        told = said(bed.machine.exec("/opt/edgegpu/0.1.0/bin/edgegpu", "install", "--yes", check=False))
        assert pid in told, told
        bed.machine.exec("kill", "-INT", pid)
        assert running.wait(120) != 0
        assert "rolled back" in log.read_text()
        assert "SIGINT" in log.read_text()


def test_a_scheduler_file_that_k3s_refuses_is_rolled_back(k3s_box: Bed) -> None:
    bed = k3s_box
    with as_before(bed), stand_in(bed, ENDS):
        told = said(bed.line("--yes", check=False))
        assert "rolled back" in told
        assert "unknown field extenders" in told


def test_a_k3s_that_refuses_the_file_later_runs_without_it(gpu_box: Bed) -> None:
    bed = gpu_box
    containers = bed.apps_run()
    with stand_in(bed, ENDS):
        bed.machine.exec("systemctl", "restart", "--no-block", "k3s")
        wait_until(lambda: bed.journal().get("op") == "guard", what="the guard took our file out")
        bed.machine.ready()
        assert bed.journal()["state"] == "ROLLED_BACK"
        assert "taken out" in bed.journal()["why"]
        assert bed.apps_run() == containers
        assert "guard" in bed.edgegpu("doctor", check=False).stdout


@FULL
def test_a_k3s_that_hangs_in_its_start_is_rolled_back(k3s_box: Bed) -> None:
    bed = k3s_box
    with as_before(bed), stand_in(bed, "\n    exec sleep infinity"):
        assert "rolled back" in said(bed.line("--yes", "--deadline", "60", check=False))


@FULL
def test_an_extender_that_never_answers_is_rolled_back(k3s_box: Bed, tmp_path: Path) -> None:
    bed = k3s_box
    silent = "import socket, time; s = socket.create_server(('127.0.0.1', 8787)); time.sleep(1e6)"
    with as_before(bed):
        listening = bed.machine.popen("python3", "-c", silent, log=tmp_path / "silent.log")
        assert "rolled back" in said(bed.line("--yes", "--deadline", "60", check=False))
        listening.kill()
        listening.wait()
