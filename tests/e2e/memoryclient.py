"""The program that asks for card memory in containers (memory_client.c)."""

import subprocess
from pathlib import Path


def make_memory_client(folder: Path) -> Path:
    """Compile the program into the folder, as `memory_client`, and as `memory_client_static`; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("memory_client.c")
    for name, *options in (("memory_client",), ("memory_client_static", "-static")):
        command = ["cc", "-O1", *options, "-o", str(folder / name), str(source), "-ldl"]
        subprocess.run(command, stderr=subprocess.DEVNULL, check=True)  # the linker warns of a static dlopen
    return folder
