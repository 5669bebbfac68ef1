"""The copy of the running Python, with every library that it and some wheels need, including the C library."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LOADER = "ld-linux-x86-64.so.2"
COMPANIONS = (
    "libanl.so.1",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libnss_compat.so.2",
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libutil.so.1",
)
"""Parts of the C library that are loaded by name; a driver's library must not load the box's, of another version."""

DEVELOPERS = {
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "test",
    "tests",
    "venv",
    "EXTERNALLY-MANAGED",
}
DESKTOP = {"curses", "dbm", "tkinter", "turtle.py", "turtledemo"}
MACHINES = {"__pycache__", "dist-packages", "site-packages", "sitecustomize.py"}
UNUSED = DEVELOPERS | DESKTOP | MACHINES
UNUSED_NATIVE = re.compile(
    r"_(test|xxtest|ctypes_test|tkinter|curses|dbm|gdbm|crypt)|xx|nis|ossaudiodev|readline|audioop|spwd"
)
"""Native modules without use on a box; readline and gdbm are left out for their licence (GPL) as well."""

COMMON_LICENCE = re.compile(r"/usr/share/common-licenses/([\w-]+(?:\.\d)?)")
NOWHERE = b"/nonexistent/"
PUBLIC_PREFIXES = frozenset({"/usr", "/usr/local"})


class RuntimeCopyError(Exception):
    """The interpreter cannot be copied; the message says why and what to do."""


def copy_stdlib(target: Path) -> None:
    """Copy the standard library without the modules that no process on a box imports."""
    source = Path(sysconfig.get_path("stdlib"))

    def left_out(folder: str, names: list[str]) -> list[str]:
        native = Path(folder).name == "lib-dynload"
        return [
            name
            for name in names
            if name in UNUSED or name.startswith("config-") or (native and UNUSED_NATIVE.match(name))
        ]

    shutil.copytree(source, target, ignore=left_out)


def needed(files: Iterable[Path]) -> dict[str, Path]:
    """Return, by name, the path of every library that the loader of this machine finds for these files.

    Raises:
        RuntimeCopyError: a library is missing.
    """
    done = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False)
    missing = re.findall(r"^\s*(\S+) => not found", done.stdout, re.MULTILINE)
    if missing:
        raise RuntimeCopyError(f"cannot find {', '.join(sorted(set(missing)))}: install what brings them")
    found = {name: Path(path) for name, path in re.findall(r"^\s*(\S+) => (/\S+) \(", done.stdout, re.MULTILINE)}
    loaders = re.findall(r"^\s*(/\S*/ld-linux\S+) \(", done.stdout, re.MULTILINE)
    return found | {Path(path).name: Path(path) for path in loaders}


def native(folder: Path) -> list[Path]:
    """Return the shared objects below a folder, in a fixed order."""
    return sorted(path for path in folder.rglob("*.so*") if path.is_file() and not path.is_symlink())


def libraries(python: Path, folders: Iterable[Path]) -> dict[str, Path]:
    """Return the libraries that the interpreter and the native code in the folders need, by name."""
    folders = [folder.resolve() for folder in folders]
    found = needed([python, *(path for folder in folders for path in native(folder))])
    own = {name: path for name, path in found.items() if not any(folder in path.parents for folder in folders)}
    beside = own["libc.so.6"].parent
    for name in COMPANIONS:
        if (beside / name).exists():
            own.setdefault(name, beside / name)
    if LOADER not in own:
        raise RuntimeCopyError(f"cannot find {LOADER}: an environment is made on Linux with glibc, for amd64")
    return own


def strip(files: Iterable[Path]) -> None:
    """Remove what only a debugger reads from files; the loader stays as it is."""
    for path in files:
        path.chmod(0o755)
        if path.name != LOADER:
            subprocess.run(["strip", "--strip-unneeded", path], check=True)


def forget_prefix(root: Path, prefix: str) -> None:
    """Overwrite the prefix in which this Python was installed, in equal length, because a box has no such folder.

    The folder's own name stays: a linker may store `3.11.7` only as the end of `/opt/python/3.11.7`.
    """
    old = str(Path(prefix).parent).encode() + b"/"
    if prefix in PUBLIC_PREFIXES or len(old) < len(NOWHERE):
        return
    new = NOWHERE.ljust(len(old), b"/")
    for path in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
        content = path.read_bytes()
        if old in content:
            path.write_bytes(content.replace(old, new))


def debian_package(path: Path) -> str | None:
    """Return the Debian package of a file; None when there is none."""
    real = path.resolve()
    short = Path("/") / real.relative_to("/usr") if real.is_relative_to("/usr") else real
    for name in (real, short):
        done = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return None


def notices(files: Iterable[Path], licences: Path) -> Iterator[str]:
    """Copy the licence of each file's package, and yield a line about each package.

    Raises:
        RuntimeCopyError: a package has no licence text, so it may not be distributed.
    """
    if not shutil.which("dpkg"):
        raise RuntimeCopyError(
            "cannot find dpkg, which knows the libraries' licences: make the environment on Debian or Ubuntu"
        )
    licences.mkdir(parents=True)
    packages: dict[str, list[str]] = {}
    for path in files:
        package = debian_package(path)
        if package is None:
            raise RuntimeCopyError(
                f"cannot find the licence of {path}: it belongs to no package; use the distribution's"
            )
        packages.setdefault(package, []).append(path.name)
    for package, names in sorted(packages.items()):
        text = Path(f"/usr/share/doc/{package}/copyright").read_text(encoding="utf-8")
        (licences / f"{package}.txt").write_text(text, encoding="utf-8")
        for common in COMMON_LICENCE.findall(text):
            shutil.copyfile(f"/usr/share/common-licenses/{common}", licences / common)
        form = "${source:Package} ${source:Version}"
        origin = subprocess.run(["dpkg-query", "-W", "-f", form, package], capture_output=True, text=True, check=True)
        what = " ".join(sorted(set(names)))
        yield f"{what}: source package {origin.stdout}, licence in {licences.name}/{package}.txt\n"


def write_notice(target: Path, python: Path, taken: dict[str, Path]) -> None:
    """Write NOTICE and the licences that it names."""
    licences = target / "licenses"
    own = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    brought = sorted(path for path in taken.values() if not path.name.startswith("libpython"))
    lines = sorted(notices([*brought, *([] if own.exists() else [python])], licences))
    if own.exists():
        shutil.copyfile(own, licences / "python.txt")
        lines.insert(0, f"Python {sys.version.split()[0]}: https://www.python.org, licence in licenses/python.txt\n")
    head = (
        "What edgegpu brings along beside itself, unchanged but for debugging symbols. Debian keeps the sources of\n"
        "what names a source package. The packages in lib/ carry their licences in their *.dist-info folders.\n\n"
    )
    (target / "NOTICE").write_text(head + "".join(lines))


def copy(target: Path, wheels: Path) -> None:
    """Make a Python that needs nothing of the machine, for the packages in `wheels`; `target` must not exist."""
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    stdlib = target / "lib" / f"python{VERSION}"
    copy_stdlib(stdlib)
    taken = libraries(python, [stdlib, wheels])
    program = target / "bin" / f"python{VERSION}"
    program.parent.mkdir()
    shutil.copyfile(python, program)
    for name, path in taken.items():
        shutil.copyfile(path, target / "lib" / name)
    strip([program, *native(target)])
    forget_prefix(target, sys.base_prefix)
    write_notice(target, python, taken)
    for path in target.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)


def main(arguments: list[str]) -> int:
    """Copy the runtime for the command line `runtime.py TARGET WHEELS`."""
    try:
        copy(Path(arguments[0]), Path(arguments[1]))
    except RuntimeCopyError as error:
        sys.stderr.write(f"runtime: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
