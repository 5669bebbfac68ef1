"""Our shell scripts: they parse where /bin/sh is dash, and the commands of the Makefile say what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
POSIX_SH = shutil.which("dash") or "sh"


def scripts(*args: str) -> list[str]:
    done = subprocess.run([ROOT / "tools/shell-files", *args], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_each_parses_in_a_small_shell() -> None:
    found = scripts("posix")
    assert len(found) > 15
    for script in found:
        subprocess.run([POSIX_SH, "-n", script], cwd=ROOT, check=True)


def test_each_is_executable_unless_it_is_read_by_another() -> None:
    found = scripts()
    assert "installer/install.sh" in found
    assert [one for one in found if not os.access(ROOT / one, os.X_OK) and not one.endswith("lib.sh")] == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of what `make test` reads first, without a .venv."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("tools", "requirements"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def setup(tree: Path, *args: str, tools: dict[str, str], **env: str) -> subprocess.CompletedProcess[str]:
    """Run tools/setup with a PATH of coreutils and the given programs (name to shell text) alone."""
    path = tree / "path"
    path.mkdir()
    for name, text in tools.items():
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)
    # Only links for what is left: a write through a link would change the machine's own program.
    for name in NEEDED - tools.keys():
        (path / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
    full = {"PATH": str(path), "HOME": str(tree), **env}
    command: list[str | Path] = [tree / "tools/setup", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=full, timeout=60)


NEEDED = {"sh", "dirname", "mkdir", "mktemp", "rm", "id", "cksum", "tr", "cat", "sed", "grep", "head", "flock"}
OLD = 'case "$1" in -V) echo Python 3.9.2 ;; *) exit 1 ;; esac'
NO_VENV = 'case "$1 $2" in "-V ") echo Python 3.12.1 ;; *version_info*) exit 0 ;; *) exit 1 ;; esac'


@pytest.mark.parametrize(
    ("args", "tools", "env", "words"),
    [
        (["venv"], {}, {}, "cannot find Python: apt-get install python3"),
        (["venv"], {"python3": OLD}, {}, "found only Python 3.9.2: edgegpu needs Python 3.11"),
        (["venv"], {"python3": NO_VENV}, {}, "apt-get install python3-venv"),
        (["venv"], {}, {"PYTHON": "python3.77"}, "cannot find PYTHON=python3.77"),
        (["venv"], {"py": OLD}, {"PYTHON": "py"}, "PYTHON=py is Python 3.9.2"),
        (["cc"], {}, {}, "cannot find a C compiler: apt-get install gcc libc6-dev"),
        (["cc"], {"cc": "exit 1"}, {}, "apt-get install libc6-dev"),
        (["cc"], {"gcc": "exit 0"}, {}, "export CC=gcc"),
        (["root", "make e2e"], {"id": "echo 1000"}, {}, "make e2e needs root"),
    ],
)
def test_setup_names_the_remedy(
    tree: Path, args: list[str], tools: dict[str, str], env: dict[str, str], words: str
) -> None:
    done = setup(tree, *args, tools=tools, **env)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") <= 2
    assert not (tree / ".venv").exists()


def test_help_lists_every_command() -> None:
    done = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True)
    for name in ("demo", "test", "lint", "e2e", "bench", "lab", "lock", "env", "clean"):
        assert f"make {name} " in done.stdout
