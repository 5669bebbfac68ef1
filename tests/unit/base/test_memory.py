"""What plugin and agent hand back once they run."""

from __future__ import annotations

import ctypes
import json
import mmap
import subprocess
import sys
import threading
from pathlib import Path

from edgegpu_base.process.memory import Footprint, shed, unwritten

SCRIPT = """\
import json
from pathlib import Path
import edgegpu_agent.session.session
from edgegpu_base.process.memory import shed
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
def file_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssFile")).split()[1])
key = Ed25519PrivateKey.generate()
before = file_kib()
shed(wait=lambda: None)
after = file_kib()
key.public_key().verify(key.sign(b"x"), b"x")
shed(Path("/nowhere"), wait=lambda: None)
print(json.dumps([before, after]))
"""


def test_what_a_process_has_written_is_never_handed_back() -> None:
    lines = []
    for at, (mapping, anonymous_kib) in enumerate(
        (
            ("r-xp 00001000 08:01 12 /usr/lib/libx y.so", 0),
            ("r--p 00001000 08:01 12 /usr/lib/libx.so", 0),
            ("r--p 00001000 08:01 12 /usr/lib/libx.so", 4),
            ("rw-p 00001000 08:01 12 /usr/lib/libx.so", 0),
            ("rwxp 00000000 00:00 0 ", 0),
            ("r-xp 00000000 00:00 0                          [vdso]", 0),
            ("r-xs 00000000 08:01 12 /usr/lib/libx.so", 0),
        )
    ):
        lines += [
            f"7f000000{at}000-7f000000{at}800 {mapping}",
            "Rss:                  12 kB",
            f"Anonymous:            {anonymous_kib} kB",
            "VmFlags: rd ex mr mw me",
        ]
    assert list(unwritten(lines)) == [(0x7F0000000000, 0x800), (0x7F0000001000, 0x800)]


def test_the_task_hands_back_again_and_again_until_it_is_stopped() -> None:
    handed = threading.Semaphore(0)
    task = Footprint(first_s=0, again_s=0.001, hand_back=handed.release)
    thread = threading.Thread(target=task.run)
    thread.start()
    assert all(handed.acquire(timeout=30) for _ in range(3))
    task.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_what_made_it_grow_has_it_hand_back_soon() -> None:
    handed = threading.Semaphore(0)
    task = Footprint(first_s=0, soon_s=0, again_s=600, hand_back=handed.release)
    thread = threading.Thread(target=task.run)
    thread.start()
    for _ in range(3):
        assert handed.acquire(timeout=30)
        task.soon()
    assert handed.acquire(timeout=30)
    task.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_what_did_not_stand_there_before_stays(tmp_path: Path) -> None:
    """A mapping that came between the two looks would be dropped under a library that is being loaded."""
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page[:] = b"x" * mmap.PAGESIZE
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    maps = tmp_path / "maps"
    maps.write_text("")
    listed = f"{start:x}-{start + mmap.PAGESIZE:x} r--p 00000000 08:01 12 /lib/x.so\nAnonymous:   0 kB\n"
    shed(maps, wait=lambda: maps.write_text(listed))
    assert page[:1] == b"x"
    shed(maps, wait=lambda: None)
    assert page[:1] == b"\0"


def test_what_start_up_ran_leaves_and_all_goes_on() -> None:
    assert Path("/proc/self/smaps").exists()
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after = json.loads(done.stdout)
    assert after < before - 4_096


def test_what_is_about_to_grow_has_it_hand_back_at_once() -> None:
    handed = threading.Semaphore(0)
    task = Footprint(first_s=0, soon_s=600, again_s=600, hand_back=handed.release)
    thread = threading.Thread(target=task.run)
    thread.start()
    assert handed.acquire(timeout=30)
    task.now()
    assert handed.acquire(timeout=30)
    task.stop()
    thread.join(30)
    assert not thread.is_alive()
