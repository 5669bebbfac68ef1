"""NVIDIA's own libraries that libcuda asks for, by its own file: those that it is linked to, and names in its text.

Seen in the branches 390 to 550: it opens the others by the names that stand there.
"""

import os
import re
from functools import lru_cache
from pathlib import Path

from edgegpu_base.elf import ElfError, opened_library
from edgegpu_base.files import open_at_once, stamp

FIRST_DRIVER = 418
"""The oldest branch of NVIDIA's driver that is supported. By the function cuDeviceGetUuid, which came with 396, the
limiter knows which card a limit is of: without it the programs that it holds get nothing. 418 is the oldest tried."""

_NAMED = re.compile(rb"libnvidia-[a-z][a-z0-9-]*\.so(?:\.\d+)*(?=\0)")
_OPTIONAL = ("libnvidia-pkcs11",)
"""What libcuda opens for confidential computing alone, of which distributions leave out the form that they need not."""
_CHUNK, _MOST_NAME = 1 << 20, 256


def asked_libraries(libcuda: Path) -> tuple[str, ...]:
    """Return the names of the driver's libraries that libcuda asks for; none of a file that is no library."""
    try:
        return _asked(libcuda, stamp(libcuda))
    except (ElfError, OSError):
        return ()


@lru_cache(maxsize=4)
def _asked(libcuda: Path, _stamp: tuple[int, ...]) -> tuple[str, ...]:
    with opened_library(libcuda) as library:
        names = {name for name in library.needed if name.startswith("libnvidia-")}
    handle = open_at_once(libcuda)
    try:
        at = 0
        while chunk := os.pread(handle, _CHUNK + _MOST_NAME, at):
            names |= {name.decode() for name in _NAMED.findall(chunk)}
            at += _CHUNK
    finally:
        os.close(handle)
    return tuple(sorted(name for name in names if not name.startswith(_OPTIONAL)))


def missing_libraries(libcuda: Path) -> tuple[str, ...]:
    """Return the libraries that libcuda asks for and that are neither beside it nor in a usual folder of that root."""
    real = libcuda.resolve()
    folders = {libcuda.parent, real.parent}
    return tuple(
        name
        for name in asked_libraries(real)
        if not any(any(folder.glob(f"{name.partition('.so')[0]}.so*")) for folder in folders)
    )


def missing_text(names: tuple[str, ...]) -> str:
    """Return what it means that libraries are missing."""
    return f"the driver lacks {', '.join(names)}, which its libcuda asks for: programs that compile for the card fail"


MISSING_REMEDY = (
    "install the whole driver: Debian has a package for each (apt-cache search ptxjitcompiler), Ubuntu "
    "libnvidia-compute-VERSION"
)
