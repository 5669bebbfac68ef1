"""PyTorch in the container, or without the limiter: seconds of blocks of training steps and of inference.

It prints a line when both are warm; for each line of its standard input it runs a block of each, and says as JSON how
long they took.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from gpu.limiter.programs.cuda_calls import heard, say

STEPS, WARM = 150, 40
WIDTH, BATCH, LAYERS = 1024, 256, 6


def main() -> None:
    """Build a model of a few layers, warm up, answer lines."""
    torch.manual_seed(1)
    layers: list[Any] = []
    for _ in range(LAYERS):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).cuda()
    data, wanted = torch.randn(BATCH, WIDTH, device="cuda"), torch.randn(BATCH, WIDTH, device="cuda")
    optimiser = torch.optim.AdamW(model.parameters())

    def train() -> None:
        optimiser.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(data), wanted).backward()
        optimiser.step()

    def infer() -> None:
        with torch.inference_mode():
            model(data)

    def block_s(step: Any, steps: int) -> float:  # noqa: ANN401 - a step
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        return time.perf_counter() - began

    for step in (train, infer):
        block_s(step, WARM)
    say(ready=1)
    while True:
        heard()
        say(training_s=block_s(train, STEPS), inference_s=block_s(infer, 3 * STEPS))


if __name__ == "__main__":
    main()
