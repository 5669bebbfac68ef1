"""The program that asks for card memory in containers (memory_client.c)."""

import subprocess
from pathlib import Path


def make_memory_client(folder: Path) -> Path:
    """Compile the program into the folder, as `memory_client`, and as `memory_client_static`; returns the folder.

    Beside it is a library that opens another driver for it where it is preloaded.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("memory_client.c")
    for name, *options in (("memory_client",), ("memory_client_static", "-static")):
        command = ["cc", "-O1", *options, "-o", str(folder / name), str(source), "-ldl"]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True)  # the linker warns of a static dlopen
    library, code = str(folder / "replaces_dlopen.so"), str(source.with_name("replaces_dlopen.c"))
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, code, "-ldl"], check=True)
    return folder
