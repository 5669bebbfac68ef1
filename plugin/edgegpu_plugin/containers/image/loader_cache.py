"""The hook that puts the driver's libraries into a container's /etc/ld.so.cache (`plugin/limiter/loader_cache`).

Programs ask `ldconfig -p` where libcuda.so.1 is (Triton, and with it torch.compile, vLLM and lmdeploy). An image's
cache does not have what is mounted into its containers.
"""

import os
import platform
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgegpu_plugin.cards.driver_root import open_to_others
from edgegpu_plugin.containers.driver_files import Library
from edgegpu_plugin.containers.image.loaders import interpreter_of
from edgegpu_plugin.containers.limiter_files import MACHINES, default_folder
from edgegpu_plugin.errors import PluginError

PROGRAM = "edgegpu-loader-cache"
TRITON_FOLDER = "TRITON_LIBCUDA_PATH"
"""The variable by which Triton is told the folder of libcuda.so.1, where no hook can be run."""

_HEAD_BYTES = 4096
_ELF = b"\x7fELF\x02\x01"
_MACHINE_AT = 18


def find_program(folder: Path | None = None, *, machine: str = platform.machine()) -> Path:
    """Find the program of the hook, checked: where the runtime cannot run it, no container starts.

    Args:
        folder: where it is; None for the environment's own.
        machine: the processor as `uname -m` names it.

    Raises:
        PluginError: it is missing, of another processor, open to other users, or cannot be run.
    """
    path = (folder or default_folder()) / PROGRAM
    try:
        problem = open_to_others(path, below=path.parent) or _problem(path, machine)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise PluginError(f"cannot use {path}: {problem}: install edgegpu's bundle again")
    return path


def _problem(path: Path, machine: str) -> str:
    """Return why a runtime could not run the program; empty where it can. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    number = int.from_bytes(head[_MACHINE_AT : _MACHINE_AT + 2], "little")
    if not head.startswith(_ELF) or number != MACHINES.get(machine):
        return f"it is no program for this machine's processor ({machine})"
    if interpreter_of(head):
        return "it is not static: a container's environment could steer it"
    if os.statvfs(path).f_flag & os.ST_NOEXEC:
        return "its file system is mounted with noexec"
    for place in (path, *path.resolve().parents):
        if not place.stat().st_mode & stat.S_IXOTH:  # root of a pod with hostUsers: false is another user here
            return f"users other than root cannot run it: {place} is closed to them"
    return ""


def cache_hook(program: Path, libraries: Iterable[Library], folders: Iterable[str]) -> dict[str, Any]:
    """Return the CDI hook that adds libraries under all names that programs ask for.

    There is no timeout: a runtime fails the start when it has passed. The program ends by itself.

    Args:
        program: the hook's program.
        libraries: the libraries that are mounted.
        folders: the container's folders in which they are, the first that has one counts.
    """
    names = dict.fromkeys(name for library in libraries for name in asked_names(library))
    return {"hookName": "createContainer", "path": str(program), "args": [program.name, *folders, "--", *names]}


def asked_names(library: Library) -> tuple[str, ...]:
    """Return the names by which programs ask for a library: not that of its file, unless it has no other."""
    return tuple(name for name in library.names if name != library.path.name) or library.names
