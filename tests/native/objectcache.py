"""A compiler that keeps objects: `objectcache.py FOLDER ARGUMENT...` does as `cc ARGUMENT...` does.

A make that compiles and links a library in one command compiles each source anew. Through this one, a build that
differs from an earlier one in one source compiles that source alone.
"""

import hashlib
import itertools
import subprocess
import sys
from pathlib import Path

_SOURCES = (".c", ".S")


def main() -> int:
    """Run the compiler, on objects in the place of sources where it links a library, and return its status."""
    folder, words = Path(sys.argv[1]), sys.argv[2:]
    sources = [word for word in words if word.endswith(_SOURCES)]
    if not sources or "-shared" not in words:
        return subprocess.run(["cc", *words], check=False).returncode
    objects = {source: _object(folder, source, _of_compiler(words)) for source in sources}
    return subprocess.run(["cc", *(objects.get(word, word) for word in words)], check=False).returncode


def _of_compiler(words: list[str]) -> list[str]:
    """Return the options that a compilation without a link has."""
    linked = {word for option, word in itertools.pairwise(words) if option == "-o"}
    of_linker = ("-o", "-shared", "-l", "-Wl,")
    others = [word for word in words if word not in linked and not word.startswith(of_linker)]
    return [word for word in others if not word.endswith(_SOURCES)]


def _object(folder: Path, source: str, options: list[str]) -> Path:
    """Return a source's object, compiled where there is none of these very words with these options and headers."""
    includes = [Path(option[2:]) for option in options if option.startswith("-I")]
    headers = [header for include in includes for header in sorted(include.glob("*.h"))]
    key = hashlib.sha256("\0".join(option for option in options if not option.startswith("-I")).encode())
    for path in (Path(source), *headers):
        key.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    compiled = folder / f"{Path(source).stem}-{key.hexdigest()}.o"
    if not compiled.exists():
        subprocess.run(["cc", *options, "-c", "-o", compiled, source], check=True)
    return compiled


if __name__ == "__main__":
    sys.exit(main())
