"""PyTorch with the limiter against PyTorch without it: a training step and an inference loop, in interleaved pairs."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from gpu.limiter.ratios import judge_ratio

if TYPE_CHECKING:
    from gpu.limiter.bench import Bench

MOST = 1.01
NAMES = ("training_s", "inference_s")
PAIRS_A_PROCESS = 10
PAIR_S = 3.0
START_S = 120.0
ROOM_MIB = 16384


def measure(bench: Bench) -> None:
    """Measure as many pairs as were asked for, or as there is time for; both are said."""
    words = [bench.options.python, "-c", "import torch; print(torch.cuda.is_available())"]
    found = subprocess.run(
        words, env=bench.native(), capture_output=True, text=True, check=False, timeout=bench.wait_s(START_S)
    )
    if found.stdout.strip() != "True":
        why = "no torch" if found.returncode else "a torch that finds no card"
        bench.skip("torch", f"{why} in {bench.options.python}")
        return
    full = bench.container("torch", memory_mib=ROOM_MIB, words="core_percent=100 policy=strict")
    environments = [bench.native(), bench.limited(full)]
    took: dict[str, list[list[float]]] = {name: [[], []] for name in NAMES}
    for at in range(bench.options.pairs):
        if not bench.has_time(f"torch, pairs from the {at + 1}th on", PAIR_S):
            break
        if at % PAIRS_A_PROCESS == 0:
            bench.end_all()
            running = [bench.start("torch_blocks.py", env=env) for env in environments]
            for one in running:
                bench.answer(one, START_S)
        for index in (0, 1) if at % 2 == 0 else (1, 0):
            said = bench.ask(running[index], "go")
            for name in NAMES:
                took[name][index].append(float(said[name]))
    bench.note_tables("torch", full)
    for name, (native, limited) in took.items():
        if native:
            judge_ratio(bench, f"torch, {name}", native, limited, most=MOST)
