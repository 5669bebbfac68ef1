"""What a container is shown of the card: its own size and its own processes, beside another container."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from gpu.limiter.bench import LIMIT_MIB

if TYPE_CHECKING:
    from pathlib import Path

    from gpu.limiter.bench import Bench
    from gpu.limiter.program import Program

HELD_MIB = (64, 192)


def measure(bench: Bench) -> None:
    """Let two containers hold memory, and look from the first."""
    limits = [one + bench.context_mib for one in (LIMIT_MIB, LIMIT_MIB // 2)]
    folders = [bench.container(f"view-{at}", memory_mib=limit) for at, limit in enumerate(limits)]
    running = [bench.start("hold.py", env=bench.limited(folder)) for folder in folders]
    for one, mib in zip(running, HELD_MIB, strict=True):
        bench.answer(one)
        status = bench.ask(one, f"take {mib}")["status"]
        bench.note(f"view: {mib} MiB below the limit", status != "SUCCESS", "refused", most=0, why=status)
    shown = bench.ask(running[0], "sizes")
    for name in ("cuda_total", "device_total", "nvml_total"):
        why = f"{shown[name]:.0f} MiB shown"
        bench.note(f"view: {name} beside the limit", abs(shown[name] - limits[0]), "MiB off", most=0, why=why)
    expected = HELD_MIB[0] + bench.context_mib
    for name in ("cuda_used", "nvml_used"):
        why = f"{shown[name]:.0f} MiB shown, {expected} held"
        most = 0.02 * limits[0]
        bench.note(f"view: {name} beside what is held", abs(shown[name] - expected), "MiB off", most=most, why=why)
    _processes(bench, running, shown["pids"])
    _smi(bench, folders[0], limits[0])
    bench.end(*running)


def _processes(bench: Bench, running: list[Program], pids: list[int] | str) -> None:
    """Judge the list that the first of the programs is shown."""
    if isinstance(pids, str):
        bench.skip("view: NVML's list of processes", pids)
        return
    strangers = set(pids) - {running[0].pid}
    bench.note("view: processes of others in NVML's list", len(strangers), "processes", most=0, why=str(pids))
    missing = running[0].pid not in pids
    bench.note("view: its own process in NVML's list", missing, "missing", most=0, why=f"pid {running[0].pid}")
    outside = {one.pid for one in running} <= set(bench.card.processes())
    bench.note("view: NVML outside lists both by their pids", outside, "of 1")


def _smi(bench: Bench, folder: Path, limit_mib: int) -> None:
    """Ask the driver's own nvidia-smi in the container."""
    smi = shutil.which(bench.options.smi)
    if smi is None:
        bench.skip("view: nvidia-smi", f"there is no {bench.options.smi}")
        return
    words = [smi, "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"]
    done = subprocess.run(
        words, env=bench.limited(folder), capture_output=True, text=True, check=False, timeout=bench.wait_s(60)
    )
    shown = done.stdout.strip()
    off = abs(int(shown) - limit_mib) if shown.isdigit() else limit_mib
    bench.note("view: nvidia-smi's memory.total beside the limit", off, "MiB off", most=0, why=f"it says {shown!r}")
