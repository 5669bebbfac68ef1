"""The lines of the documents work as they are printed: with a host's own CA, named by the hashes that they tell."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from kits.install import Host, Sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[3]
BUNDLE = (ROOT / "docs/box/bundle.md").read_text(encoding="utf-8")


def printed(document: str) -> str:
    """Return the line for a host with a CA of its own."""
    (line,) = re.findall(r"^curl .*--pinnedpubkey.*$", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE)
    return str(line)


def values(folder: Path) -> Mapping[str, str]:
    """Return HEX and PIN by the very commands that bundle.md prints."""
    commands = re.findall(r"^(.+) # (HEX|PIN)$", BUNDLE, re.MULTILINE)
    found = {}
    for command, name in commands:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=True, timeout=60
        )
        found[name] = done.stdout.split()[0]
    return found


def test_the_line_for_a_ca_of_ones_own(host: Host, files: Path, box: Sandbox) -> None:
    shutil.copy(host.cert.cert_file, files / "server.crt")
    line = printed("docs/box/install.md").replace("https://HOST", host.url)
    for name, value in values(files).items():
        line = line.replace(name, value)
    box.program("sudo", 'exec "$@"')
    box.program("sh", f'exec {shutil.which("dash")} "$@"')
    full = {"PATH": str(box.path), "EDGEGPU_ROOT": str(box.root), "RECORD": str(box.record)}
    command = [shutil.which("bash") or "bash", "-c", f"set -o pipefail; {line}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=full, cwd=box.base, timeout=60)
    assert done.returncode == 0, done.stderr
    assert box.words()[0] == "install"
