"""The cache of NVIDIA's packages, outside the checkout: fetched by hash, unpacked, never installed."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from driver.archive import Archive, VanishedError
from driver.pins import Branch, Package

LIBRARIES = "usr/lib/x86_64-linux-gnu"


def cache_folder() -> Path:
    """Return the folder of the cache; EDGEGPU_CACHE names another one."""
    return Path(os.environ.get("EDGEGPU_CACHE") or "/var/tmp/edgegpu-driver")  # noqa: S108  (made 0700)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """One branch's packages: their files, and their files as if installed, below `root`."""

    branch: Branch
    root: Path
    packages: tuple[Path, ...]

    @property
    def folder(self) -> Path:
        """Return the folder that has the driver's libraries as files: Debian's layouts keep each branch apart."""
        return self.library("cuda").parent

    def library(self, stem: str) -> Path:
        """Return the driver's library, libSTEM.so.VERSION."""
        (path,) = (self.root / LIBRARIES).rglob(f"lib{stem}.so.{self.branch.version}")
        return path

    def program(self, name: str) -> Path | None:
        """Return a program of the driver; None where the packages have none."""
        return next((path for path in self.root.rglob(name) if path.is_file() and os.access(path, os.X_OK)), None)


def cached(branch: Branch) -> Unpacked | None:
    """Return a branch that was fetched before; None when it was not. Nothing is fetched."""
    root = _tree(branch)
    return Unpacked(branch, root, tuple(map(_file, branch.packages))) if root.is_dir() else None


def fetched(branch: Branch) -> Unpacked:
    """Return a branch, fetched and unpacked where it was not.

    Raises:
        ArchiveError: the archive cannot be asked.
        VanishedError: the archive lacks a pinned package.
    """
    with locked():
        _fetch(branch)
        root = _tree(branch)
        if not root.is_dir():
            new = root.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            for package in branch.packages:
                subprocess.run(["dpkg-deb", "-x", _file(package), new], check=True)
            new.rename(root)
    return Unpacked(branch, root, tuple(map(_file, branch.packages)))


@contextmanager
def locked() -> Iterator[None]:
    """Hold the cache alone: another run fetches nothing meanwhile."""
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(branch: Branch) -> None:
    missing = [package for package in branch.packages if not _file(package).is_file()]
    if not missing:
        return
    archive = archive_of(branch)
    there = archive.versions(package.name for package in missing)
    gone = [
        f"{package.name} {package.version}"
        for package in missing
        if package.sha256 not in {found.sha256 for found in there[package.name]}
    ]
    if gone:
        raise VanishedError(f"the archive has no {', '.join(gone)} any more")
    for package in missing:
        store(archive, package)


def archive_of(branch: Branch) -> Archive:
    """Return the archive of the release that has a branch."""
    return Archive(cache_folder() / "apt" / branch.release, branch.release)


def store(archive: Archive, package: Package) -> None:
    """Fetch one package into the cache, unless it is there.

    Raises:
        ArchiveError: the archive cannot be asked.
        VanishedError: it lacks the package.
    """
    path = _file(package)
    if path.is_file():
        return
    path.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
        download = archive.download(package.name, package.version, Path(folder))
        if hashlib.sha256(download.read_bytes()).hexdigest() != package.sha256:
            raise VanishedError(f"the archive's {download.name} is another file than the pinned one")
        download.rename(path)


def _file(package: Package) -> Path:
    return cache_folder() / "packages" / f"{package.sha256}.deb"


def _tree(branch: Branch) -> Path:
    digest = hashlib.sha256("".join(package.sha256 for package in branch.packages).encode()).hexdigest()
    return cache_folder() / "trees" / f"{branch.name}-{digest[:16]}"
