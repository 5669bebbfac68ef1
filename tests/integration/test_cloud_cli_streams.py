"""Ends that are nobody's fault, in real processes: output that is full or closed, ctrl-C at the start, an odd word."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from kits.cloudcli import ok

if TYPE_CHECKING:
    from pathlib import Path

_INTERRUPTED = """
import sys

class Interrupts:
    def find_spec(self, name, *more):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from edgegpu_cloud.cli.app import main
main()
"""


def shell(line: str, *more: str | bytes) -> tuple[int, str]:
    words: list[str | bytes] = ["sh", "-c", line, "sh", sys.executable, *more]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, timeout=60)
    return done.returncode, done.stderr.decode()


def test_how_a_command_ends_when_it_cannot_say_its_answer(tmp_path: Path) -> None:
    folder = str(tmp_path / "cloud")
    ok("init", "--name", "127.0.0.1", folder=tmp_path / "cloud")
    program = '"$1" -m edgegpu_cloud.cli.app'
    code, said = shell(f'{program} boxes --json --folder "$2" > /dev/full', folder)
    assert (code, "cannot write its answer" in said, "Traceback" in said) == (1, True, False), said
    code, said = shell(f'{program} boxes --folder "$2" >&-', folder)
    assert (code, "fault" in said, "Traceback" in said) == (0, False, False), said
    code, said = shell(f'{program} box "$2"', b"\xff")
    assert (code, "no UTF-8" in said, "Traceback" in said) == (2, True, False), said
    assert shell('"$1" -c "$2"', _INTERRUPTED) == (130, "")
