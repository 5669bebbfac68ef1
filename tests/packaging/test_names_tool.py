"""tools/names.py: what it finds in code that is named badly; `make lint` asks it about ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def names(root: Path) -> tuple[str, int]:
    command = [sys.executable, str(ROOT / "tools/names.py"), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout, done.returncode


def write(root: Path, **modules: str) -> Path:
    (root / "plugin").mkdir(exist_ok=True)
    for name, text in modules.items():
        (root / f"plugin/{name}.py").write_text(text)
    return root


def test_a_class_name_that_two_modules_define(tmp_path: Path) -> None:
    write(tmp_path, one="class Room: ...\nclass _Own: ...\n", two="\nclass Room: ...\nclass _Own: ...\n")
    assert names(tmp_path) == ("class Room is defined 2 times: plugin/one.py:1, plugin/two.py:2\n", 1)


@pytest.mark.parametrize("line", ["Prepare it.", "Begin.", "How it stands now.", "Its id.", "Say nothing."])
def test_a_summary_that_names_nothing(tmp_path: Path, line: str) -> None:
    write(tmp_path, one=f'class Room:\n    """{line}\n\n    Raises: Nothing.\n    """\n')
    assert names(tmp_path) == (f'plugin/one.py:1: "{line}" does not say what it is about\n', 1)


@pytest.mark.parametrize("line", ["Answer Allocate.", "Return the id.", "See `Action`.", "Read `controller.yaml`."])
def test_a_summary_with_a_verb_and_an_object(tmp_path: Path, line: str) -> None:
    assert names(write(tmp_path, one=f'"""{line}"""\n')) == ("", 0)
