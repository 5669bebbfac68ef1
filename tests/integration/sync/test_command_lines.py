"""Ends that are nobody's fault, of both command lines: output that is full or closed, early ctrl-C, an odd word."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from kits.cloudcli import ok

if TYPE_CHECKING:
    from pathlib import Path

AGENT, CLOUD = "edgegpu_agent.cli.app", "edgegpu_cloud.cli.app"

_INTERRUPTED = """
import sys

class Interrupts:
    def find_spec(self, name, *more):
        if name == "typer":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
from MODULE import main
main()
"""


def shell(line: str, *more: str | bytes) -> tuple[int, str]:
    words: list[str | bytes] = ["sh", "-c", line, "sh", sys.executable, *more]
    done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, timeout=60)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("program", [AGENT, CLOUD])
def test_how_a_command_ends_when_it_cannot_say_its_answer(tmp_path: Path, program: str) -> None:
    folder = tmp_path / "cloud"
    if program == CLOUD:
        ok("init", "--name", "127.0.0.1", folder=folder)
    answers = {AGENT: "version --json", CLOUD: f"boxes --json --folder {folder}"}[program]
    code, said = shell(f'"$1" -m {program} {answers} > /dev/full')
    assert (code, "cannot write its answer" in said, "Traceback" in said) == (1, True, False), said
    code, said = shell(f'"$1" -m {program} {answers} >&-')
    assert (code, "fault" in said, "Traceback" in said) == (0, False, False), said


@pytest.mark.parametrize("program", [AGENT, CLOUD])
def test_an_argument_that_is_no_text(program: str) -> None:
    code, said = shell(f'"$1" -m {program} status "$2"', b"\xff")
    assert (code, "no UTF-8" in said, "Traceback" in said) == (2, True, False), said


@pytest.mark.parametrize("program", [AGENT, CLOUD])
def test_ctrl_c_while_it_still_loads(program: str) -> None:
    assert shell('"$1" -c "$2"', _INTERRUPTED.replace("MODULE", program)) == (130, "")
