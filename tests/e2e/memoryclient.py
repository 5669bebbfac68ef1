"""The program that asks for card memory in containers (memory_client.c)."""

import subprocess
from pathlib import Path

LIAR = Path(__file__).resolve().parents[2] / "plugin/limiter/tests/liar.c"


def make_memory_client(folder: Path) -> Path:
    """Compile the program into the folder, as `memory_client`, and as `memory_client_static`; returns the folder.

    Beside it are what its author may use against the limiter: libraries to be preloaded, of which one opens another
    driver for it, and one stands in for functions of libc; and a program that runs it under a filter of system calls.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, source, *options in (
        ("memory_client", "memory_client.c"),
        ("memory_client_static", "memory_client.c", "-static"),
        ("replaces_dlopen.so", "replaces_dlopen.c", "-shared", "-fPIC"),
        ("liar.so", LIAR, "-shared", "-fPIC", "-w"),
        ("seccomp_limits", "seccomp_limits.c"),
    ):
        command = ["cc", "-O1", *options, "-o", str(folder / name), str(Path(__file__).parent / source), "-ldl"]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True)  # the linker warns of a static dlopen
    return folder
