"""Programs that use one branch of the driver: as it is, and behind the limiter's libraries."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.cache import LIBRARIES, Unpacked
from native.limiterkit import LIBRARIES as LIMITER
from native.limiterkit import make_container
from native.simkit import DRIVER_FILE

from edgegpu_plugin.containers.driver.limiter_copies import LimiterCopies
from edgegpu_plugin.containers.driver_files import DriverFiles, Library
from edgegpu_plugin.containers.limiter_files import find_limiter

TIMEOUT_S = 120
CARD = "GPU-abababab-abab-abab-abab-abababababab"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said: exit status, stdout, stderr."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Sides:
    """The two folders in which a program finds the driver, and the folder of what the driver itself needs."""

    bare: Path
    limited: Path
    needs: Path

    def environment(self, libraries: Path, **more: str) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{self.needs}", "LC_ALL": "C.UTF-8", **more}

    def both(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> tuple[Answer, Answer]:
        """Return what a program says over the driver, and what behind the limiter."""
        return self._run(command, self.bare, env or {}), self._run(command, self.limited, env or {})

    def _run(self, command: Sequence[str | Path], libraries: Path, env: Mapping[str, str]) -> Answer:
        done = subprocess.run(
            command,
            env=self.environment(libraries, **env),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)


STEMS = {"libcuda.so.1": "cuda", "libnvidia-ml.so.1": "nvidia-ml"}
"""The stems of the libraries that the limiter stands in for, by SONAME."""


def make_copies(driver: Unpacked, limiter_build: Path, folder: Path) -> LimiterCopies:
    """Make the limiter's libraries as containers get them over a driver, in a folder."""
    libraries = tuple(Library(driver.library(STEMS[name]), (name,)) for name in LIMITER)
    copies = LimiterCopies(folder)
    copies.of(find_limiter(limiter_build), DriverFiles(root=driver.root, version="", libraries=libraries))
    return copies


def make_sides(driver: Unpacked, limiter_build: Path, folder: Path) -> Sides:
    """Lay both sides out in a folder: links to the driver, and a container of the limiter's on it."""
    bare = folder / "bare"
    bare.mkdir()
    for path in driver.folder.iterdir():
        (bare / path.name).symlink_to(path)
    make_copies(driver, limiter_build, folder / "limiter")
    container = make_container(folder / "container", folder / "limiter", bare)
    container.limit((CARD, 1024))
    for libraries in (bare, container.libraries):
        (libraries / DRIVER_FILE).symlink_to("libcuda.so.1")  # as the recorder of requests is linked to
    return Sides(bare, container.libraries, driver.root / LIBRARIES)
