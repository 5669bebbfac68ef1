"""A program that has NVIDIA's runtime linked into it: it finds the driver by itself, and is held all the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from gpu.limiter.bench import LIMIT_MIB
from gpu.limiter.memory import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu.limiter.bench import Bench

ASK_MIB = 3072
ARCHIVE = "libcudart_static.a"
LIBRARIES = ("lib64", "targets/x86_64-linux/lib")
NAME = "memory, a static CUDA runtime: on the card"


def measure(bench: Bench) -> None:
    """Link the program with the first archive that runs on this driver natively, and try it in a container."""
    reasons = []
    for archive in archives(bench.options.python):
        program = bench.compile("static_runtime.c", archive)
        said = bench.run(program, 64, env=bench.native())
        if said["taken_mib"] == 64:
            _held(bench, program, archive)
            return
        reasons.append(f"{archive.parent.parent.name}: natively {said['why']}")
    bench.skip(NAME, "; ".join(reasons) or f"there is no {ARCHIVE} (CUDA's toolkit, or a wheel nvidia-cuda-runtime)")


def archives(python: str) -> Iterator[Path]:
    """Yield the runtime's archives: of the toolkit whose nvcc is on the PATH, and of wheels in a Python."""
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        home = Path(nvcc).resolve().parents[1]
        yield from (home / one / ARCHIVE for one in LIBRARIES if (home / one / ARCHIVE).exists())
    words = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip())
    yield from sorted(site.glob(f"nvidia/*/lib/{ARCHIVE}"))


def _held(bench: Bench, program: Path, archive: Path) -> None:
    container = bench.container("static")
    before = bench.card.used_mib()
    running = bench.start(program, ASK_MIB, env=bench.limited(container))
    said = bench.answer(running)
    taken = bench.card.used_mib() - before
    bench.end(running)
    why = f"{said['taken_mib']} MiB ({said['why']}), {archive}"
    bench.note(NAME, taken, "MiB", most=LIMIT_MIB * TOLERANCE, why=why)
    bench.note_tables("a static CUDA runtime", container)
