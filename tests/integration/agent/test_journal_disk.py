"""The disk is full: what is under way ends, its results are kept over a clean end and a kill, and all goes up later."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kits.worker import ROOM, SMALL, Box, Wire
from kits.workercontroller import REFRESH, RESTART, Controller

from edgegpu_agent.journal.errors import BoxJournalError
from edgegpu_agent.journal.journal import BoxJournal
from edgegpu_sync.messages.spec import Sharing, Spec

DISK_MIB = 12


def fill(folder: Path) -> None:
    """Leave not a byte."""
    with (folder / "full").open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def main(folder: Path) -> None:
    """Run in a mount namespace of its own, on a small file system."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", folder], check=True)
    box = Box(folder / "agent").start()
    wire = Wire(box, Controller(box.world))
    wire.connect()
    wire.exchange()
    (folder / "other").mkdir()
    fill(folder)
    box.world.ready = False
    ids = [wire.controller.command(RESTART)] + [wire.controller.command(REFRESH) for _ in range(10)]
    wire.controller.desire(Spec(sharing=Sharing(rev=1, installed=True)))
    wire.down += wire.controller.desired_message()
    wire.exchange()
    assert all(wire.controller.tracked[id_].ended for id_ in ids[1:])
    box.disconnect()
    box.world.ready = True
    box.wait(5)
    for number in range(200):
        box.worker.send_event("disk.full", f"number {number} " + "x" * 500)
        box.wait(1)
    assert box.worker.status().results_waiting == 1
    box.journal.close()  # a clean end: SQLite removes its log, and there is no room for another one
    box.start()
    assert box.worker.status().results_waiting == 1
    child = os.fork()
    if not child:
        os._exit(0)  # as a kill: nothing is closed
    os.waitpid(child, 0)
    wire.connect()
    wire.pass_time(20, 5)
    assert all(one.ended for one in wire.controller.tracked.values())
    assert box.worker.status().applied_rev == 1
    assert box.world.restarted_by == {ids[0]: 1}
    assert len(wire.controller.events) > 20
    with pytest.raises(BoxJournalError, match="disk is full"):
        BoxJournal(folder / "other" / "journal.db", limits=SMALL, room=ROOM, wall_s=lambda: 0.0)
    (folder / "full").unlink()
    BoxJournal(folder / "other" / "journal.db", limits=SMALL, room=ROOM, wall_s=lambda: 0.0).close()
    sys.stdout.write("all is well\n")


def test_a_full_disk_takes_nothing_away(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2])])
    own = ["--map-root-user"] if os.getuid() else []
    done = subprocess.run(
        ["unshare", "--mount", *own, sys.executable, __file__, str(tmp_path)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.stdout == b"all is well\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
