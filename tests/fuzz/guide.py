"""One reader under atheris, which changes bytes to reach more of the code: guide.py READER [libFuzzer's flags]."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["edgegpu_sync", "edgegpu_cloud", "edgegpu_agent", "edgegpu_plugin"]):
    from fuzz.readers import faulty, readers

from fuzz.mutate import mutated


def change(data: bytes, max_size: int, seed: int) -> bytes:
    """Change bytes blindly, or a body by its structure, in turns."""
    found = mutated(data, seed) if seed % 2 else None
    if found is not None and len(found) <= max_size:
        return found
    blind: bytes = atheris.Mutate(data, max_size)
    return blind


def main() -> None:
    reader = (readers() | faulty())[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], reader.read, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
