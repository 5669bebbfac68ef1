"""The program that asks for card memory in containers (memory_client.c)."""

import subprocess
from pathlib import Path


def make_memory_client(folder: Path) -> Path:
    """Compile the program into the folder, as `memory_client`, and as `memory_client_static`; returns the folder.

    Beside it are what its author may use against the limiter: a library that opens another driver for it where it is
    preloaded, and a program that runs it under a filter of system calls.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, source, *options in (
        ("memory_client", "memory_client.c"),
        ("memory_client_static", "memory_client.c", "-static"),
        ("replaces_dlopen.so", "replaces_dlopen.c", "-shared", "-fPIC"),
        ("seccomp_limits", "seccomp_limits.c"),
    ):
        command = ["cc", "-O1", *options, "-o", str(folder / name), str(Path(__file__).with_name(source)), "-ldl"]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True)  # the linker warns of a static dlopen
    return folder
