"""A program: allocates on the driver by NVIDIA's own Python bindings, and prints what they say of it."""

import json
import sys
from typing import Any

from cuda.bindings import driver


def _ok(answer: tuple[Any, ...]) -> Any:  # noqa: ANN401 - the bindings are untyped
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def main() -> None:
    _ok(driver.cuInit(0))
    device = _ok(driver.cuDeviceGet(0))
    _ok(driver.cuCtxSetCurrent(_ok(driver.cuDevicePrimaryCtxRetain(device))))
    free, total = _ok(driver.cuMemGetInfo())
    address = _ok(driver.cuMemAlloc(1 << 20))
    held = free - _ok(driver.cuMemGetInfo())[0]
    _ok(driver.cuMemFree(address))
    too_much = driver.cuMemAlloc(total + 1)[0].name
    json.dump({"version": _ok(driver.cuDriverGetVersion()), "held": held, "too_much": too_much}, sys.stdout)


if __name__ == "__main__":
    main()
