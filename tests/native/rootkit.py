"""The root of a container over this machine's own files: what is laid into it, and programs that run there."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from native.limiterkit import MIB, NULL_CARD, USAGE_BYTES

from edgegpu_plugin.containers.container_folder import CardLimits, limits_text
from edgegpu_plugin.containers.limiter_files import DRIVER_FOLDER, FOLDER, PRELOAD_LIST, PRELOADED, PRELOADED_OVER

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
NAMES = ("libcuda.so.1", "libcuda.so", "libcuda.so.999.0")
"""The names of the driver's library in a container; the last is its own file name."""
NO_OVERLAY = 77

_ENTER = f"""
set -eu
mount -t tmpfs tmpfs "$1/mount"
mkdir "$1/mount/upper" "$1/mount/work" "$1/mount/root"
cp -a "$1/files/." "$1/mount/upper"
folders="lowerdir=/,upperdir=$1/mount/upper,workdir=$1/mount/work"
mount -t overlay overlay -o "$folders" "$1/mount/root" || exit {NO_OVERLAY}
cd "$1/mount/root"
mkdir -p dev
mknod -m 666 dev/null c 1 3
mount -t proc proc proc
shift
exec chroot . "$@"
"""


@dataclass(frozen=True)
class LaidOutRoot:
    """The root of one container: what lies below `files` stands before this machine's own."""

    folder: Path

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def put(self, path: str, content: bytes | str | Path, *, mode: int = 0o755) -> None:
        """Lay a file into the container: its content, or a file of this machine."""
        place = self.files / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        data = content.read_bytes() if isinstance(content, Path) else content
        place.write_bytes(data.encode() if isinstance(data, str) else data)
        place.chmod(mode)

    def command(self, *command: str) -> Sequence[str | Path]:
        """Return the words that run a command there; its process has the number of the one that is started."""
        return ["unshare", "--mount", "sh", "-c", _ENTER, "sh", self.folder, *command]

    def run(self, *command: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
        """Run a program there to its end."""
        done = subprocess.run(
            self.command(*command),
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if done.returncode == NO_OVERLAY:
            pytest.skip(f"no overlay over / here: {done.stderr}")
        return done


def make_root(folder: Path, *, driver: Path | None, limiter: Path, way: str, limit_mib: int) -> LaidOutRoot:
    """Lay out a container's root.

    Args:
        folder: a new folder.
        driver: the driver's library; None for a missing one.
        limiter: the limiter's.
        way: how the limiter is in the way: `mount` over the driver's names, `preload` in the loader's list, `both`, or
            `none`.
        limit_mib: what it may take.
    """
    root = LaidOutRoot(folder)
    (folder / "mount").mkdir(parents=True)
    root.files.mkdir()
    over = limiter if way in {"mount", "both"} else driver
    if over is not None:
        for name in NAMES:
            root.put(f"{LIBRARIES}/{name}", over)
    if way == "preload":
        root.put(PRELOADED, limiter)
        root.put(PRELOAD_LIST, PRELOADED + "\n")
    if way == "both":
        root.put(PRELOADED_OVER, limiter)
        root.put(PRELOAD_LIST, PRELOADED_OVER + "\n")
    if driver is not None:
        root.put(f"{DRIVER_FOLDER}/libcuda.so.1", driver)
    root.put(f"{FOLDER}/limits", limits_text({NULL_CARD: CardLimits(limit_mib * MIB)}))
    root.put(f"{FOLDER}/usage", bytes(USAGE_BYTES), mode=0o666)
    return root
