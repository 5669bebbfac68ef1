"""uninstall.sh, as it lies in a version's folder: hands over to edgegpu, and says what to do where that is broken."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kits.install import ROOT, Sandbox, make_environment


@pytest.fixture
def script(box: Sandbox) -> Path:
    """Return the installed script; its edgegpu writes down how it is called."""
    folder = make_environment(box.root / "opt/edgegpu/1.2.3")
    (folder / "bin/edgegpu").write_text(
        '#!/bin/sh\nfor word in "$@"; do echo "$word"; done > "$RECORD/words"\nexit 5\n'
    )
    (folder.parent / "current").symlink_to("1.2.3")
    shutil.copy(ROOT / "installer/uninstall.sh", folder)
    return folder.parent / "current/uninstall.sh"


def run(box: Sandbox, script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": str(box.path), "EDGEGPU_ROOT": str(box.root), "RECORD": str(box.record)}
    return subprocess.run([script, *words], capture_output=True, text=True, check=False, env=env, timeout=60)


def test_hands_its_options_and_the_status_over(box: Sandbox, script: Path) -> None:
    program = script.parent / "bin/edgegpu"
    program.write_text(program.read_text().replace("for", '[ "$1" != version ] || exit 0\nfor', 1))
    assert run(box, script, "--yes", "a b").returncode == 5
    assert box.words() == ["uninstall", "--yes", "a b"]


def test_says_what_to_do_where_its_version_is_broken(box: Sandbox, script: Path) -> None:
    done = run(box, script)
    assert done.returncode == 1
    assert "bin/edgegpu does not start: " in done.stderr
    assert "paste the line that installed this box again" in done.stderr
    assert "edgegpu-recover" not in done.stderr
    recover = box.root / "usr/local/lib/edgegpu/edgegpu-recover"
    recover.parent.mkdir(parents=True)
    recover.touch(mode=0o755)
    assert "edgegpu-recover show` tells of the last one" in run(box, script).stderr


def test_names_the_reason(box: Sandbox, script: Path) -> None:
    (script.parent / "bin/edgegpu").write_text("#!/bin/sh\necho 'no such loader' >&2\nexit 127\n")
    assert "bin/edgegpu does not start: no such loader\n" in run(box, script).stderr


def test_needs_root(box: Sandbox, script: Path) -> None:
    box.program("id", "echo 1000")
    done = run(box, script)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "run it again as root" in done.stderr
