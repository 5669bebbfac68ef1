"""What must never be committed: programs and packages of others, NVIDIA's driver first among them."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILED = {b"\x7fELF": "a compiled program or library", b"!<ar": "a package or a static library"}


def test_no_compiled_file_is_in_the_repository() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    assert len(paths) > 1000
    files = [path for path in paths if path.is_file()]
    compiled = {path.relative_to(ROOT): COMPILED[head] for path in files if (head := _head(path)) in COMPILED}
    assert compiled == {}


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)
