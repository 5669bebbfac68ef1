"""Work that waits for a launch of another stream: under a small share it takes longer, and it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu.limiter.program import ProgramError

if TYPE_CHECKING:
    from gpu.limiter.bench import Bench

SHARE, ROUNDS, MOST_S = 10, 20, 60.0


def measure(bench: Bench) -> None:
    """Play both ways to wait in a container with a small share."""
    memory = max(1024, 2 * bench.context_mib)
    folder = bench.container("waits", memory_mib=memory, words=f"core_percent={SHARE} policy=strict")
    for way, what in (("spins", "a kernel that spins"), ("values", "a stream that waits")):
        name = f"waits: {what} until another stream's launch"
        program = bench.start("waits.py", way, ROUNDS, env=bench.limited(folder))
        ready = bench.answer(program)
        found = ready
        try:
            found = bench.ask(program, "go", MOST_S) if "ready" in ready else ready
        except ProgramError as error:
            bench.note(name, ROUNDS, "rounds that never ended", most=0, why=str(error))
            program.kill()
            continue
        if found.get("refused") == "ERROR_NOT_SUPPORTED":
            bench.skip(name, "this driver does not have it")
        elif "refused" in found:
            bench.note(name, 1, "refused", most=0, why=found["refused"])
        else:
            why = f"{ROUNDS} rounds at {SHARE} % in {found['seconds']:.1f} s"
            bench.note(name, found["gave_up"], "rounds in which it gave up", most=0, why=why)
        bench.end(program)
