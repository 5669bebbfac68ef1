"""A second process that uses the simulated driver at a test's word."""
# ruff: noqa: ANN401 - values travel as JSON

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

CHILD = Path(__file__).with_name("simchild.py")
DEADLINE_S = 20.0
DRIVER_FILE = "libcuda.so.560.35.03"


class NvmlError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"NVML status {code}")
        self.code = code


class Child:
    """Calls run in order on the child's main thread; `start` runs one beside them."""

    def __init__(self, libraries: Path, *, env: dict[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries), **(env or {})},
        )
        self._ids = 0
        self._ready: dict[int, Any] = {}
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, call: str, *args: Any, thread: bool = True) -> int:
        self._ids += 1
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": self._ids, "call": call, "args": args, "thread": thread}) + "\n")
        self.process.stdin.flush()
        return self._ids

    def result(self, request: int) -> Any:
        while request not in self._ready:
            answer = json.loads(self._lines.get(timeout=DEADLINE_S))
            self._ready[answer["id"]] = answer["result"]
        result = self._ready.pop(request)
        if isinstance(result, dict) and "nvml_error" in result:
            raise NvmlError(result["nvml_error"])
        return result

    def answered(self, request: int) -> bool:
        while not self._lines.empty():
            answer = json.loads(self._lines.get())
            self._ready[answer["id"]] = answer["result"]
        return request in self._ready

    def call(self, call: str, *args: Any) -> Any:
        return self.result(self.start(call, *args, thread=False))

    def code(self, call: str, *args: Any) -> int:
        """The NVML status of a call; 0 when it worked."""
        try:
            self.call(call, *args)
        except NvmlError as error:
            return error.code
        return 0

    def open_cuda(self, index: int = 0) -> int:
        """Initialises CUDA and makes the card's primary context current."""
        assert self.call("cuInit", 0) == [0]
        status, context = self.call("cuDevicePrimaryCtxRetain", "&ptr", index)
        assert status == 0
        assert self.call("cuCtxSetCurrent", context) == [0]
        return int(context)

    def alloc(self, mib: int) -> int:
        status, address = self.call("cuMemAlloc_v2", "&u64", mib << 20)
        assert status == 0, status
        return int(address)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)


def shadow(folder: Path, sources: Sequence[Path]) -> Path:
    """Return a library with the driver's SONAME made of C sources, which has the driver itself as its only need."""
    (folder / "empty.c").touch()
    stub, made = folder / DRIVER_FILE, folder / "libcuda.so.1"
    link = ["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*link, "-nostdlib", f"-Wl,-soname,{DRIVER_FILE}", "-o", stub, folder / "empty.c"], check=True)
    needs = ["-Wl,--no-as-needed", f"-L{folder}", f"-l:{DRIVER_FILE}", "-ldl"]
    subprocess.run([*link, "-Wl,-soname,libcuda.so.1", "-o", made, *sources, *needs], check=True)
    stub.unlink()
    return made
