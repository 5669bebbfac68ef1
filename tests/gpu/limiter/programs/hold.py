"""A program in the container: does what the lines of its standard input say, and answers each with a line of JSON.

`take MIB`: takes plain memory. `give`: frees all of it. `sizes`: what CUDA and NVML say of the card, and whose
processes NVML lists, or why it does not. It prints a line first, when its context is there.
"""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu
from gpu.limiter.card import Card, NvmlError
from gpu.limiter.programs.cuda_calls import MIB, heard, ok, say, start


def sizes() -> dict[str, Any]:
    """Return the card's sizes in MiB, and the pids, as this program is shown them."""
    free, total = ok(cu.cuMemGetInfo())
    card = Card("libnvidia-ml.so.1")
    nvml_total, nvml_used = card.memory_mib()
    try:
        pids: list[int] | str = sorted(card.processes())
    except NvmlError as error:
        pids = str(error)
    return {
        "cuda_total": total / MIB,
        "cuda_used": (total - free) / MIB,
        "device_total": int(ok(cu.cuDeviceTotalMem(0))) / MIB,
        "nvml_total": nvml_total,
        "nvml_used": nvml_used,
        "pids": pids,
    }


def main() -> None:
    """Answer lines until there are none."""
    start()
    say(ready=1)
    held: list[Any] = []
    while True:
        match heard().split():
            case ["take", mib]:
                status, at = cu.cuMemAlloc(int(mib) * MIB)
                if status == cu.CUresult.CUDA_SUCCESS:
                    held.append(at)
                say(status=status.name.removeprefix("CUDA_"))
            case ["give"]:
                while held:
                    ok(cu.cuMemFree(held.pop()))
                say(status="SUCCESS")
            case ["sizes"]:
                say(**sizes())
            case words:
                raise SystemExit(f"what is {words}? {__doc__}")


if __name__ == "__main__":
    main()
